// check_plan(): the check between an untrusted plan and memory accesses.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/round_up.h"
#include "io/op_check.h"
#include "io/plan.h"

namespace nereid::io {
namespace {

constexpr int64_t kMaxDim = int64_t{1} << 31;
constexpr int64_t kMaxArenaBytesPerRow = int64_t{1} << 34;
constexpr size_t kMaxTableRows = 1'000'000;
constexpr int64_t kAlignment = 64;
constexpr size_t kMaxRopes = 16;
constexpr size_t kMaxHiddenStates = 16;
constexpr size_t kMaxProductChoices = 10'000;
constexpr size_t kMaxAlgorithmNumbers = 16;
constexpr size_t kMaxNameBytes = 256;

// A requirement of a table row or call; the first failure is reported.
#define NEREID_REQUIRE(condition, ...) \
  if (!(condition)) return invalid_argument(__VA_ARGS__)

Status check_model(const ModelFacts& m) {
  const auto positive = [](std::string_view field, int64_t value, int64_t max) {
    return value >= 1 && value <= max
               ? ok()
               : invalid_argument("model.{}: {} is not in [1, {}]", field, value, max);
  };
  RETURN_IF_ERROR(positive("vocab_size", m.vocab_size, 1 << 24));
  RETURN_IF_ERROR(positive("hidden_size", m.hidden_size, 1 << 20));
  NEREID_REQUIRE(m.num_layers >= 0 && m.num_layers <= 4096,
                 "model.num_layers: {} is not in [0, 4096]", m.num_layers);
  RETURN_IF_ERROR(positive("num_heads", m.num_heads, 1 << 14));
  RETURN_IF_ERROR(positive("num_kv_heads", m.num_kv_heads, m.num_heads));
  RETURN_IF_ERROR(positive("head_dim", m.head_dim, 4096));
  NEREID_REQUIRE(m.latent >= 0 && m.latent <= m.head_dim, "model.latent: {} is not in [0, {}]",
                 m.latent, m.head_dim);
  RETURN_IF_ERROR(positive("max_positions", m.max_positions, 1 << 26));
  NEREID_REQUIRE(m.num_heads % m.num_kv_heads == 0,
                 "model.num_heads: {} is not a multiple of num_kv_heads {}", m.num_heads,
                 m.num_kv_heads);
  NEREID_REQUIRE(m.ropes.size() <= kMaxRopes, "model.ropes: {} tables", m.ropes.size());
  for (const RopeTable& rope : m.ropes) {
    const size_t size = rope.inverse_frequencies.size();
    NEREID_REQUIRE(size >= 1 && size <= 2048, "model.ropes: {} frequencies", size);
    for (const float f : rope.inverse_frequencies)
      NEREID_REQUIRE(std::isfinite(f) && f >= 0, "model.ropes: {} is not a frequency", f);
    NEREID_REQUIRE(rope.components.empty() || rope.components.size() == size,
                   "model.ropes: {} components of {} frequencies", rope.components.size(), size);
    for (const int32_t component : rope.components)
      NEREID_REQUIRE(component >= 0 && component < kernels::kPositionComponents,
                     "model.ropes: component {} is not in [0, {})", component,
                     kernels::kPositionComponents);
    NEREID_REQUIRE(std::isfinite(rope.attention_factor) && rope.attention_factor > 0,
                   "model.ropes: attention_factor {} is not positive", rope.attention_factor);
  }
  std::vector<int32_t> ids = m.end_ids;
  if (m.bos_id != kNone) ids.push_back(m.bos_id);
  if (m.pad_id != kNone) ids.push_back(m.pad_id);
  for (const int32_t id : ids)
    NEREID_REQUIRE(id >= 0 && id < m.vocab_size,
                   "model: special token id {} is not in a vocabulary of {}", id, m.vocab_size);
  NEREID_REQUIRE(m.num_cross_layers >= 0 && m.num_cross_layers <= 4096,
                 "model.num_cross_layers: {} is not in [0, 4096]", m.num_cross_layers);
  NEREID_REQUIRE(m.decoder_start_id >= kNone && m.decoder_start_id < m.vocab_size,
                 "model.decoder_start_id: {} is not in a vocabulary of {}", m.decoder_start_id,
                 m.vocab_size);
  NEREID_REQUIRE(m.forced_bos_id >= kNone && m.forced_bos_id < m.vocab_size,
                 "model.forced_bos_id: {} is not in a vocabulary of {}", m.forced_bos_id,
                 m.vocab_size);
  NEREID_REQUIRE(m.encoder_positions >= 0 && m.encoder_positions <= 1 << 26 &&
                     (m.encoder_positions > 0) ==
                         ((m.num_cross_layers > 0 || m.pictures.patch_width > 0) && !m.is_encoder),
                 "model.encoder_positions: {} with {} layers of cross attention",
                 m.encoder_positions, m.num_cross_layers);
  const PictureFacts& p = m.pictures;
  NEREID_REQUIRE(p.patch_width >= 0 && p.patch_width <= 1 << 20 && p.merge >= 1 && p.merge <= 8 &&
                     p.class_tokens >= 0 && p.class_tokens <= 64 && p.grid >= 0 && p.grid <= 4096 &&
                     p.grid % p.merge == 0 && p.max_frames >= 1 && p.max_frames <= 1 << 10 &&
                     p.window >= 0 && p.window <= 4096 && p.window % p.merge == 0 &&
                     p.deep_layers >= 0 && p.deep_layers <= kMaxDeepLayers &&
                     p.frame_positions >= 1 && p.frame_positions <= 1 << 10 &&
                     (p.patch_width == 0 || (m.num_cross_layers > 0) == p.in_cross) &&
                     (!p.in_cross || (p.patch_width > 0 && p.grid > 0 && !p.row_breaks)) &&
                     p.frame_padding >= 0 && p.frame_padding <= 64 &&
                     (p.frame_padding == 0 || p.in_cross) &&
                     (!p.tiles_in_plane || (p.grid > 0 && p.max_frames > 1 && !p.row_breaks)) &&
                     p.blended_tiles >= 0 && p.blended_tiles <= 64 &&
                     (p.blended_tiles == 0 || (p.tiles_in_plane && p.merge == 1 && p.in_raster)),
                 "model.pictures: patches of {}, blocks of {}, {} class tokens, a grid of {}",
                 p.patch_width, p.merge, p.class_tokens, p.grid);
  NEREID_REQUIRE(m.kv_dtype == DType::kBF16 || kernels::has_kv_scales(m.kv_dtype),
                 "model.kv_dtype: {} is not bf16, i8 or f8e4m3", name_of(m.kv_dtype));
  return ok();
}

Status check_value(const Plan& plan, const Value& v) {
  NEREID_REQUIRE(v.dtype == DType::kF32 || v.dtype == DType::kBF16 || v.dtype == DType::kI32 ||
                     v.dtype == DType::kF8E4M3 || v.dtype == DType::kI8,
                 "value '{}': dtype {} is not f32, bf16, i32, f8e4m3 or i8", v.name,
                 name_of(v.dtype));
  NEREID_REQUIRE(v.cols >= 1 && v.stride >= v.cols && v.stride < kMaxDim,
                 "value '{}': {} columns with stride {}", v.name, v.cols, v.stride);
  NEREID_REQUIRE(v.column >= 0 && v.column <= v.stride - v.cols,
                 "value '{}': columns [{}, {} + {}) do not fit in a stride of {}", v.name, v.column,
                 v.column, v.cols, v.stride);
  const int64_t arena = plan.arena_bytes_per_row[static_cast<int>(v.extent)];
  const int64_t bytes = round_up(v.stride * static_cast<int64_t>(size_of(v.dtype)), kAlignment);
  NEREID_REQUIRE(v.offset >= 0 && v.offset % kAlignment == 0 && v.offset <= arena - bytes,
                 "value '{}': offset {} + {} bytes per row does not fit in the arena's {}", v.name,
                 v.offset, bytes, arena);
  return ok();
}

// Valid format with exactly its planes, of the right sizes.
Status check_planes(const PlanWeight& w) {
  NEREID_REQUIRE(w.n >= 1 && w.n < kMaxDim && w.k >= 1 && w.k < kMaxDim,
                 "weight '{}': shape [{}, {}]", w.name, w.n, w.k);
  NEREID_REQUIRE(w.experts >= 1 && w.experts <= kernels::kMaxExperts && w.experts * w.n < kMaxDim,
                 "weight '{}': {} experts of {} rows", w.name, w.experts, w.n);
  const std::string_view wrong = kernels::format_error(w.format);
  NEREID_REQUIRE(wrong.empty(), "weight '{}': {}", w.name, wrong);
  const std::string_view misplaced = kernels::layout_error(w.layout, w.format, w.k);
  NEREID_REQUIRE(misplaced.empty(), "weight '{}': {}", w.name, misplaced);
  const std::vector<kernels::PlaneShape> wanted =
      kernels::planes_of(w.format, w.layout, w.n, w.k, w.experts);
  NEREID_REQUIRE(w.planes.size() == wanted.size(), "weight '{}': {} planes, {} has {}", w.name,
                 w.planes.size(), kernels::text_of(w.format), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const kernels::PlaneShape& got = w.planes[i].shape;
    NEREID_REQUIRE(got == wanted[i],
                   "weight '{}': plane {} ({} {} [{}, {}], {} bytes) is not {} {} [{}, {}], {} "
                   "bytes",
                   w.name, i, names_of(got.role)[static_cast<size_t>(got.role)], name_of(got.type),
                   got.rows, got.cols, got.bytes,
                   names_of(wanted[i].role)[static_cast<size_t>(wanted[i].role)],
                   name_of(wanted[i].type), wanted[i].rows, wanted[i].cols, wanted[i].bytes);
  }
  return ok();
}

Status check_weights(const Plan& plan) {
  struct Range {
    const PlanWeight* weight;
    uint64_t begin, end;
  };
  std::vector<Range> ranges;
  for (const PlanWeight& w : plan.weights) {
    RETURN_IF_ERROR(check_planes(w));
    for (const Plane& p : w.planes) {
      NEREID_REQUIRE(p.offset % kAlignment == 0 && p.shape.bytes <= plan.blob_bytes &&
                         p.offset <= plan.blob_bytes - p.shape.bytes,
                     "weight '{}': offset {} + {} bytes does not fit in the blob's {}", w.name,
                     p.offset, p.shape.bytes, plan.blob_bytes);
      ranges.push_back({&w, p.offset, p.offset + p.shape.bytes});
    }
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < ranges.size(); ++i)
    NEREID_REQUIRE(ranges[i - 1].end <= ranges[i].begin, "weights '{}' and '{}' overlap",
                   ranges[i - 1].weight->name, ranges[i].weight->name);
  return ok();
}

std::vector<kernels::WeightView> shapes_of(const Plan& plan) {
  std::vector<kernels::WeightView> shapes;
  for (const PlanWeight& w : plan.weights) shapes.push_back(view_of(w, nullptr));
  return shapes;
}

// Checks beyond a graph's: memory of outputs; one call per cache layer.
class CallChecker {
 public:
  explicit CallChecker(const Plan& plan)
      : plan_(plan),
        ops_(plan.model, plan.values, shapes_of(plan)),
        layer_seen_(static_cast<size_t>(plan.model.num_layers)),
        cross_seen_(static_cast<size_t>(plan.model.num_cross_layers)) {}

  template <class Op>
  Status check(const Op& op, const std::string& kernel) {
    using kernels::Role;
    RETURN_IF_ERROR(ops_.check(op));
    if constexpr (kernels::kIsExchange<Op>)
      RETURN_IF_ERROR(check_exchange(op, kernel));
    else
      NEREID_REQUIRE(!kernel.empty() || (kernels::has_role<Op, Role::kCache>()),
                     "no kernel is chosen");
    Status status;
    if constexpr (requires { op.first_module; }) RETURN_IF_ERROR(take_modules(op));
    if constexpr (requires { op.bidirectional; })
      NEREID_REQUIRE(op.bidirectional == plan_.model.is_encoder, "attention is {}bidirectional",
                     op.bidirectional ? "" : "not ");
    if constexpr (requires { op.in_windows; })
      NEREID_REQUIRE(!op.in_windows || (op.bidirectional && plan_.model.pictures.window > 0),
                     "attention in windows that the model does not have");
    if constexpr (std::is_same_v<Op, kernels::ids::ShiftRows>)
      NEREID_REQUIRE(plan_.model.is_encoder, "rows of parts of a text");
    if constexpr (std::is_same_v<Op, kernels::ids::AddPositions>)
      NEREID_REQUIRE(
          op.side == 0 || (plan_.model.is_encoder && plan_.model.pictures.has_components),
          "positions in the plane of another model");
    kernels::for_fields(op, [&](const auto& field, const auto& id) {
      constexpr Role kRole = std::remove_cvref_t<decltype(field)>::kRole;
      if constexpr (kRole == Role::kCache) status.Update(take_cache(id, op));
      if constexpr (kRole == Role::kOut)
        if (id != kNone && !field.replaces.empty())
          status.Update(check_place(op, field.name, field.replaces, id));
    });
    return status;
  }

  // Calls name all modules, but those of a decoder's encoder, which come last.
  Status finish() const {
    const bool has_encoder = plan_.model.encoder_positions > 0;
    NEREID_REQUIRE(num_modules_ == num_columns() || (has_encoder && num_modules_ < num_columns()),
                   "{} modules, calls name {}", num_columns(), num_modules_);
    return ok();
  }

 private:
  template <class Op>
  Status check_exchange(const Op& op, const std::string& kernel) const {
    NEREID_REQUIRE(kernel.empty(), "an op of exchange has no kernel");
    const Mapping& m = plan_.mapping;
    NEREID_REQUIRE(!m.is_single(), "an exchange of one rank");
    if constexpr (requires { op.stage; })
      NEREID_REQUIRE(op.stage >= 0 && op.stage < m.pp && op.stage != m.stage(),
                     "stage {} is not another one of {}", op.stage, m.pp);
    if constexpr (requires { op.pieces; }) {
      const int64_t units = plan_.values[static_cast<size_t>(op.out)].cols / op.pieces / op.unit;
      const int64_t share = kernels::share_begin(units, m.tp, m.tensor_rank() + 1) -
                            kernels::share_begin(units, m.tp, m.tensor_rank());
      const int64_t here = plan_.values[static_cast<size_t>(op.x)].cols / op.pieces / op.unit;
      NEREID_REQUIRE(share <= here, "x has {} units, the rank's share is {}", here, share);
    }
    return ok();
  }

  // `op` has a cache. Clang instantiates the call for ops without one, too.
  template <class Op>
  Status take_cache(int32_t layer, const Op& op) {
    if constexpr (requires { op.heads; }) return take_layer<Op>(layer, op.heads);
    return ok();
  }

  // An encoder's layers share a cache, whose contents live for one step.
  template <class Op>
  Status take_layer(int32_t layer, const kernels::Heads& h) {
    const ModelFacts& m = plan_.model;
    std::vector<bool>& seen = kIsCross<Op> ? cross_seen_ : layer_seen_;
    const bool is_shared = m.is_encoder && !kIsCross<Op>;
    const bool stores = std::is_same_v<Op, kernels::ids::StoreKv>;
    NEREID_REQUIRE(stores ? m.is_encoder : !(kIsCross<Op> && m.is_encoder),
                   "'{}' in the wrong half of an encoder-decoder model", Op::kName);
    const int32_t divided = std::max(m.num_kv_heads / plan_.mapping.tp, 1);
    NEREID_REQUIRE(stores || ((h.num_kv == m.num_kv_heads || h.num_kv == divided) &&
                              h.dim == m.head_dim && h.latent == m.latent),
                   "{} key heads of {} differ from the model's", h.num_kv, h.dim);
    NEREID_REQUIRE(is_shared || !seen[static_cast<size_t>(layer)], "layer {} is used twice", layer);
    seen[static_cast<size_t>(layer)] = true;
    return ok();
  }

  // A module, or a rank's part of one, in the output of its call.
  struct Columns {
    const AdapterModule* module;
    int64_t column, n;
  };
  size_t num_columns() const {
    return plan_.mapping.is_single() ? plan_.modules.size() : plan_.module_parts.size();
  }
  Columns columns_of(size_t index) const {
    if (plan_.mapping.is_single())
      return {&plan_.modules[index], plan_.modules[index].column, plan_.modules[index].n};
    const ModulePart& part = plan_.module_parts[index];
    return {&plan_.modules[static_cast<size_t>(part.module)], part.column, part.n()};
  }

  // Modules are in the order of calls; each call's, or expert's, partition its output columns.
  template <class Op>
  Status take_modules(const Op& op) {
    const Value& out = plan_.values[static_cast<size_t>(op.out)];
    const int64_t count = int64_t{op.num_modules} * op.num_experts;
    NEREID_REQUIRE(static_cast<size_t>(op.first_module) == num_modules_ && count >= 0 &&
                       static_cast<size_t>(count) <= num_columns() - num_modules_,
                   "modules [{}, {} + {}) are not the next of {}", op.first_module, op.first_module,
                   count, num_columns());
    const bool of_tokens = op.x == kNone;
    NEREID_REQUIRE(!of_tokens || out.extent == RowCount::kTokens,
                   "a module of tokens, but '{}' has no row for each", out.name);
    const int64_t pieces =
        op.experts == kNone ? 1 : plan_.values[static_cast<size_t>(op.experts)].cols;
    const int64_t width = out.cols / pieces;
    int64_t column = 0;
    for (int64_t i = 0; i < count; ++i) {
      const Columns c = columns_of(num_modules_++);
      const AdapterModule& m = *c.module;
      if (i % op.num_modules == 0) column = 0;
      NEREID_REQUIRE(m.k == op.k && m.of_tokens == of_tokens && c.n >= 1 && c.column >= column &&
                         c.n <= width && c.column <= width - c.n,
                     "module '{}': [{}, {}] at column {} of {}, x has {}", m.name, c.n, m.k,
                     c.column, width, op.k);
      RETURN_IF_ERROR(check_source_rows(m));
      column = c.column + c.n;
    }
    return ok();
  }

  static Status check_source_rows(const AdapterModule& m) {
    if (m.source_rows == 0 && m.rows.empty()) return ok();
    int64_t count = 0;
    for (const RowRun& run : m.rows) {
      const int64_t end = m.source_rows;
      NEREID_REQUIRE(run.first >= 0 && run.first < end && run.step >= 1 && run.size >= 1 &&
                         run.size <= m.n - count &&
                         run.size - 1 <= (end - 1 - run.first) / run.step,
                     "module '{}': rows {} + {} * [0, {}) are not in [0, {})", m.name, run.first,
                     run.step, run.size, end);
      count += run.size;
    }
    NEREID_REQUIRE(count == m.n && !m.of_tokens, "module '{}': {} rows of its source, not {}",
                   m.name, count, m.n);
    return ok();
  }

  template <class Op>
  Status check_place(const Op& op, std::string_view name, std::string_view replaces,
                     ValueId out) const {
    Status status;
    kernels::for_fields(op, [&](const auto& field, const auto& id) {
      if constexpr (std::remove_cvref_t<decltype(field)>::kRole == kernels::Role::kIn) {
        if (field.name != replaces) return;
        const Value& a = plan_.values[static_cast<size_t>(id)];
        const Value& b = plan_.values[static_cast<size_t>(out)];
        if (a.offset != b.offset || a.column != b.column || a.stride != b.stride ||
            a.dtype != b.dtype || a.extent != b.extent)
          status = invalid_argument("'{}' does not lie in place of '{}'", name, replaces);
      }
    });
    return status;
  }

  const Plan& plan_;
  const OpChecker ops_;
  std::vector<bool> layer_seen_, cross_seen_;
  size_t num_modules_ = 0;  // named by calls so far
};

Status check_logits(const Plan& plan) {
  if (plan.logits == kNone && (!plan.mapping.is_last_stage() || plan.model.is_encoder)) return ok();
  NEREID_REQUIRE(plan.logits >= 0 && static_cast<size_t>(plan.logits) < plan.values.size(),
                 "logits: no value {}", plan.logits);
  const Value& logits = plan.values[plan.logits];
  NEREID_REQUIRE(logits.dtype == DType::kF32 && logits.extent == RowCount::kSampled &&
                     logits.cols == plan.model.vocab_size,
                 "logits: value '{}' is not f32 [sampled, {}]", logits.name, plan.model.vocab_size);
  return ok();
}

// A module has at most one part, of ascending columns.
Status check_module_parts(const Plan& plan) {
  NEREID_REQUIRE(plan.module_parts.empty() || !plan.mapping.is_single(),
                 "module_parts: {} of them on one rank", plan.module_parts.size());
  std::vector<bool> seen(plan.modules.size());
  for (const ModulePart& part : plan.module_parts) {
    NEREID_REQUIRE(part.module >= 0 && static_cast<size_t>(part.module) < plan.modules.size() &&
                       !seen[static_cast<size_t>(part.module)],
                   "module_parts: module {} is named twice or not in [0, {})", part.module,
                   plan.modules.size());
    seen[static_cast<size_t>(part.module)] = true;
    const AdapterModule& m = plan.modules[static_cast<size_t>(part.module)];
    int64_t end = 0;
    for (const RowRun& run : part.runs) {
      NEREID_REQUIRE(
          run.first >= end && run.size >= 1 && run.step == 1 && run.size <= m.n - run.first,
          "module_parts: columns [{}, {} + {}) of module '{}' with {}", run.first, run.first,
          run.size, m.name, m.n);
      end = run.first + run.size;
    }
    NEREID_REQUIRE(end > 0, "module_parts: no columns of module '{}'", m.name);
  }
  return ok();
}

// The layers' caches of a pipeline stage.
Status check_caches(const Plan& plan) {
  NEREID_REQUIRE(plan.caches.empty() ==
                     (plan.mapping.pp == 1 || plan.model.num_layers == 0 || plan.model.is_encoder),
                 "caches: {} of them with {} stages", plan.caches.size(), plan.mapping.pp);
  NEREID_REQUIRE(plan.caches.size() <= static_cast<size_t>(plan.model.num_layers),
                 "caches: {} of {} layers", plan.caches.size(), plan.model.num_layers);
  std::vector<bool> seen(static_cast<size_t>(plan.model.num_layers));
  for (const LayerCache& c : plan.caches) {
    NEREID_REQUIRE(
        c.layer >= 0 && c.layer < plan.model.num_layers && !seen[static_cast<size_t>(c.layer)],
        "caches: layer {} is named twice or not in [0, {})", c.layer, plan.model.num_layers);
    seen[static_cast<size_t>(c.layer)] = true;
    NEREID_REQUIRE(c.window >= 0 && c.num_kv >= 1 && c.num_kv <= plan.model.num_kv_heads &&
                       c.dim == plan.model.head_dim && c.latent == plan.model.latent,
                   "caches: {} key heads of {} with a window of {}", c.num_kv, c.dim, c.window);
  }
  for (const Call& call : plan.calls) {
    const auto* attention = std::get_if<kernels::ids::Attention>(&call.op);
    if (!attention || plan.caches.empty()) continue;
    const kernels::Heads& h = attention->heads;
    const LayerCache own{attention->cache, attention->window, h.num_kv, h.dim, h.latent};
    NEREID_REQUIRE(std::ranges::find(plan.caches, own) != plan.caches.end(),
                   "caches: layer {} is not as its attention", own.layer);
  }
  return ok();
}

Status check_hidden(const Plan& plan) {
  NEREID_REQUIRE(plan.hidden.size() <= kMaxHiddenStates,
                 "hidden: {} of them, at most {} are allowed", plan.hidden.size(),
                 kMaxHiddenStates);
  NEREID_REQUIRE(!plan.model.is_encoder || plan.hidden.size() == 1,
                 "hidden: {} of an encoder, which has one", plan.hidden.size());
  for (const ValueId id : plan.hidden) {
    NEREID_REQUIRE(id >= 0 && static_cast<size_t>(id) < plan.values.size(), "hidden: no value {}",
                   id);
    const Value& hidden = plan.values[static_cast<size_t>(id)];
    const PictureFacts& pictures = plan.model.pictures;
    const bool has_all = plan.model.is_encoder && (pictures.patch_width == 0 || pictures.in_cross);
    const RowCount rows = has_all ? RowCount::kTokens : RowCount::kSampled;
    NEREID_REQUIRE(hidden.dtype == DType::kBF16 && hidden.extent == rows &&
                       hidden.cols == plan.model.hidden_size,
                   "hidden: value '{}' is not bf16 [{}, {}]", hidden.name,
                   has_all ? "tokens" : "sampled", plan.model.hidden_size);
  }
  return ok();
}

Status check_choices(const kernels::AlgorithmChoices& choices) {
  NEREID_REQUIRE(choices.library.size() <= kMaxNameBytes && choices.device.size() <= kMaxNameBytes,
                 "choices: a name of {} bytes, at most {} are allowed",
                 std::max(choices.library.size(), choices.device.size()), kMaxNameBytes);
  NEREID_REQUIRE(choices.products.size() <= kMaxProductChoices,
                 "choices: {} of them, at most {} are allowed", choices.products.size(),
                 kMaxProductChoices);
  for (const kernels::ProductChoice& c : choices.products) {
    for (const int64_t dim : {c.n, c.k, c.rows})
      NEREID_REQUIRE(dim >= 1 && dim < kMaxDim, "choices: {} rows by [{}, {}]", c.rows, c.n, c.k);
    NEREID_REQUIRE(c.algorithm.size() <= kMaxAlgorithmNumbers,
                   "choices: an algorithm of {} numbers, at most {} are allowed",
                   c.algorithm.size(), kMaxAlgorithmNumbers);
  }
  return ok();
}

}  // namespace

Status check_plan(const Plan& plan) {
  RETURN_IF_ERROR(check_model(plan.model));
  RETURN_IF_ERROR(check_mapping(plan.mapping));
  for (const size_t size : {plan.values.size(), plan.weights.size(), plan.calls.size(),
                            plan.modules.size(), plan.module_parts.size()})
    NEREID_REQUIRE(size <= kMaxTableRows, "a table of {} rows, at most {} are allowed", size,
                   kMaxTableRows);
  for (const int64_t bytes : plan.arena_bytes_per_row)
    NEREID_REQUIRE(bytes >= 0 && bytes <= kMaxArenaBytesPerRow && bytes % kAlignment == 0,
                   "arena of {} bytes per row", bytes);
  for (const Value& value : plan.values) RETURN_IF_ERROR(check_value(plan, value));
  RETURN_IF_ERROR(check_weights(plan));
  RETURN_IF_ERROR(check_module_parts(plan));
  CallChecker checker(plan);
  for (size_t i = 0; i < plan.calls.size(); ++i) {
    const Call& call = plan.calls[i];
    const Status status =
        std::visit([&](const auto& op) { return checker.check(op, call.kernel); }, call.op);
    if (!status.ok()) return annotate(status, fmt::format("call {} ({})", i, name_of(call.op)));
  }
  RETURN_IF_ERROR(checker.finish());
  RETURN_IF_ERROR(check_caches(plan));
  RETURN_IF_ERROR(check_logits(plan));
  RETURN_IF_ERROR(check_choices(plan.choices));
  return check_hidden(plan);
}

#undef NEREID_REQUIRE

}  // namespace nereid::io
