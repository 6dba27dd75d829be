#include "cli/repository/config_text_check.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/nearest.h"
#include "base/status.h"

namespace nereid::cli {
namespace {

int64_t number_of(const std::string& text) {
  return text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != text.npos
             ? 0
             : std::stoll(text);
}

// The product of the fixed dimensions, and the number of variable ones. Floating point: a product
// of hostile dimensions may exceed 64 bits.
std::pair<double, int> extent(const std::vector<const TextField*>& dims) {
  double size = 1;
  int num_variable = 0;
  for (const auto* dim : dims) {
    if (dim->value == "-1") {
      ++num_variable;
    } else {
      size *= static_cast<double>(number_of(dim->value));
    }
  }
  return {size, num_variable};
}

void check_reshape(const TextField& tensor, const std::string& field, const Report& report) {
  const TextField* reshape = tensor.find("reshape");
  const auto dims = tensor.all("dims");
  if (reshape == nullptr || extent(reshape->all("shape")) == extent(dims)) return;
  report(reshape->line, field + " reshape",
         "has another number of elements, or of variable dimensions, than dims");
}

void check_tensors(const TextField& config, const char* kind, const Report& report) {
  std::set<std::string> seen;
  for (const auto* tensor : config.all(kind)) {
    if (tensor->line == 0) continue;
    const std::string name = tensor->text("name");
    const std::string field = fmt::format("{} '{}'", kind, name);
    if (name.empty()) report(tensor->line, kind, "has no name");
    if (tensor->find("data_type") == nullptr) report(tensor->line, field, "has no data_type");
    if (tensor->find("dims") == nullptr) report(tensor->line, field, "has no dims");
    check_reshape(*tensor, field, report);
    for (const auto* dim : tensor->all("dims")) {
      if (dim->value != "-1" && number_of(dim->value) < 1) {
        report(dim->line, field + " dims",
               fmt::format("is {}, expected an integer of at least 1, or -1", dim->value));
      }
    }
    // Duplicate outputs occur in widely used repositories: the first one counts.
    if (!seen.insert(name).second && std::string_view(kind) == "input") {
      report(tensor->line, field, "is declared twice");
    }
  }
}

void check_batching(const TextField& config, const Report& report) {
  const TextField* batching = config.find("dynamic_batching");
  if (batching == nullptr) return;
  const int64_t limit = number_of(config.text("max_batch_size"));
  for (const auto* size : batching->all("preferred_batch_size")) {
    if (number_of(size->value) < 1 || number_of(size->value) > limit) {
      report(size->line, "dynamic_batching.preferred_batch_size",
             fmt::format("is {}, expected 1 to {}, the max_batch_size", size->value, limit));
    }
  }
}

void check_instance_groups(const TextField& config, const Report& report) {
  for (const auto* group : config.all("instance_group")) {
    const TextField* kind = group->find("kind");
    const std::string value = kind == nullptr ? "KIND_AUTO" : kind->value;
    if (value == "KIND_GPU") {
      report(kind->line, "instance_group.kind",
             "is KIND_GPU, expected KIND_CPU, KIND_MODEL or KIND_AUTO: the core runs instances on "
             "the CPU, and a model's parameters say which GPU it uses");
    } else if (const TextField* gpus = group->find("gpus")) {
      report(gpus->line, "instance_group.gpus", fmt::format("is given for {}", value));
    }
  }
}

void check_warmup(const TextField& config, const Report& report) {
  std::set<std::string> inputs;
  for (const auto* input : config.all("input")) inputs.insert(input->text("name"));
  for (const auto* sample : config.all("model_warmup")) {
    const std::string field = fmt::format("model_warmup '{}'", sample->text("name"));
    const std::string limit = config.text("max_batch_size");
    const TextField* size = sample->find("batch_size");
    if (size != nullptr && number_of(size->value) > std::max<int64_t>(1, number_of(limit))) {
      report(size->line, field + " batch_size",
             fmt::format("is {}, more than the max_batch_size {}", size->value, number_of(limit)));
    }
    for (const auto* entry : sample->all("inputs")) {
      const std::string name = entry->text("key");
      // Without declared inputs the backend may still add its own.
      if (inputs.empty() || inputs.contains(name)) continue;
      report(entry->line, field,
             fmt::format("has '{}', which is no input.{}", name, did_you_mean(name, inputs)));
    }
  }
}

}  // namespace

void check_config_text(const TextField& config, const Report& report) {
  check_tensors(config, "input", report);
  check_tensors(config, "output", report);
  check_batching(config, report);
  check_instance_groups(config, report);
  check_warmup(config, report);
}

}  // namespace nereid::cli
