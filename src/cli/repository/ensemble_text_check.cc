#include "cli/repository/ensemble_text_check.h"

#include <set>

#include <fmt/format.h>

#include "base/nearest.h"

namespace nereid::cli {
namespace {

std::set<std::string> names_of(const TextField& config, const char* kind) {
  std::set<std::string> out;
  for (const auto* tensor : config.all(kind)) out.insert(tensor->text("name"));
  return out;
}

const TextField* tensor_of(const TextField& config, const char* kind, const std::string& name) {
  for (const auto* tensor : config.all(kind)) {
    if (tensor->text("name") == name) return tensor;
  }
  return nullptr;
}

class EnsembleCheck {
 public:
  EnsembleCheck(const TextField& config, const TextModels& models, const Report& report)
      : config_(config), models_(models), report_(report) {
    for (const auto& [name, _] : models) model_names_.insert(name);
  }

  void run() {
    const TextField* scheduling = config_.find("ensemble_scheduling");
    if (scheduling == nullptr) {
      return report_(0, "ensemble_scheduling", "is missing, and the platform is ensemble");
    }
    for (const auto* input : config_.all("input")) {
      written_.insert(input->text("name"));
      types_[input->text("name")] = input->text("data_type");
    }
    for (const auto* step : scheduling->all("step")) {
      for (const auto* entry : step->all("output_map")) written_.insert(entry->text("value"));
    }
    const auto steps = scheduling->all("step");
    if (steps.empty()) report_(scheduling->line, "ensemble_scheduling", "has no step");
    for (const auto* step : steps) check_step(*step);
    for (const auto* output : config_.all("output")) {
      const std::string name = output->text("name");
      if (!written_.contains(name)) {
        report_(output->line, fmt::format("output '{}'", name),
                "is written by no step." + did_you_mean(name, written_));
      }
    }
    for (const auto* input : config_.all("input")) {
      if (read_.contains(input->text("name"))) continue;
      report_(input->line, fmt::format("input '{}'", input->text("name")), "is read by no step");
    }
  }

 private:
  void check_step(const TextField& step) {
    const std::string model = step.text("model_name");
    const std::string field = fmt::format("step '{}'", model);
    const auto found = models_.find(model);
    if (found == models_.end()) {
      return report_(step.line, "ensemble_scheduling.step.model_name",
                     model.empty() ? "is missing"
                                   : fmt::format("'{}' is not in the repository.{}", model,
                                                 did_you_mean(model, model_names_)));
    }
    const TextField& target = found->second.config;
    const auto given = check_map(step, "input_map", target, "input", field);
    check_map(step, "output_map", target, "output", field);
    for (const auto* input : target.all("input")) {
      const std::string name = input->text("name");
      if (input->text("optional") == "true" || given.contains(name)) continue;
      report_(step.line, field + " input_map",
              fmt::format("lacks '{}', which '{}' needs", name, model));
    }
  }

  // The model's tensor names in the map.
  std::set<std::string> check_map(const TextField& step, const char* map, const TextField& target,
                                  const char* kind, const std::string& field) {
    std::set<std::string> given;
    const auto names = names_of(target, kind);
    for (const auto* entry : step.all(map)) {
      const std::string key = entry->text("key"), value = entry->text("value");
      const std::string at = fmt::format("{} {}", field, map);
      given.insert(key);
      const TextField* tensor = tensor_of(target, kind, key);
      if (tensor == nullptr) {
        report_(entry->line, at,
                fmt::format("'{}' has no {} '{}'.{}", step.text("model_name"), kind, key,
                            did_you_mean(key, names)));
      } else {
        check_type(*entry, at, value, tensor->text("data_type"));
      }
      if (std::string_view(kind) == "output") continue;
      read_.insert(value);
      if (!written_.contains(value)) {
        report_(entry->line, at,
                fmt::format("ensemble tensor '{}' is written by no step and no input.{}", value,
                            did_you_mean(value, written_)));
      }
    }
    return given;
  }

  void check_type(const TextField& entry, const std::string& at, const std::string& tensor,
                  const std::string& type) {
    std::string& known = types_[tensor];
    if (known.empty()) known = type;
    if (type.empty() || known == type) return;
    report_(entry.line, at,
            fmt::format("ensemble tensor '{}' is {} here and {} elsewhere", tensor, type, known));
  }

  const TextField& config_;
  const TextModels& models_;
  const Report& report_;
  std::set<std::string> model_names_, written_, read_;
  std::map<std::string, std::string> types_;  // by ensemble tensor
};

}  // namespace

void check_ensemble_text(const std::string& name, const TextModels& models, const Report& report) {
  const TextField& config = models.at(name).config;
  if (config.text("platform") == "ensemble") EnsembleCheck(config, models, report).run();
}

}  // namespace nereid::cli
