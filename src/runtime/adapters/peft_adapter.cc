// Adapters in the format of Hugging Face PEFT, and their conversion as by hf_lora_convert.py.
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "io/numbers.h"
#include "kernels/api/op.h"
#include "runtime/adapters/peft_files.h"

namespace nereid::runtime {
namespace {

// Name suffixes of the adaptable matrices: "q_proj, k_proj, ...".
std::string kinds_of(std::span<const io::AdapterModule> modules) {
  constexpr size_t kMost = 24;
  std::vector<std::string_view> kinds;
  for (const io::AdapterModule& m : modules) {
    const std::string_view kind = std::string_view(m.source).substr(m.source.rfind('.') + 1);
    if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
    if (kinds.size() == kMost) break;
  }
  return fmt::format("{}", fmt::join(kinds, ", "));
}

StatusOr<std::span<const int32_t>> find_modules(std::string_view name, const AdapterBounds& bounds,
                                                const AdapterModules& modules) {
  if (const auto found = modules.find(name); !found.empty()) return found;
  return invalid_argument(
      "module '{}' cannot have an adapter in this model; {} modules can, among them {}", name,
      bounds.modules.size(), kinds_of(bounds.modules));
}

// DoRA: magnitudes [n] of a matrix [n, k]; empty: none.
StatusOr<std::vector<float>> magnitudes_of(const std::string& name, const PeftPair& pair,
                                           const PeftConfig& config, const AdapterBounds& bounds,
                                           const io::AdapterModule& m) {
  const bool has_magnitudes = pair.magnitudes != nullptr;
  if (has_magnitudes != config.has_magnitudes)
    return invalid_argument("module '{}' has {}lora_magnitude_vector, but 'use_dora' is {}", name,
                            has_magnitudes ? "" : "no ", config.has_magnitudes);
  if (!has_magnitudes) return std::vector<float>();
  const auto module = static_cast<int32_t>(&m - bounds.modules.data());
  if (m.of_tokens || (bounds.base && !bounds.base->is_product(module)))
    return invalid_argument("module '{}': DoRA of embeddings and experts is not supported", name);
  if (pair.magnitudes->shape != std::vector{m.num_source_rows()})
    return invalid_argument("module '{}': lora_magnitude_vector {} is not [{}]", name,
                            pair.magnitudes->shape_text(), m.num_source_rows());
  if (!bounds.base) return invalid_argument("module '{}': DoRA needs the model's weights", name);
  return io::numbers_of(*pair.magnitudes);
}

// Adds one of the modules made of the pair's matrix.
Status add_part(int32_t module, double scale, const PeftMatrices& matrices,
                const std::vector<float>& magnitudes, const AdapterBounds& bounds,
                AdapterBuilder& builder) {
  const io::AdapterModule& m = bounds.modules[static_cast<size_t>(module)];
  const int64_t rank = std::ssize(matrices.a) / m.k;
  const std::vector<BF16> b = rows_of(m, std::span(matrices.b), rank);
  std::vector<float> factors;  // magnitude / norm of the row
  if (!magnitudes.empty()) {
    factors = rows_of(m, std::span(magnitudes), 1);
    const std::vector<float> lengths =
        bounds.base->row_lengths({module, static_cast<float>(scale), matrices.a, b});
    for (size_t i = 0; i < factors.size(); ++i) factors[i] /= lengths[i];
  }
  return builder.add(module, rank, scale, matrices.a, b, factors);
}

Status add_module(const std::string& name, const PeftPair& pair, const PeftConfig& config,
                  const AdapterBounds& bounds, const AdapterModules& modules,
                  AdapterBuilder& builder) {
  if (names_all_experts(name))
    return add_peft_experts(name, pair, config, bounds, modules, builder);
  RETURN_IF_ERROR(check_peft_pair(name, pair));
  ASSIGN_OR_RETURN(const auto parts, find_modules(name, bounds, modules));
  const io::AdapterModule& m = bounds.modules[static_cast<size_t>(parts[0])];
  const int64_t rank = pair.a->shape[0], n = m.num_source_rows();
  RETURN_IF_ERROR(builder.check_rank(name, rank));
  if (pair.a->shape != std::vector{rank, m.k} || pair.b->shape != std::vector{n, rank})
    return invalid_argument("module '{}': A {} and B {} are not [rank, {}] and [{}, rank]", name,
                            pair.a->shape_text(), pair.b->shape_text(), m.k, n);
  if (static_cast<double>(rank) != config.rank_of(name))
    return invalid_argument("module '{}': rank {}, but adapter_config.json says {}", name, rank,
                            config.rank_of(name));
  ASSIGN_OR_RETURN(const std::vector<float> magnitudes,
                   magnitudes_of(name, pair, config, bounds, m));
  ASSIGN_OR_RETURN(const PeftMatrices matrices, read_peft_pair(pair));
  for (const int32_t part : parts)
    RETURN_IF_ERROR(add_part(part, config.scale_of(name), matrices, magnitudes, bounds, builder));
  return ok();
}

// A whole matrix in an adapter must equal the model's.
Status check_copy(const std::string& name, const io::StoredTensor& tensor,
                  const AdapterBounds& bounds, const AdapterModules& modules) {
  ASSIGN_OR_RETURN(const auto parts, find_modules(name, bounds, modules));
  const auto is_equal = [&](int32_t part) { return bounds.base->equals(part, tensor); };
  if (bounds.base && std::ranges::all_of(parts, is_equal)) return ok();
  return invalid_argument(
      "tensor '{}' {} is not what the model has as '{}'; whole matrices are not supported (PEFT's "
      "modules_to_save; save_embedding_layers=False leaves out an embedding that did not change)",
      tensor.name, tensor.shape_text(), name);
}

// A row of TensorRT-LLM's two tensors: `a`, then `b` with the scale; experts: all a, then all b.
struct ConvertedRow {
  int32_t rank = 0;
  std::vector<std::string> names;  // of one module, or of the experts 0, 1, ...
  std::vector<float> a, b;
};
using ConvertedRows = std::map<LoraModuleId, ConvertedRow>;

Status convert_module(const LoraModuleId& id, const std::string& name, const PeftPair& pair,
                      const PeftConfig& config, ConvertedRows& rows) {
  if (!pair.a || !pair.b)
    return invalid_argument("module '{}' has no lora_{}", name, pair.a ? "B" : "A");
  const auto &a_shape = pair.a->shape, &b_shape = pair.b->shape;
  if (a_shape.size() != 2 || b_shape.size() != 2 || a_shape[0] != b_shape[1] || a_shape[0] < 1 ||
      a_shape[0] > kernels::kMaxAdapterRank)
    return invalid_argument("module '{}': A {} and B {} are not [rank, k] and [n, rank]", name,
                            pair.a->shape_text(), pair.b->shape_text());
  ConvertedRow& row = rows[{id.id, id.layer}];
  const size_t expert = row.names.size(), a_size = row.a.size(), b_size = row.b.size();
  if (expert > 0 && (id.expert != static_cast<int32_t>(expert) || row.rank != a_shape[0]))
    return invalid_argument(
        "module '{}' comes after '{}'; all experts of a layer have adapters of one rank here", name,
        row.names.back());
  row.rank = static_cast<int32_t>(a_shape[0]);
  row.names.push_back(name);
  ASSIGN_OR_RETURN(const std::vector<float> a, io::numbers_of(*pair.a));
  ASSIGN_OR_RETURN(const std::vector<float> b, io::numbers_of(*pair.b));
  const auto scale = static_cast<float>(config.scale_of(name));
  row.a.insert(row.a.end(), a.begin(), a.end());
  for (const float x : b) row.b.push_back(x * scale);
  if (expert > 0 && (a_size != expert * a.size() || b_size != expert * b.size()))
    return invalid_argument("module '{}': A {} and B {} are not those of expert 0", name,
                            pair.a->shape_text(), pair.b->shape_text());
  return ok();
}

StatusOr<ConvertedRows> convert_modules(const PeftFiles& files) {
  std::map<LoraModuleId, const std::string*> names;  // experts in numerical order
  for (const auto& [name, pair] : files.pairs) {
    const auto id = lora_module_of(name);
    if (!id) return invalid_argument("module '{}' has no TensorRT-LLM module number", name);
    if (!names.emplace(*id, &name).second)
      return invalid_argument("modules '{}' and '{}' have the same number", *names[*id], name);
  }
  ConvertedRows rows;
  for (const auto& [id, name] : names) {
    if (id.expert > 0 && !names.contains({id.id, id.layer, id.expert - 1}))
      return invalid_argument("module '{}': the expert before it has no adapter", *name);
    RETURN_IF_ERROR(convert_module(id, *name, files.pairs.at(*name), files.config, rows));
  }
  return rows;
}

}  // namespace

StatusOr<std::shared_ptr<const Adapter>> read_peft_adapter(const LoraDirectory& directory,
                                                           const AdapterBounds& bounds) {
  ASSIGN_OR_RETURN(const PeftFiles files, open_peft_files({directory.path, directory.root}));
  const AdapterModules modules(bounds.modules);
  AdapterBuilder builder(bounds);
  for (const auto& [name, pair] : files.pairs)
    if (Status status = add_module(name, pair, files.config, bounds, modules, builder);
        !status.ok())
      return annotate(status, directory.path.string());
  for (const auto& [name, tensor] : files.copies)
    if (Status status = check_copy(name, *tensor, bounds, modules); !status.ok())
      return annotate(status, directory.path.string());
  if (files.tensors.is_lost())
    return invalid_argument("{}: became smaller while it was read", files.tensors.path().string());
  return builder.finish(directory.task_id);
}

StatusOr<LoraConfig> convert_peft_adapter(const std::filesystem::path& directory) {
  ASSIGN_OR_RETURN(const PeftFiles files, open_peft_files(directory));
  if (files.config.has_magnitudes)
    return invalid_argument(
        "{}: 'use_dora': true is not supported here: the tensors depend on the model's weights; "
        "name the directory in lora_modules",
        directory.string());
  if (!files.copies.empty())
    return invalid_argument(
        "{}: tensor '{}' is a matrix of the model and cannot be compared with it here; write "
        "the "
        "adapter with save_embedding_layers=False",
        directory.string(), files.copies.begin()->second->name);
  const StatusOr<ConvertedRows> rows = convert_modules(files);
  if (!rows.ok()) return annotate(rows.status(), directory.string());
  size_t length = 0;
  for (const auto& [id, row] : *rows) length = std::max(length, row.a.size() + row.b.size());
  LoraConfig out;
  for (const auto& [id, row] : *rows) {
    const size_t end = out.weights.size() + length;
    out.weights.insert(out.weights.end(), row.a.begin(), row.a.end());
    out.weights.insert(out.weights.end(), row.b.begin(), row.b.end());
    out.weights.resize(end);
    out.config.insert(out.config.end(), {id.id, id.layer, row.rank});
  }
  return out;
}

}  // namespace nereid::runtime
