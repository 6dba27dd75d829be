// Adapters as Hugging Face PEFT writes them: adapter_config.json and a file of tensors. Source:
// peft/tuners/lora/config.py and peft/tuners/lora/layer.py of github.com/huggingface/peft.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "io/checkpoint.h"
#include "runtime/adapter_builder.h"

namespace nereid::runtime {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";

// Fields that change what is computed; each may be missing, null, false or empty.
constexpr std::string_view kOnlyWithout[] = {"use_dora",
                                             "use_qalora",
                                             "use_bdlora",
                                             "lora_bias",
                                             "modules_to_save",
                                             "layer_replication",
                                             "target_parameters",
                                             "trainable_token_indices",
                                             "alora_invocation_tokens"};

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
  PeftConfig config;
  ASSIGN_OR_RETURN(config.rank, read_number(*object, "r"));
  ASSIGN_OR_RETURN(config.alpha, read_number(*object, "lora_alpha"));
  ASSIGN_OR_RETURN(config.ranks, read_pattern(*object, "rank_pattern"));
  ASSIGN_OR_RETURN(config.alphas, read_pattern(*object, "alpha_pattern"));
  if (const json::value* v = object->if_contains("use_rslora"))
    config.rank_stabilised = v->is_bool() && v->get_bool();
  return config;
}

StatusOr<std::vector<BF16>> numbers_of(const io::StoredTensor& tensor) {
  std::vector<BF16> numbers;
  const auto read = [&]<class T>(T) {
    for (size_t i = 0; i + sizeof(T) <= tensor.data.size(); i += sizeof(T)) {
      T x;
      std::memcpy(&x, tensor.data.data() + i, sizeof(T));
      if constexpr (std::is_same_v<T, BF16>)
        numbers.push_back(x);
      else if constexpr (std::is_same_v<T, F16>)
        numbers.push_back(to_bf16(to_float(x)));
      else
        numbers.push_back(to_bf16(x));
    }
  };
  if (tensor.type == DType::kBF16)
    read(BF16());
  else if (tensor.type == DType::kF16)
    read(F16());
  else if (tensor.type == DType::kF32)
    read(float());
  else
    return invalid_argument("type {} is not one of BF16, F16, F32", tensor.dtype);
  return numbers;
}

// The two matrices of a module.
struct Pair {
  const io::StoredTensor* a = nullptr;
  const io::StoredTensor* b = nullptr;
};

// "base_model.model." <module> ".lora_A" [".default"] ".weight".
Status sort_tensor(const io::StoredTensor& tensor, std::map<std::string, Pair>& pairs) {
  std::string_view name = tensor.name;
  for (const auto& [ending, member] :
       {std::pair(".lora_A.weight", &Pair::a), std::pair(".lora_B.weight", &Pair::b),
        std::pair(".lora_A.default.weight", &Pair::a),
        std::pair(".lora_B.default.weight", &Pair::b)}) {
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
  ASSIGN_OR_RETURN(std::vector<BF16> a, numbers_of(*pair.a));
  ASSIGN_OR_RETURN(const std::vector<BF16> b, numbers_of(*pair.b));
  return builder.add(module, rank, config.scale_of(name), std::move(a), b);
}

}  // namespace

StatusOr<std::shared_ptr<const Adapter>> read_peft_adapter(const LoraDirectory& directory,
                                                           const AdapterBounds& bounds) {
  const auto config_path = directory.path / "adapter_config.json";
  ASSIGN_OR_RETURN(const json::value json, read_json_file(config_path));
  const StatusOr<PeftConfig> config = read_config(json);
  if (!config.ok()) return annotate(config.status(), config_path.string());
  auto path = directory.path / "adapter_model.safetensors";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) path.replace_extension(".bin");
  ASSIGN_OR_RETURN(const io::TensorFile file, io::TensorFile::open(path));
  const auto build = [&]() -> StatusOr<std::shared_ptr<const Adapter>> {
    std::map<std::string, Pair> pairs;
    for (const io::StoredTensor& tensor : file.tensors())
      RETURN_IF_ERROR(sort_tensor(tensor, pairs));
    AdapterBuilder builder(bounds);
    for (const auto& [name, pair] : pairs)
      RETURN_IF_ERROR(add_module(name, pair, *config, bounds, builder));
    if (builder.empty()) return invalid_argument("holds no matrices");
    return builder.finish(directory.task_id);
  };
  auto adapter = build();
  if (!adapter.ok()) return annotate(adapter.status(), path.string());
  return adapter;
}

}  // namespace nereid::runtime
