// Files of a Hugging Face PEFT adapter: adapter_config.json and tensors.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "io/checkpoint.h"
#include "runtime/adapters/adapter_builder.h"
#include "runtime/adapters/adapter_modules.h"

namespace nereid::runtime {

// rank_pattern and alpha_pattern in the file's order; the first matching key wins. A key matches
// the module of that name and those that end with "." + key; "^" + name matches that module only.
using Pattern = std::vector<std::pair<std::string, double>>;

struct PeftConfig {
  double rank = 0, alpha = 0;
  bool rank_stabilised = false;  // rsLoRA
  bool has_magnitudes = false;   // DoRA
  Pattern ranks, alphas;

  static double number_for(std::string_view module, const Pattern& pattern, double otherwise) {
    for (const auto& [key, number] : pattern) {
      const bool is_whole = key.starts_with('^');
      const std::string_view name = std::string_view(key).substr(is_whole ? 1 : 0);
      if (module == name || (!is_whole && module.ends_with("." + key))) return number;
    }
    return otherwise;
  }
  double rank_of(std::string_view module) const { return number_for(module, ranks, rank); }
  double scale_of(std::string_view module) const {
    const double r = rank_of(module);
    return number_for(module, alphas, alpha) / (rank_stabilised ? std::sqrt(r) : r);
  }
};

// The two matrices of a module; DoRA: magnitudes [n].
struct PeftPair {
  const io::StoredTensor* a = nullptr;
  const io::StoredTensor* b = nullptr;
  const io::StoredTensor* magnitudes = nullptr;
};

struct PeftFiles {
  PeftConfig config;
  io::TensorFile tensors;
  std::map<std::string, PeftPair> pairs;                  // by module
  std::map<std::string, const io::StoredTensor*> copies;  // the model's matrices, by module
};

// Checks everything that does not depend on a model. InvalidArgument with file and field or tensor.
StatusOr<PeftFiles> open_peft_files(const ReadFolder& directory);

// adapter_config.json; its tensor file.
StatusOr<json::object> read_peft_config(const ReadFolder& directory);
StatusOr<io::TensorFile> open_peft_tensors(const ReadFolder& directory);

// InvalidArgument: a matrix of the pair is missing, or not 2-D.
Status check_peft_pair(const std::string& name, const PeftPair& pair);
// A pair of matrices of checked shapes in bf16. InvalidArgument: unsupported element type.
struct PeftMatrices {
  std::vector<BF16> a, b;
};
StatusOr<PeftMatrices> read_peft_pair(const PeftPair& pair);

// Whether a module names tensors with all experts of a layer (target_parameters).
bool names_all_experts(std::string_view module);

// Adds such a module. InvalidArgument with the module and the shapes.
Status add_peft_experts(const std::string& name, const PeftPair& pair, const PeftConfig& config,
                        const AdapterBounds& bounds, const AdapterModules& modules,
                        AdapterBuilder& builder);

}  // namespace nereid::runtime
