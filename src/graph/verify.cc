#include "graph/verify.h"

#include <vector>

namespace nereid::graph {
namespace {

#define NEREID_REQUIRE(condition, ...) \
  if (!(condition)) return internal_error(__VA_ARGS__)

class Verifier {
 public:
  explicit Verifier(const Graph& graph)
      : graph_(graph), written_(graph.values.size()), used_(graph.weights.size()) {}

  Status run() {
    for (const Weight& w : graph_.weights) RETURN_IF_ERROR(check(w));
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Op& op = graph_.nodes[i].op;
      Status status = flow(op);
      if (status.ok()) status = std::visit([&](const auto& x) { return shapes(x); }, op);
      if (!status.ok()) return annotate(status, fmt::format("node {} ({})", i, name_of(op)));
    }
    for (size_t i = 0; i < used_.size(); ++i)
      NEREID_REQUIRE(used_[i], "weight '{}' is not used", graph_.weights[i].name);
    for (size_t i = 0; i < written_.size(); ++i)
      NEREID_REQUIRE(written_[i], "value '{}' is never written", graph_.values[i].name);
    NEREID_REQUIRE(has_value(graph_.logits), "there are no logits");
    return expect(graph_.logits, io::Extent::kSampled, DType::kF32, graph_.model.vocab_size);
  }

 private:
  bool has_value(ValueId id) const {
    return id >= 0 && static_cast<size_t>(id) < graph_.values.size();
  }
  const Value& value(ValueId id) const { return graph_.values[id]; }
  const Weight& weight(WeightId id) const { return graph_.weights[id]; }

  static Status check(const Weight& w) {
    int64_t size = 0;
    for (const WeightPart& part : w.parts) size += part.size;
    NEREID_REQUIRE(w.n > 0 && w.k > 0 && (w.n == 1 || !w.is_vector), "weight '{}' is [{}, {}]",
                   w.name, w.n, w.k);
    NEREID_REQUIRE(size == (w.is_vector ? w.k : w.n), "weight '{}' [{}, {}] has parts of {}",
                   w.name, w.n, w.k, size);
    return ok();
  }

  Status flow(const Op& op) {
    for (const ValueId id : inputs(op)) {
      NEREID_REQUIRE(has_value(id), "reads value {}, which does not exist", id);
      NEREID_REQUIRE(written_[id], "reads '{}' before it is written", value(id).name);
    }
    for (const ValueId id : outputs(op)) {
      NEREID_REQUIRE(has_value(id), "writes value {}, which does not exist", id);
      NEREID_REQUIRE(!written_[id], "writes '{}' a second time", value(id).name);
      written_[id] = true;
    }
    for (const WeightId id : weights(op)) {
      NEREID_REQUIRE(id >= 0 && static_cast<size_t>(id) < graph_.weights.size(),
                     "uses weight {}, which does not exist", id);
      used_[id] = true;
    }
    return ok();
  }

  Status expect(ValueId id, io::Extent extent, DType dtype, int64_t cols) const {
    NEREID_REQUIRE(id != kNone, "an operand is missing");
    const Value& v = value(id);
    NEREID_REQUIRE(v.extent == extent && v.dtype == dtype && v.cols == cols,
                   "'{}' is {} [{}] with extent {}, wanted {} [{}] with extent {}", v.name,
                   nereid::name_of(v.dtype), v.cols, static_cast<int>(v.extent),
                   nereid::name_of(dtype), cols, static_cast<int>(extent));
    return ok();
  }
  Status expect_vector(WeightId id, int64_t size) const {
    NEREID_REQUIRE(id != kNone, "a weight is missing");
    NEREID_REQUIRE(weight(id).is_vector && weight(id).k == size,
                   "'{}' [{}, {}] is not a vector of {}", weight(id).name, weight(id).n,
                   weight(id).k, size);
    return ok();
  }

  Status shapes(const Embed& x) const {
    NEREID_REQUIRE(x.table != kNone, "a weight is missing");
    NEREID_REQUIRE(weight(x.table).n == graph_.model.vocab_size, "table has {} rows",
                   weight(x.table).n);
    return expect(x.out, io::Extent::kTokens, DType::kF32, weight(x.table).k);
  }
  Status shapes(const Norm& x) const {
    NEREID_REQUIRE((x.add == kNone) == (x.sum_out == kNone), "'add' without 'sum_out'");
    NEREID_REQUIRE(x.x != kNone && x.out != kNone, "an operand is missing");
    const Value& in = value(x.x);
    RETURN_IF_ERROR(expect(x.x, in.extent, DType::kF32, in.cols));
    RETURN_IF_ERROR(expect(x.out, in.extent, value(x.out).dtype, in.cols));
    RETURN_IF_ERROR(expect_vector(x.weight, in.cols));
    if (x.add == kNone) return ok();
    RETURN_IF_ERROR(expect(x.add, in.extent, DType::kF32, in.cols));
    return expect(x.sum_out, in.extent, DType::kF32, in.cols);
  }
  Status shapes(const Linear& x) const {
    NEREID_REQUIRE(x.weight != kNone && x.x != kNone && x.out != kNone, "an operand is missing");
    const Weight& w = weight(x.weight);
    const io::Extent extent = value(x.x).extent;
    RETURN_IF_ERROR(expect(x.x, extent, DType::kBF16, w.k));
    RETURN_IF_ERROR(expect(x.out, extent, value(x.out).dtype, w.n));
    return x.bias == kNone ? ok() : expect_vector(x.bias, w.n);
  }
  Status shapes(const Concat& x) const {
    NEREID_REQUIRE(!x.parts.empty() && x.out != kNone, "an operand is missing");
    const Value& out = value(x.out);
    int64_t cols = 0;
    for (const ValueId part : x.parts) {
      RETURN_IF_ERROR(expect(part, out.extent, out.dtype, value(part).cols));
      cols += value(part).cols;
    }
    NEREID_REQUIRE(cols == out.cols, "parts have {} columns, the whole {}", cols, out.cols);
    return ok();
  }
  Status shapes(const Rope& x) const {
    RETURN_IF_ERROR(heads(x.heads));
    RETURN_IF_ERROR(expect(x.qkv, io::Extent::kTokens, DType::kF32, x.heads.width()));
    return expect(x.out, io::Extent::kTokens, DType::kF32, x.heads.width());
  }
  Status shapes(const Attention& x) const {
    RETURN_IF_ERROR(heads(x.heads));
    RETURN_IF_ERROR(expect(x.qkv, io::Extent::kTokens, DType::kF32, x.heads.width()));
    return expect(x.out, io::Extent::kTokens, DType::kBF16, int64_t{x.heads.num} * x.heads.dim);
  }
  Status shapes(const Glu& x) const {
    NEREID_REQUIRE(x.x != kNone && x.out != kNone, "an operand is missing");
    const Value& out = value(x.out);
    RETURN_IF_ERROR(expect(x.x, out.extent, DType::kF32, 2 * out.cols));
    return expect(x.out, out.extent, DType::kBF16, out.cols);
  }
  Status shapes(const Add& x) const {
    NEREID_REQUIRE(x.out != kNone, "an operand is missing");
    const Value& out = value(x.out);
    for (const ValueId id : {x.x, x.y, x.out})
      RETURN_IF_ERROR(expect(id, out.extent, DType::kF32, out.cols));
    return ok();
  }
  Status shapes(const GatherRows& x) const {
    NEREID_REQUIRE(x.out != kNone, "an operand is missing");
    RETURN_IF_ERROR(expect(x.x, io::Extent::kTokens, DType::kF32, value(x.out).cols));
    return expect(x.out, io::Extent::kSampled, DType::kF32, value(x.out).cols);
  }
  Status heads(const Heads& h) const {
    const io::ModelFacts& m = graph_.model;
    NEREID_REQUIRE(h == (Heads{m.num_heads, m.num_kv_heads, m.head_dim}),
                   "{} + 2 * {} heads of {} differ from the model's", h.num, h.num_kv, h.dim);
    return ok();
  }

  const Graph& graph_;
  std::vector<bool> written_;
  std::vector<bool> used_;
};

#undef NEREID_REQUIRE

}  // namespace

Status verify(const Graph& graph) { return Verifier(graph).run(); }

}  // namespace nereid::graph
