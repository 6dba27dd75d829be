// Source: peft/tuners/lora/config.py and peft/tuners/lora/layer.py of github.com/huggingface/peft.
#include "runtime/adapters/peft_files.h"

#include <utility>

#include "base/json.h"
#include "base/json_members.h"
#include "io/numbers.h"

namespace nereid::runtime {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kPeftConfig = "adapter_config.json";

// Fields that change the computation; each must be absent, null, false or empty.
constexpr std::string_view kOnlyWithout[] = {"use_qalora",
                                             "use_bdlora",
                                             "lora_bias",
                                             "modules_to_save",
                                             "layer_replication",
                                             "trainable_token_indices",
                                             "ensure_weight_tying",
                                             "arrow_config",
                                             "kasa_config",
                                             "monteclora_config",
                                             "alora_invocation_tokens"};

// Prefixes of init_lora_weights for adapters split off from the model's matrices: they need the
// remaining matrices, which PEFT recomputes.
constexpr std::string_view kTakenOut[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};

Status check_beginning(const json::object& object) {
  const json::value* const v = object.if_contains("init_lora_weights");
  if (!v || !v->is_string()) return ok();
  const std::string_view text = v->get_string();
  for (const std::string_view method : kTakenOut)
    if (text.starts_with(method))
      return invalid_argument(
          "'init_lora_weights': \"{}\" is not supported, since the model's own matrices change "
          "with "
          "it; save the adapter converted (path_initial_model_for_weight_conversion)",
          text.substr(0, 60));
  return ok();
}

bool says_nothing(const json::value& v) {
  if (v.is_null()) return true;
  if (v.is_bool()) return !v.get_bool();
  if (v.is_array()) return v.get_array().empty();
  if (v.is_object()) return v.get_object().empty();
  return v.is_string() && v.get_string().empty();
}

StatusOr<double> read_number(const json::object& object, std::string_view field) {
  const json::value* const v = object.if_contains(field);
  if (!v || !v->is_number()) return invalid_argument("'{}' is not a number", field);
  const auto number = v->to_number<double>();
  if (!std::isfinite(number) || number <= 0)
    return invalid_argument("'{}': {} is not positive", field, number);
  return number;
}

StatusOr<Pattern> read_pattern(const json::object& object, std::string_view field) {
  Pattern pattern;
  const json::value* const v = object.if_contains(field);
  if (!v || v->is_null()) return pattern;
  if (!v->is_object()) return invalid_argument("'{}' is not an object", field);
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
  for (const auto& [key, value] : v->get_object()) {
    const std::string_view name = std::string_view(key).substr(key.starts_with('^') ? 1 : 0);
    if (name.empty() || name.find_first_not_of(kPlain) != std::string_view::npos)
      return invalid_argument(
          "'{}': '{}' is a pattern; only names of modules are supported, with '^' in front of a "
          "whole name",
          field, std::string_view(key));
    ASSIGN_OR_RETURN(const double number, read_number(v->get_object(), key));
    pattern.emplace_back(key, number);
  }
  return pattern;
}

StatusOr<PeftConfig> read_config(const json::object& fields) {
  const auto text = [&](std::string_view field, std::string_view allowed) -> Status {
    const json::value* const v = fields.if_contains(field);
    if (!v || v->is_null() || (v->is_string() && v->get_string() == allowed)) return ok();
    return invalid_argument("'{}': {} is not supported; only \"{}\" is", field,
                            json::serialize(*v).substr(0, 60), allowed);
  };
  RETURN_IF_ERROR(text("peft_type", "LORA"));
  RETURN_IF_ERROR(text("bias", "none"));
  for (const std::string_view field : kOnlyWithout)
    if (const json::value* v = fields.if_contains(field); v && !says_nothing(*v))
      return invalid_argument("'{}': {} is not supported", field,
                              json::serialize(*v).substr(0, 60));
  RETURN_IF_ERROR(check_beginning(fields));
  PeftConfig config;
  ASSIGN_OR_RETURN(config.rank, read_number(fields, "r"));
  ASSIGN_OR_RETURN(config.alpha, read_number(fields, "lora_alpha"));
  ASSIGN_OR_RETURN(config.ranks, read_pattern(fields, "rank_pattern"));
  ASSIGN_OR_RETURN(config.alphas, read_pattern(fields, "alpha_pattern"));
  config.rank_stabilised = flag_member(fields, "use_rslora");
  config.has_magnitudes = flag_member(fields, "use_dora");
  return config;
}

// Tensor names: "base_model.model." <module> ".lora_A" [".default"] ".weight"; of an embedding
// ".lora_embedding_A" [".default"]; ".weight": model matrix, saved with embedding adapters.
Status sort_tensor(const io::StoredTensor& tensor, PeftFiles& files) {
  std::string_view name = tensor.name;
  for (const auto& [ending, member] :
       {std::pair(".lora_A.weight", &PeftPair::a), std::pair(".lora_B.weight", &PeftPair::b),
        std::pair(".lora_A.default.weight", &PeftPair::a),
        std::pair(".lora_B.default.weight", &PeftPair::b),
        std::pair(".lora_embedding_A", &PeftPair::a), std::pair(".lora_embedding_B", &PeftPair::b),
        std::pair(".lora_embedding_A.default", &PeftPair::a),
        std::pair(".lora_embedding_B.default", &PeftPair::b),
        std::pair(".lora_magnitude_vector", &PeftPair::magnitudes),
        std::pair(".lora_magnitude_vector.weight", &PeftPair::magnitudes),
        std::pair(".lora_magnitude_vector.default.weight", &PeftPair::magnitudes)}) {
    if (!name.ends_with(ending) || !name.starts_with(kPrefix)) continue;
    name.remove_suffix(std::string_view(ending).size());
    name.remove_prefix(kPrefix.size());
    const io::StoredTensor*& place = files.pairs[std::string(name)].*member;
    if (place)
      return invalid_argument("tensors '{}' and '{}' are for the same matrix", place->name,
                              tensor.name);
    place = &tensor;
    return ok();
  }
  for (const std::string_view ending : {".base_layer.weight", ".weight"})
    if (name.ends_with(ending) && name.starts_with(kPrefix) &&
        name.find(".lora_") == std::string_view::npos) {
      name.remove_suffix(ending.size());
      name.remove_prefix(kPrefix.size());
      files.copies[std::string(name)] = &tensor;
      return ok();
    }
  return invalid_argument("tensor '{}' does not belong to a LoRA adapter of products", tensor.name);
}

}  // namespace

StatusOr<json::object> read_peft_config(const ReadFolder& directory) {
  constexpr size_t kMaxBytes = size_t{4} << 20;
  ASSIGN_OR_RETURN(OpenFile file, directory.open(kPeftConfig));
  const std::string path = file.path().string();
  ASSIGN_OR_RETURN(const std::string text, read_file(std::move(file), kMaxBytes));
  StatusOr<json::value> value = parse_json(text);
  if (!value.ok()) return annotate(value.status(), path);
  if (!value->is_object()) return invalid_argument("{}: is not an object", path);
  return std::move(value->get_object());
}

StatusOr<io::TensorFile> open_peft_tensors(const ReadFolder& directory) {
  constexpr std::string_view kUsual = "adapter_model.safetensors";
  ASSIGN_OR_RETURN(const OpenFile file,
                   directory.open(directory.has(kUsual) ? kUsual : "adapter_model.bin"));
  return io::TensorFile::open(file);
}

StatusOr<PeftFiles> open_peft_files(const ReadFolder& directory) {
  ASSIGN_OR_RETURN(const json::object json, read_peft_config(directory));
  const StatusOr<PeftConfig> config = read_config(json);
  if (!config.ok()) return annotate(config.status(), (directory.path() / kPeftConfig).string());
  ASSIGN_OR_RETURN(io::TensorFile file, open_peft_tensors(directory));
  const std::string path = file.path().string();
  PeftFiles files{*config, std::move(file), {}, {}};
  for (const io::StoredTensor& tensor : files.tensors.tensors())
    if (Status status = sort_tensor(tensor, files); !status.ok()) return annotate(status, path);
  if (files.pairs.empty()) return invalid_argument("{}: holds no matrices", path);
  return files;
}

Status check_peft_pair(const std::string& name, const PeftPair& pair) {
  if (!pair.a || !pair.b)
    return invalid_argument("module '{}' has no lora_{}", name, pair.a ? "B" : "A");
  for (const io::StoredTensor* tensor : {pair.a, pair.b})
    if (tensor->shape.size() != 2)
      return invalid_argument("tensor '{}' {} is not a matrix", tensor->name, tensor->shape_text());
  return ok();
}

StatusOr<PeftMatrices> read_peft_pair(const PeftPair& pair) {
  const auto read = [](const io::StoredTensor& tensor) -> StatusOr<std::vector<BF16>> {
    ASSIGN_OR_RETURN(const std::vector<float> numbers, io::numbers_of(tensor));
    std::vector<BF16> rounded;
    rounded.reserve(numbers.size());
    for (const float x : numbers) rounded.push_back(to_bf16(x));
    return rounded;
  };
  PeftMatrices matrices;
  ASSIGN_OR_RETURN(matrices.a, read(*pair.a));
  ASSIGN_OR_RETURN(matrices.b, read(*pair.b));
  return matrices;
}

}  // namespace nereid::runtime
