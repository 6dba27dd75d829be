// Adapters as Hugging Face PEFT writes them: adapter_config.json and a file of tensors. Source:
// peft/tuners/lora/config.py and peft/tuners/lora/layer.py of github.com/huggingface/peft.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "io/checkpoint.h"
#include "io/numbers.h"
#include "kernels/api/op.h"
#include "runtime/adapter_builder.h"
#include "runtime/lora_module_names.h"

namespace nereid::runtime {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";

// Fields that change what is computed; each may be missing, null, false or empty.
constexpr std::string_view kOnlyWithout[] = {"use_qalora",
                                             "use_bdlora",
                                             "lora_bias",
                                             "modules_to_save",
                                             "layer_replication",
                                             "target_parameters",
                                             "trainable_token_indices",
                                             "ensure_weight_tying",
                                             "arrow_config",
                                             "monteclora_config",
                                             "alora_invocation_tokens"};

// How init_lora_weights begins where the adapter was taken out of the model's own matrices: it is
// meant for what was left of them, which PEFT makes again.
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

// rank_pattern and alpha_pattern: the module that ends with the key has the number.
using Pattern = std::map<std::string, double>;

struct PeftConfig {
  double rank = 0, alpha = 0;
  bool rank_stabilised = false;  // rsLoRA
  bool has_magnitudes = false;   // DoRA
  Pattern ranks, alphas;

  static double number_for(std::string_view module, const Pattern& pattern, double otherwise) {
    for (const auto& [key, number] : pattern)
      if (module == key || module.ends_with("." + key)) return number;
    return otherwise;
  }
  double rank_of(std::string_view module) const { return number_for(module, ranks, rank); }
  double scale_of(std::string_view module) const {
    const double r = rank_of(module);
    return number_for(module, alphas, alpha) / (rank_stabilised ? std::sqrt(r) : r);
  }
};

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
    if (std::string_view(key).find_first_not_of(kPlain) != std::string_view::npos)
      return invalid_argument("'{}': '{}' is a pattern; only names of modules are supported", field,
                              std::string_view(key));
    ASSIGN_OR_RETURN(pattern[std::string(key)], read_number(v->get_object(), key));
  }
  return pattern;
}

StatusOr<PeftConfig> read_config(const json::value& value) {
  const json::object* const object = value.if_object();
  if (!object) return invalid_argument("is not an object");
  const auto text = [&](std::string_view field, std::string_view allowed) -> Status {
    const json::value* const v = object->if_contains(field);
    if (!v || v->is_null() || (v->is_string() && v->get_string() == allowed)) return ok();
    return invalid_argument("'{}': {} is not supported; only \"{}\" is", field,
                            json::serialize(*v).substr(0, 60), allowed);
  };
  RETURN_IF_ERROR(text("peft_type", "LORA"));
  RETURN_IF_ERROR(text("bias", "none"));
  for (const std::string_view field : kOnlyWithout)
    if (const json::value* v = object->if_contains(field); v && !says_nothing(*v))
      return invalid_argument("'{}': {} is not supported", field,
                              json::serialize(*v).substr(0, 60));
  RETURN_IF_ERROR(check_beginning(*object));
  PeftConfig config;
  ASSIGN_OR_RETURN(config.rank, read_number(*object, "r"));
  ASSIGN_OR_RETURN(config.alpha, read_number(*object, "lora_alpha"));
  ASSIGN_OR_RETURN(config.ranks, read_pattern(*object, "rank_pattern"));
  ASSIGN_OR_RETURN(config.alphas, read_pattern(*object, "alpha_pattern"));
  const auto is_set = [&](std::string_view field) {
    const json::value* const v = object->if_contains(field);
    return v && v->is_bool() && v->get_bool();
  };
  config.rank_stabilised = is_set("use_rslora");
  config.has_magnitudes = is_set("use_dora");
  return config;
}

std::vector<BF16> rounded(const std::vector<float>& numbers) {
  std::vector<BF16> out;
  out.reserve(numbers.size());
  for (const float x : numbers) out.push_back(to_bf16(x));
  return out;
}

// The two matrices of a module, and of DoRA the lengths of its rows [n].
struct Pair {
  const io::StoredTensor* a = nullptr;
  const io::StoredTensor* b = nullptr;
  const io::StoredTensor* magnitudes = nullptr;
};

// "base_model.model." <module> ".lora_A" [".default"] ".weight".
Status sort_tensor(const io::StoredTensor& tensor, std::map<std::string, Pair>& pairs) {
  std::string_view name = tensor.name;
  for (const auto& [ending, member] :
       {std::pair(".lora_A.weight", &Pair::a), std::pair(".lora_B.weight", &Pair::b),
        std::pair(".lora_A.default.weight", &Pair::a),
        std::pair(".lora_B.default.weight", &Pair::b),
        std::pair(".lora_magnitude_vector", &Pair::magnitudes),
        std::pair(".lora_magnitude_vector.weight", &Pair::magnitudes),
        std::pair(".lora_magnitude_vector.default.weight", &Pair::magnitudes)}) {
    if (!name.ends_with(ending) || !name.starts_with(kPrefix)) continue;
    name.remove_suffix(std::string_view(ending).size());
    name.remove_prefix(kPrefix.size());
    pairs[std::string(name)].*member = &tensor;
    return ok();
  }
  return invalid_argument("tensor '{}' is none of a LoRA adapter of products", tensor.name);
}

// The engine's module, whose name in the checkpoint may lack what stands in front.
StatusOr<int32_t> find_module(std::string_view name, const AdapterBounds& bounds) {
  for (size_t i = 0; i < bounds.modules.size(); ++i) {
    const std::string& own = bounds.modules[i].name;
    if (name == own || name.ends_with("." + own)) return static_cast<int32_t>(i);
  }
  return invalid_argument("module '{}' is none that this model's adapters may change; it has {}",
                          name, bounds.modules.size());
}

// Of DoRA: the lengths that rows shall have by those that they have; else none.
StatusOr<std::vector<float>> factors_of(const std::string& name, const Pair& pair,
                                        const PeftConfig& config, const AdapterBounds& bounds,
                                        const ChangedWeight& weight) {
  const bool has_magnitudes = pair.magnitudes != nullptr;
  if (has_magnitudes != config.has_magnitudes)
    return invalid_argument("module '{}' has {}lora_magnitude_vector, but 'use_dora' is {}", name,
                            has_magnitudes ? "" : "no ", config.has_magnitudes);
  if (!has_magnitudes) return std::vector<float>();
  const int64_t n = bounds.modules[static_cast<size_t>(weight.module)].n;
  if (pair.magnitudes->shape != std::vector{n})
    return invalid_argument("module '{}': lora_magnitude_vector {} is not [{}]", name,
                            pair.magnitudes->shape_text(), n);
  if (!bounds.base) return invalid_argument("module '{}': DoRA needs the model's weights", name);
  ASSIGN_OR_RETURN(std::vector<float> factors, io::numbers_of(*pair.magnitudes));
  const std::vector<float> lengths = bounds.base->row_lengths(weight);
  for (size_t i = 0; i < factors.size(); ++i) factors[i] /= lengths[i];
  return factors;
}

Status add_module(const std::string& name, const Pair& pair, const PeftConfig& config,
                  const AdapterBounds& bounds, AdapterBuilder& builder) {
  if (!pair.a || !pair.b)
    return invalid_argument("module '{}' has no lora_{}", name, pair.a ? "B" : "A");
  ASSIGN_OR_RETURN(const int32_t module, find_module(name, bounds));
  const io::AdapterModule& m = bounds.modules[static_cast<size_t>(module)];
  const int64_t rank = pair.a->shape.empty() ? 0 : pair.a->shape[0];
  RETURN_IF_ERROR(builder.check_rank(name, rank));
  if (pair.a->shape != std::vector{rank, m.k} || pair.b->shape != std::vector{m.n, rank})
    return invalid_argument("module '{}': A {} and B {} are not [rank, {}] and [{}, rank]", name,
                            pair.a->shape_text(), pair.b->shape_text(), m.k, m.n);
  if (static_cast<double>(rank) != config.rank_of(name))
    return invalid_argument("module '{}': rank {}, but adapter_config.json says {}", name, rank,
                            config.rank_of(name));
  ASSIGN_OR_RETURN(const std::vector<float> numbers_of_a, io::numbers_of(*pair.a));
  ASSIGN_OR_RETURN(const std::vector<float> numbers_of_b, io::numbers_of(*pair.b));
  std::vector<BF16> a = rounded(numbers_of_a);
  const std::vector<BF16> b = rounded(numbers_of_b);
  const double scale = config.scale_of(name);
  ASSIGN_OR_RETURN(
      const std::vector<float> factors,
      factors_of(name, pair, config, bounds, {module, static_cast<float>(scale), a, b}));
  return builder.add(module, rank, scale, std::move(a), b, factors);
}

// A row of TensorRT-LLM's two tensors: `a`, then `b` with the scale.
struct ConvertedRow {
  int32_t module = 0, layer = 0, rank = 0;
  std::vector<float> weights;
};

StatusOr<ConvertedRow> convert_module(const std::string& name, const Pair& pair,
                                      const PeftConfig& config) {
  if (!pair.a || !pair.b)
    return invalid_argument("module '{}' has no lora_{}", name, pair.a ? "B" : "A");
  const auto id = lora_module_of(name);
  if (!id) return invalid_argument("module '{}' is none that TensorRT-LLM has a number for", name);
  const auto &a_shape = pair.a->shape, &b_shape = pair.b->shape;
  if (a_shape.size() != 2 || b_shape.size() != 2 || a_shape[0] != b_shape[1] || a_shape[0] < 1 ||
      a_shape[0] > kernels::kMaxAdapterRank)
    return invalid_argument("module '{}': A {} and B {} are not [rank, k] and [n, rank]", name,
                            pair.a->shape_text(), pair.b->shape_text());
  ConvertedRow row{id->id, id->layer, static_cast<int32_t>(a_shape[0])};
  ASSIGN_OR_RETURN(row.weights, io::numbers_of(*pair.a));
  ASSIGN_OR_RETURN(const std::vector<float> b, io::numbers_of(*pair.b));
  const auto scale = static_cast<float>(config.scale_of(name));
  for (const float x : b) row.weights.push_back(x * scale);
  return row;
}

// The files of a directory, checked as far as that is possible without a model.
struct PeftFiles {
  PeftConfig config;
  io::TensorFile tensors;
  std::map<std::string, Pair> pairs;  // by module
};

StatusOr<PeftFiles> open_files(const std::filesystem::path& directory) {
  const auto config_path = directory / "adapter_config.json";
  ASSIGN_OR_RETURN(const json::value json, read_json_file(config_path));
  const StatusOr<PeftConfig> config = read_config(json);
  if (!config.ok()) return annotate(config.status(), config_path.string());
  auto path = directory / "adapter_model.safetensors";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) path.replace_extension(".bin");
  ASSIGN_OR_RETURN(io::TensorFile file, io::TensorFile::open(path));
  PeftFiles files{*config, std::move(file), {}};
  for (const io::StoredTensor& tensor : files.tensors.tensors())
    if (Status status = sort_tensor(tensor, files.pairs); !status.ok())
      return annotate(status, path.string());
  if (files.pairs.empty()) return invalid_argument("{}: holds no matrices", path.string());
  return files;
}

}  // namespace

StatusOr<std::shared_ptr<const Adapter>> read_peft_adapter(const LoraDirectory& directory,
                                                           const AdapterBounds& bounds) {
  ASSIGN_OR_RETURN(const PeftFiles files, open_files(directory.path));
  AdapterBuilder builder(bounds);
  for (const auto& [name, pair] : files.pairs)
    if (Status status = add_module(name, pair, files.config, bounds, builder); !status.ok())
      return annotate(status, directory.path.string());
  return builder.finish(directory.task_id);
}

StatusOr<LoraConfig> convert_peft_adapter(const std::filesystem::path& directory) {
  ASSIGN_OR_RETURN(const PeftFiles files, open_files(directory));
  if (files.config.has_magnitudes)
    return invalid_argument(
        "{}: 'use_dora': true is not supported here: the tensors depend on the model's weights; "
        "name the directory in lora_modules",
        directory.string());
  std::vector<ConvertedRow> rows;
  size_t length = 0;
  for (const auto& [name, pair] : files.pairs) {
    auto row = convert_module(name, pair, files.config);
    if (!row.ok()) return annotate(row.status(), directory.string());
    length = std::max(length, row->weights.size());
    rows.push_back(*std::move(row));
  }
  LoraConfig out;
  for (ConvertedRow& row : rows) {
    row.weights.resize(length);
    out.weights.insert(out.weights.end(), row.weights.begin(), row.weights.end());
    out.config.insert(out.config.end(), {row.module, row.layer, row.rank});
  }
  return out;
}

}  // namespace nereid::runtime
