// Adapters of tensors that have all experts of a layer, as PEFT writes those of target_parameters:
// under "<experts>", the first such tensor under "<experts>.base_layer". A has the experts one
// behind the other, each rank rows; column j * experts + e of B is the j-th of expert e. The widths
// determine which tensor is meant and which of the two reads the input. Source: ParamWrapper in
// peft/tuners/lora/layer.py of github.com/huggingface/peft.

#include "runtime/adapters/peft_files.h"

namespace nereid::runtime {
namespace {

constexpr std::string_view kNested = ".base_layer";

std::string_view without_nesting(std::string_view module) {
  while (module.ends_with(kNested)) module.remove_suffix(kNested.size());
  return module;
}

// A pair and its interpretation.
struct Stacked {
  PeftMatrices matrices;
  int64_t experts = 0, rank = 0;
  bool swapped = false;  // B reads the input
  int64_t k = 0, n = 0;  // of the target tensor, per expert
  int64_t first = 0;     // first row of the module in the target tensor
  int64_t step = 1;

  // [rank, k].
  std::vector<BF16> low(int64_t expert) const {
    std::vector<BF16> out;
    for (int64_t j = 0; j < rank; ++j)
      for (int64_t c = 0; c < k; ++c)
        out.push_back(swapped ? of_b(c, j, expert) : of_a(j, c, expert));
    return out;
  }
  // [rows, rank].
  std::vector<BF16> high(int64_t expert, int64_t rows) const {
    std::vector<BF16> out;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < rank; ++j) {
        const int64_t row = first + i * step;
        out.push_back(swapped ? of_a(j, row, expert) : of_b(row, j, expert));
      }
    return out;
  }
  BF16 of_a(int64_t j, int64_t col, int64_t expert) const {
    return matrices.a[static_cast<size_t>((expert * rank + j) * (swapped ? n : k) + col)];
  }
  BF16 of_b(int64_t row, int64_t j, int64_t expert) const {
    return matrices.b[static_cast<size_t>(row * rank * experts + j * experts + expert)];
  }
};

Status add_rows(const std::string& name, const Stacked& stacked, double scale, int32_t id,
                int32_t layer, const AdapterBounds& bounds, const AdapterModules& modules,
                AdapterBuilder& builder) {
  for (int64_t e = 0; e < stacked.experts; ++e) {
    const auto module = modules.find({id, layer, static_cast<int32_t>(e)});
    if (!module) return invalid_argument("module '{}': expert {} is not there", name, e);
    const int64_t rows = bounds.modules[static_cast<size_t>(*module)].n;
    RETURN_IF_ERROR(
        builder.add(*module, stacked.rank, scale, stacked.low(e), stacked.high(e, rows)));
  }
  return ok();
}

}  // namespace

bool names_all_experts(std::string_view module) {
  return without_nesting(module).ends_with(".experts");
}

Status add_peft_experts(const std::string& name, const PeftPair& pair, const PeftConfig& config,
                        const AdapterBounds& bounds, const AdapterModules& modules,
                        AdapterBuilder& builder) {
  const std::string prefix(without_nesting(name));
  const int32_t layer = layer_of(prefix).value_or(-1);
  Stacked s{.experts = modules.num_experts(layer)};
  const auto down = modules.find({kMoe4HToH, layer, 0}), gate = modules.find({kMoeHTo4H, layer, 0});
  if (!down || !gate)
    return invalid_argument("module '{}' cannot have an adapter in this model", name);
  if (config.has_magnitudes || pair.magnitudes)
    return invalid_argument("module '{}': DoRA of embeddings and experts is not supported", name);
  RETURN_IF_ERROR(check_peft_pair(name, pair));
  const int64_t all = pair.a->shape[0], a = pair.a->shape[1], b = pair.b->shape[0];
  s.rank = all / s.experts;
  if (all % s.experts != 0 || pair.b->shape[1] != all)
    return invalid_argument("module '{}': A {} and B {} are not those of {} experts", name,
                            pair.a->shape_text(), pair.b->shape_text(), s.experts);
  RETURN_IF_ERROR(builder.check_rank(name, s.rank));
  const io::AdapterModule& d = bounds.modules[static_cast<size_t>(*down)];
  const io::AdapterModule& g = bounds.modules[static_cast<size_t>(*gate)];
  const auto is = [&](int64_t k, int64_t n) { return (a == k && b == n) || (a == n && b == k); };
  const bool is_down = is(d.k, d.n);
  if (!is_down && !is(g.k, 2 * g.n))
    return invalid_argument(
        "module '{}': A {} and B {} are neither of gate_up_proj [{}, {}] nor of down_proj [{}, {}]",
        name, pair.a->shape_text(), pair.b->shape_text(), 2 * g.n, g.k, d.n, d.k);
  if (a == b)
    return invalid_argument(
        "module '{}': A {} and B {} have equal widths: it is ambiguous which reads the input", name,
        pair.a->shape_text(), pair.b->shape_text());
  s.k = is_down ? d.k : g.k, s.n = is_down ? d.n : 2 * g.n;
  s.swapped = a != s.k;
  const std::string parameter = prefix + (is_down ? ".down_proj" : ".gate_up_proj");
  if (static_cast<double>(s.rank) != config.rank_of(parameter))
    return invalid_argument("module '{}': rank {}, but adapter_config.json says {}", name, s.rank,
                            config.rank_of(parameter));
  const double scale = config.scale_of(parameter);
  ASSIGN_OR_RETURN(s.matrices, read_peft_pair(pair));
  if (is_down) return add_rows(name, s, scale, kMoe4HToH, layer, bounds, modules, builder);
  s.step = g.source.ends_with("[0::2]") ? 2 : 1;
  RETURN_IF_ERROR(add_rows(name, s, scale, kMoeHTo4H, layer, bounds, modules, builder));
  s.first = s.step == 2 ? 1 : g.n;
  return add_rows(name, s, scale, kMoeGate, layer, bounds, modules, builder);
}

}  // namespace nereid::runtime
