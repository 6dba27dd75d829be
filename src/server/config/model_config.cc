// config.pbtxt: protobuf text -> normalised message -> plain ModelConfig, and the message as JSON.
#include "server/config/model_config.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>

#include "base/placeholders.h"
#include "server/config/config_fields.h"
#include "server/config/config_json.h"

namespace nereid::server {
namespace {

namespace pb = google::protobuf;
constexpr size_t kMaxModelConfigBytes = 4 << 20;
constexpr int kMaxNesting = 64;
constexpr uint64_t kDefaultIdleUs = 1'000'000;  // idle time of a sequence

class FirstError : public pb::io::ErrorCollector {
 public:
  void AddError(int line, pb::io::ColumnNumber column, const std::string& text) override {
    if (text_.empty()) text_ = fmt::format("{}:{}: {}", line + 1, column + 1, text);
  }
  void AddWarning(int, pb::io::ColumnNumber, const std::string&) override {}
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

Status parse_text(std::string_view text, Parsed& out) {
  if (text.size() > kMaxModelConfigBytes) {
    return invalid_argument("{}: larger than {} bytes", out.path, kMaxModelConfigBytes);
  }
  pb::TextFormat::Parser parser;
  FirstError error;
  parser.RecordErrorsTo(&error);
  parser.WriteLocationsTo(&out.places);
  parser.SetRecursionLimit(kMaxNesting);
  int unfilled = 0;
  const std::string filled = fill_placeholders(text, &unfilled);
  if (unfilled > 0) {
    return invalid_argument(
        "{}:{}: ${{triton_max_batch_size}} is not filled in, expected an integer", out.path,
        unfilled);
  }
  pb::io::ArrayInputStream stream(filled.data(), static_cast<int>(filled.size()));
  if (!parser.Parse(&stream, &out.config)) {
    return invalid_argument("failed to read text proto from {}:{}", out.path,
                            error.text().empty() ? " not a model configuration" : error.text());
  }
  return ok();
}

struct KnownBackend {
  const char *platform, *file, *backend;
};

constexpr KnownBackend kKnownBackends[] = {
    {"tensorflow_savedmodel", "model.savedmodel", "tensorflow"},
    {"tensorflow_graphdef", "model.graphdef", "tensorflow"},
    {"tensorrt_plan", "model.plan", "tensorrt"},
    {"onnxruntime_onnx", "model.onnx", "onnxruntime"},
    {"", "model.xml", "openvino"},
    {"pytorch_libtorch", "model.pt", "pytorch"},
    {"pytorch_libtorch", "model.pt2", "pytorch"},
    {"", "model.py", "python"}};

bool has_version_with(const std::filesystem::path& dir, const char* file) {
  std::error_code error, ignored;
  for (std::filesystem::directory_iterator it(dir, error), end; !error && it != end;
       it.increment(error)) {
    if (std::filesystem::exists(it->path() / file, ignored)) return true;
  }
  return false;
}

// The known backend that a configuration names by platform, backend, default file or the files of
// its versions; null: none.
const KnownBackend* known_backend(const std::filesystem::path& dir,
                                  const inference::ModelConfig& c) {
  for (const KnownBackend& known : kKnownBackends) {
    if (!c.backend().empty() && c.backend() != known.backend) continue;
    if (!c.platform().empty()) {
      if (c.platform() == known.platform) return &known;
      continue;
    }
    const std::string& file = c.default_model_filename();
    if (file == known.file || (file.empty() && has_version_with(dir, known.file))) return &known;
  }
  // TensorFlow has two platforms, distinguished by the model's files.
  const auto it = std::ranges::find_if(kKnownBackends, [&](const KnownBackend& known) {
    return c.backend() == known.backend && c.backend() != "tensorflow";
  });
  return it == std::end(kKnownBackends) ? nullptr : it;
}

// Fills in backend, platform and default file from each other, from the files of the versions, or
// from a name like "x.<backend>". Without any of these nothing changes.
void deduce_backend(const std::filesystem::path& dir, inference::ModelConfig& c) {
  if (c.platform() == "ensemble" || c.has_ensemble_scheduling()) return;
  if (const KnownBackend* known = known_backend(dir, c)) {
    c.set_backend(known->backend);
    if (c.platform().empty()) c.set_platform(known->platform);
    const bool is_script = c.backend() == "pytorch" && c.runtime() == "model.py";
    if (c.default_model_filename().empty() && !is_script) {
      c.set_default_model_filename(known->file);
    }
    return;
  }
  const size_t dot = c.name().find('.');
  const bool is_open = c.backend().empty() && c.platform().empty();
  if (!is_open || !c.default_model_filename().empty() || dot == std::string::npos) return;
  c.set_backend(c.name().substr(dot + 1));
  c.set_default_model_filename("model." + c.backend());
}

// Adds the defaults that the config endpoint shows.
void normalise(const UsableGpus& gpus, inference::ModelConfig& c) {
  if (c.version_policy().policy_choice_case() ==
      inference::ModelVersionPolicy::POLICY_CHOICE_NOT_SET) {
    c.mutable_version_policy()->mutable_latest()->set_num_versions(1);
  }
  if (c.has_ensemble_scheduling()) return;
  auto* optimization = c.mutable_optimization();
  if (!optimization->has_input_pinned_memory()) {
    optimization->mutable_input_pinned_memory()->set_enable(true);
  }
  if (!optimization->has_output_pinned_memory()) {
    optimization->mutable_output_pinned_memory()->set_enable(true);
  }
  if (c.has_dynamic_batching() && c.dynamic_batching().preferred_batch_size_size() == 0 &&
      c.max_batch_size() > 0) {
    c.mutable_dynamic_batching()->add_preferred_batch_size(c.max_batch_size());
  }
  if (c.has_sequence_batching()) {
    auto* sequences = c.mutable_sequence_batching();
    if (sequences->max_sequence_idle_microseconds() == 0) {
      sequences->set_max_sequence_idle_microseconds(kDefaultIdleUs);
    }
    if (sequences->has_oldest() && sequences->oldest().preferred_batch_size_size() == 0 &&
        c.max_batch_size() > 0) {
      sequences->mutable_oldest()->add_preferred_batch_size(c.max_batch_size());
    }
  }
  if (c.platform() == "ensemble") return;
  normalise_groups(gpus, c);
}

const TensorSpec* find(const std::vector<TensorSpec>& specs, std::string_view name) {
  const auto it = std::find_if(specs.begin(), specs.end(),
                               [&](const TensorSpec& spec) { return spec.name == name; });
  return it == specs.end() ? nullptr : &*it;
}

}  // namespace

const TensorSpec* ModelConfig::input(std::string_view tensor) const { return find(inputs, tensor); }

const TensorSpec* ModelConfig::output(std::string_view tensor) const {
  return find(outputs, tensor);
}

namespace {

StatusOr<std::string> json_of(const Parsed& parsed) {
  pb::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string printed;
  if (auto status = pb::util::MessageToJsonString(parsed.config, &printed, options); !status.ok()) {
    return invalid_argument("{}: {}", parsed.path, status.ToString());
  }
  return numbers_in_config_json(printed);
}

StatusOr<ModelConfig> finish(Parsed& parsed) {
  ModelConfig out;
  out.has_own_groups = parsed.config.instance_group_size() > 0;
  out.gpus = parsed.gpus;
  out.is_given = parsed.is_given;
  normalise(parsed.gpus, parsed.config);
  RETURN_IF_ERROR(fill_config(parsed, out));
  ASSIGN_OR_RETURN(out.json, json_of(parsed));
  out.proto = parsed.config.SerializeAsString();
  return out;
}

Status parse_again(const ModelConfig& config, Parsed& out) {
  out.gpus = config.gpus;
  out.is_given = config.is_given;
  if (out.config.ParseFromString(config.proto)) return ok();
  return internal_error("cannot read back a configuration");
}

Status parse_json_text(const std::string& text, inference::ModelConfig& out) {
  if (text.size() > kMaxModelConfigBytes) {
    return invalid_argument("Invalid config override: larger than {} bytes", kMaxModelConfigBytes);
  }
  pb::util::JsonParseOptions options;
  options.case_insensitive_enum_parsing = true;
  if (auto status = pb::util::JsonStringToMessage(text, &out, options); !status.ok()) {
    return invalid_argument("Invalid config override: {}", status.ToString());
  }
  return ok();
}

Status parse_source(const ConfigSource& source, Parsed& parsed) {
  parsed.path = source.path;
  parsed.gpus = source.gpus;
  parsed.is_given = source.is_given;
  return source.is_json ? parse_json_text(source.text, parsed.config)
                        : parse_text(source.text, parsed);
}

}  // namespace

StatusOr<RawConfig> parse_raw_config(const ConfigSource& source) {
  Parsed parsed;
  RETURN_IF_ERROR(parse_source(source, parsed));
  RawConfig out;
  for (const auto& agent : parsed.config.model_repository_agents().agents()) {
    out.agents.push_back({agent.name(), {agent.parameters().begin(), agent.parameters().end()}});
  }
  ASSIGN_OR_RETURN(out.json, json_of(parsed));
  return out;
}

StatusOr<ModelConfig> parse_model_config(const ConfigSource& source) {
  Parsed parsed;
  RETURN_IF_ERROR(parse_source(source, parsed));
  auto& config = parsed.config;
  if (config.name().empty() || source.is_mapped) config.set_name(source.model);
  deduce_backend(source.dir, config);
  ASSIGN_OR_RETURN(ModelConfig out, finish(parsed));
  if (out.name == source.model) return out;
  return invalid_argument(
      "unexpected directory name '{}' for model '{}', directory name must equal model name{}",
      source.model, out.name, parsed.where("name"));
}

StatusOr<ModelConfig> parse_model_config(std::string_view text, const std::string& path,
                                         const std::string& directory_name) {
  ASSIGN_OR_RETURN(ModelConfig config,
                   parse_model_config({std::string(text), false, path, directory_name, {}}));
  RETURN_IF_ERROR(config.problem());
  return config;
}

StatusOr<ModelConfig> adopt_preferred_groups(const ModelConfig& config,
                                             const std::vector<PreferredGroup>& preferred) {
  if (config.has_own_groups || preferred.empty()) return config;
  Parsed parsed;
  RETURN_IF_ERROR(parse_again(config, parsed));
  add_preferred_group(preferred, parsed.gpus, parsed.config);
  return finish(parsed);
}

StatusOr<ModelConfig> adopt_auto_complete(const ModelConfig& config, std::string_view json) {
  inference::ModelConfig completed;
  RETURN_IF_ERROR(parse_json_text(std::string(json), completed));
  Parsed parsed;
  RETURN_IF_ERROR(parse_again(config, parsed));
  parsed.is_given = true;
  auto& to = parsed.config;
  to.set_max_batch_size(completed.max_batch_size());
  to.mutable_input()->Swap(completed.mutable_input());
  to.mutable_output()->Swap(completed.mutable_output());
  if (completed.has_model_transaction_policy()) {
    *to.mutable_model_transaction_policy() = completed.model_transaction_policy();
  }
  if (to.scheduling_choice_case() == inference::ModelConfig::SCHEDULING_CHOICE_NOT_SET) {
    if (completed.has_dynamic_batching()) {
      *to.mutable_dynamic_batching() = completed.dynamic_batching();
    } else if (completed.has_sequence_batching()) {
      *to.mutable_sequence_batching() = completed.sequence_batching();
    }
  }
  return finish(parsed);
}

}  // namespace nereid::server
