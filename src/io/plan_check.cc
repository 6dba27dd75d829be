// check_plan(): the one gate between a plan that somebody hands us and memory accesses.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/round_up.h"
#include "io/plan.h"

namespace nereid::io {
namespace {

constexpr int64_t kMaxDim = int64_t{1} << 31;
constexpr int64_t kMaxArenaBytesPerRow = int64_t{1} << 34;
constexpr size_t kMaxTableRows = 1'000'000;
constexpr int64_t kAlignment = 64;

// One requirement of a table row or call; the first that fails is the message.
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
  RETURN_IF_ERROR(positive("num_layers", m.num_layers, 4096));
  RETURN_IF_ERROR(positive("num_heads", m.num_heads, 1 << 14));
  RETURN_IF_ERROR(positive("num_kv_heads", m.num_kv_heads, m.num_heads));
  RETURN_IF_ERROR(positive("head_dim", m.head_dim, 4096));
  RETURN_IF_ERROR(positive("max_positions", m.max_positions, 1 << 26));
  NEREID_REQUIRE(m.num_heads % m.num_kv_heads == 0,
                 "model.num_heads: {} is not a multiple of num_kv_heads {}", m.num_heads,
                 m.num_kv_heads);
  NEREID_REQUIRE(m.sliding_window >= 0, "model.sliding_window: {} is negative", m.sliding_window);
  NEREID_REQUIRE(m.head_dim % 2 == 0 &&
                     m.rope.inverse_frequencies.size() == static_cast<size_t>(m.head_dim / 2),
                 "model.rope: {} frequencies for head_dim {}", m.rope.inverse_frequencies.size(),
                 m.head_dim);
  for (const float f : m.rope.inverse_frequencies)
    NEREID_REQUIRE(std::isfinite(f) && f >= 0, "model.rope: {} is not a frequency", f);
  NEREID_REQUIRE(std::isfinite(m.rope.attention_factor) && m.rope.attention_factor > 0,
                 "model.rope.attention_factor: {} is not positive", m.rope.attention_factor);
  std::vector<int32_t> ids = m.end_ids;
  if (m.bos_id != kNone) ids.push_back(m.bos_id);
  if (m.pad_id != kNone) ids.push_back(m.pad_id);
  for (const int32_t id : ids)
    NEREID_REQUIRE(id >= 0 && id < m.vocab_size,
                   "model: special token id {} is not in a vocabulary of {}", id, m.vocab_size);
  NEREID_REQUIRE(m.kv_dtype == DType::kBF16, "model.kv_dtype: {} is not bf16", name_of(m.kv_dtype));
  return ok();
}

Status check_value(const Plan& plan, const Value& v) {
  NEREID_REQUIRE(v.dtype == DType::kF32 || v.dtype == DType::kBF16,
                 "value '{}': dtype {} is neither f32 nor bf16", v.name, name_of(v.dtype));
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

Status check_weights(const Plan& plan) {
  std::vector<const Weight*> sorted;
  for (const Weight& w : plan.weights) {
    NEREID_REQUIRE(w.dtype == DType::kBF16, "weight '{}': dtype {} is not bf16", w.name,
                   name_of(w.dtype));
    NEREID_REQUIRE(w.n >= 1 && w.n < kMaxDim && w.k >= 1 && w.k < kMaxDim,
                   "weight '{}': shape [{}, {}]", w.name, w.n, w.k);
    NEREID_REQUIRE(w.bytes == stored_bytes(w.dtype, w.n, w.k, w.layout),
                   "weight '{}': {} bytes stored for [{}, {}]", w.name, w.bytes, w.n, w.k);
    NEREID_REQUIRE(w.offset % kAlignment == 0 && w.bytes <= plan.blob_bytes &&
                       w.offset <= plan.blob_bytes - w.bytes,
                   "weight '{}': offset {} + {} bytes does not fit in the blob's {}", w.name,
                   w.offset, w.bytes, plan.blob_bytes);
    sorted.push_back(&w);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const Weight* a, const Weight* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < sorted.size(); ++i)
    NEREID_REQUIRE(sorted[i - 1]->offset + sorted[i - 1]->bytes <= sorted[i]->offset,
                   "weights '{}' and '{}' overlap", sorted[i - 1]->name, sorted[i]->name);
  return ok();
}

// Checks one call's operands; ids are resolved here so that the op checks read like the contracts.
class CallChecker {
 public:
  explicit CallChecker(const Plan& plan) : plan_(plan), layer_seen_(plan.model.num_layers) {}

  Status operator()(const EmbedCall& c) {
    ASSIGN_OR_RETURN(const Weight* table, weight(c.table));
    ASSIGN_OR_RETURN(const Value* out, value(c.out));
    NEREID_REQUIRE(table->n == plan_.model.vocab_size, "table has {} rows, the vocabulary {}",
                   table->n, plan_.model.vocab_size);
    RETURN_IF_ERROR(expect(*out, DType::kF32, table->k));
    return extent(*out, Extent::kTokens);
  }
  Status operator()(const NormCall& c) {
    ASSIGN_OR_RETURN(const Value* residual, value(c.residual));
    ASSIGN_OR_RETURN(const Value* out, value(c.out));
    RETURN_IF_ERROR(expect(*residual, DType::kF32, residual->cols));
    RETURN_IF_ERROR(expect(*out, out->dtype, residual->cols));
    RETURN_IF_ERROR(extent(*out, residual->extent));
    RETURN_IF_ERROR(vector(c.weight, residual->cols));
    NEREID_REQUIRE(std::isfinite(c.eps) && c.eps >= 0, "eps {} is not a small number", c.eps);
    if (c.add == kNone) return ok();
    ASSIGN_OR_RETURN(const Value* add, value(c.add));
    RETURN_IF_ERROR(expect(*add, DType::kF32, residual->cols));
    return extent(*add, residual->extent);
  }
  Status operator()(const LinearCall& c) {
    ASSIGN_OR_RETURN(const Weight* w, weight(c.weight));
    ASSIGN_OR_RETURN(const Value* x, value(c.x));
    ASSIGN_OR_RETURN(const Value* out, value(c.out));
    RETURN_IF_ERROR(expect(*x, DType::kBF16, w->k));
    RETURN_IF_ERROR(expect(*out, out->dtype, w->n));
    RETURN_IF_ERROR(extent(*out, x->extent));
    return c.bias == kNone ? ok() : vector(c.bias, w->n);
  }
  Status operator()(const RopeCall& c) {
    ASSIGN_OR_RETURN(const Value* qkv, value(c.qkv));
    return heads(c, *qkv);
  }
  Status operator()(const AttentionCall& c) {
    ASSIGN_OR_RETURN(const Value* qkv, value(c.qkv));
    ASSIGN_OR_RETURN(const Value* out, value(c.out));
    RETURN_IF_ERROR(heads(c, *qkv));
    RETURN_IF_ERROR(expect(*out, DType::kBF16, int64_t{c.num_heads} * c.head_dim));
    RETURN_IF_ERROR(extent(*out, Extent::kTokens));
    NEREID_REQUIRE(c.window >= 0, "window {} is negative", c.window);
    NEREID_REQUIRE(std::isfinite(c.scale) && c.scale > 0, "scale {} is not positive", c.scale);
    NEREID_REQUIRE(c.layer >= 0 && c.layer < plan_.model.num_layers && !layer_seen_[c.layer],
                   "layer {} is out of range or used twice", c.layer);
    layer_seen_[c.layer] = true;
    return ok();
  }
  Status operator()(const GluCall& c) {
    ASSIGN_OR_RETURN(const Value* x, value(c.x));
    ASSIGN_OR_RETURN(const Value* out, value(c.out));
    RETURN_IF_ERROR(expect(*out, DType::kBF16, out->cols));
    RETURN_IF_ERROR(expect(*x, DType::kF32, 2 * out->cols));
    return extent(*out, x->extent);
  }
  Status operator()(const AddCall& c) {
    ASSIGN_OR_RETURN(const Value* x, value(c.x));
    ASSIGN_OR_RETURN(const Value* y, value(c.y));
    RETURN_IF_ERROR(expect(*x, DType::kF32, x->cols));
    RETURN_IF_ERROR(expect(*y, DType::kF32, x->cols));
    return extent(*y, x->extent);
  }
  Status operator()(const GatherRowsCall& c) {
    ASSIGN_OR_RETURN(const Value* x, value(c.x));
    ASSIGN_OR_RETURN(const Value* out, value(c.out));
    RETURN_IF_ERROR(expect(*x, DType::kF32, x->cols));
    RETURN_IF_ERROR(expect(*out, DType::kF32, x->cols));
    RETURN_IF_ERROR(extent(*x, Extent::kTokens));
    return extent(*out, Extent::kSampled);
  }

 private:
  StatusOr<const Value*> value(ValueId id) const {
    NEREID_REQUIRE(id >= 0 && static_cast<size_t>(id) < plan_.values.size(), "no value {}", id);
    return &plan_.values[id];
  }
  StatusOr<const Weight*> weight(WeightId id) const {
    NEREID_REQUIRE(id >= 0 && static_cast<size_t>(id) < plan_.weights.size(), "no weight {}", id);
    return &plan_.weights[id];
  }
  Status vector(WeightId id, int64_t size) const {
    ASSIGN_OR_RETURN(const Weight* w, weight(id));
    NEREID_REQUIRE(w->n == 1 && w->k == size && w->layout == kernels::WeightLayout::kRowMajor,
                   "weight '{}' [{}, {}] is not a vector of {}", w->name, w->n, w->k, size);
    return ok();
  }
  static Status expect(const Value& v, DType dtype, int64_t cols) {
    NEREID_REQUIRE(v.dtype == dtype && v.cols == cols, "value '{}' is {} [{}], not {} [{}]", v.name,
                   name_of(v.dtype), v.cols, name_of(dtype), cols);
    return ok();
  }
  static Status extent(const Value& v, Extent wanted) {
    NEREID_REQUIRE(v.extent == wanted, "value '{}' has the wrong kind of rows", v.name);
    return ok();
  }
  template <class C>
  Status heads(const C& c, const Value& qkv) const {
    const ModelFacts& m = plan_.model;
    NEREID_REQUIRE(
        c.num_heads == m.num_heads && c.num_kv_heads == m.num_kv_heads && c.head_dim == m.head_dim,
        "{} heads, {} kv heads of {} differ from the model's", c.num_heads, c.num_kv_heads,
        c.head_dim);
    RETURN_IF_ERROR(expect(qkv, DType::kF32,
                           (int64_t{c.num_heads} + 2 * int64_t{c.num_kv_heads}) * c.head_dim));
    return extent(qkv, Extent::kTokens);
  }

  const Plan& plan_;
  std::vector<bool> layer_seen_;
};

}  // namespace

Status check_plan(const Plan& plan) {
  RETURN_IF_ERROR(check_model(plan.model));
  for (const size_t size : {plan.values.size(), plan.weights.size(), plan.calls.size()})
    NEREID_REQUIRE(size <= kMaxTableRows, "a table of {} rows, at most {} are allowed", size,
                   kMaxTableRows);
  for (const int64_t bytes : plan.arena_bytes_per_row)
    NEREID_REQUIRE(bytes >= 0 && bytes <= kMaxArenaBytesPerRow && bytes % kAlignment == 0,
                   "arena of {} bytes per row", bytes);
  for (const Value& value : plan.values) RETURN_IF_ERROR(check_value(plan, value));
  RETURN_IF_ERROR(check_weights(plan));
  CallChecker checker(plan);
  for (size_t i = 0; i < plan.calls.size(); ++i) {
    Status status = std::visit(checker, plan.calls[i]);
    if (status.ok() && kernel_name(plan.calls[i]).empty())
      status = invalid_argument("no kernel is chosen");
    if (!status.ok())
      return annotate(status, fmt::format("call {} ({})", i, op_name(plan.calls[i])));
  }
  NEREID_REQUIRE(plan.logits >= 0 && static_cast<size_t>(plan.logits) < plan.values.size(),
                 "logits: no value {}", plan.logits);
  const Value& logits = plan.values[plan.logits];
  NEREID_REQUIRE(logits.dtype == DType::kF32 && logits.extent == Extent::kSampled &&
                     logits.cols == plan.model.vocab_size,
                 "logits: value '{}' is not f32 [sampled, {}]", logits.name, plan.model.vocab_size);
  return ok();
}

#undef NEREID_REQUIRE

}  // namespace nereid::io
