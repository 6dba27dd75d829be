#include "graph/verify.h"

#include <algorithm>
#include <vector>

#include "io/op_check.h"

namespace nereid::graph {
namespace {

#define NEREID_REQUIRE(condition, ...) \
  if (!(condition)) return internal_error(__VA_ARGS__)

std::vector<kernels::WeightView> shapes_of(const Graph& graph) {
  std::vector<kernels::WeightView> shapes;
  for (const Weight& w : graph.weights) shapes.push_back(shape_of(w));
  return shapes;
}

class Verifier {
 public:
  explicit Verifier(const Graph& graph)
      : graph_(graph),
        ops_(graph.model, graph.values, shapes_of(graph)),
        written_(graph.values.size()),
        used_(graph.weights.size()) {}

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
    NEREID_REQUIRE(has_value(graph_.logits) || !graph_.mapping.is_last_stage() ||
                       (graph_.model.is_encoder && !graph_.hidden.empty()),
                   "there are no logits");
    if (has_value(graph_.logits))
      RETURN_IF_ERROR(
          expect(graph_.logits, io::RowCount::kSampled, DType::kF32, graph_.model.vocab_size));
    for (const ValueId id : graph_.hidden) {
      NEREID_REQUIRE(has_value(id), "hidden: no value {}", id);
      RETURN_IF_ERROR(expect(id, value(id).extent, DType::kBF16, graph_.model.hidden_size));
    }
    return ok();
  }

 private:
  bool has_value(ValueId id) const {
    return id >= 0 && static_cast<size_t>(id) < graph_.values.size();
  }
  const Value& value(ValueId id) const { return graph_.values[id]; }
  const Weight& weight(WeightId id) const { return graph_.weights[id]; }

  static Status check(const Weight& w) {
    NEREID_REQUIRE(w.n > 0 && w.k > 0 && w.experts > 0 && (w.n == 1 || !w.is_vector),
                   "weight '{}' is [{}, {}, {}]", w.name, w.experts, w.n, w.k);
    int64_t size = 0, rows = 0, col = 0;  // `rows`: of parts side by side up to `col`
    for (const WeightPart& part : w.parts) {
      const int64_t width = part.width(w.k);
      if (col == 0) rows = part.size;
      NEREID_REQUIRE(width > 0 && width <= w.k - col && part.size == rows &&
                         (width == w.k || (!w.is_vector && !part.unit_rows)) && part.pairs >= 0,
                     "weight '{}' has no place for '{}'", w.name, part.tensor);
      col = (col + width) % w.k;
      if (col == 0) size += rows;
      if (part.sinusoids != Sinusoids::kNone) {
        NEREID_REQUIRE(!w.is_vector && part.size == w.n && width == w.k && w.k % 2 == 0 &&
                           part.first >= 0 && w.k > 2,
                       "weight '{}' is no table of positions", w.name);
        continue;
      }
      if (!part.elements.empty()) {
        const int64_t end = part.total * part.total_cols;
        NEREID_REQUIRE(
            w.is_vector && std::ssize(part.elements) == part.size &&
                std::ranges::all_of(part.elements, [&](int32_t e) { return e >= 0 && e < end; }),
            "weight '{}' wants elements that '{}' does not have", w.name, part.tensor);
        continue;
      }
      NEREID_REQUIRE(
          part.size > 0 && part.step > 0 && part.first >= 0 && part.col_step > 0 &&
              part.first + (part.size - 1) * part.step < part.tensor_rows() && part.index >= 0 &&
              part.index < std::max<int64_t>(part.stacked, 1) && part.first_col >= 0 &&
              (w.is_vector
                   ? !part.transposed
                   : part.first_col <= part.tensor_cols(w.k) - (width - 1) * part.col_step - 1),
          "weight '{}' wants what '{}' does not have", w.name, part.tensor);
    }
    NEREID_REQUIRE(size == w.experts * (w.is_vector ? w.k : w.n),
                   "weight '{}' [{}, {}, {}] has parts of {}", w.name, w.experts, w.n, w.k, size);
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

  Status expect(ValueId id, io::RowCount extent, DType dtype, int64_t cols) const {
    NEREID_REQUIRE(id != kNone, "an operand is missing");
    const Value& v = value(id);
    NEREID_REQUIRE(v.extent == extent && v.dtype == dtype && v.cols == cols,
                   "'{}' is {} [{}] with extent {}, wanted {} [{}] with extent {}", v.name,
                   nereid::name_of(v.dtype), v.cols, static_cast<int>(v.extent),
                   nereid::name_of(dtype), cols, static_cast<int>(extent));
    return ok();
  }
  Status shapes(const Slice& x) const {
    NEREID_REQUIRE(x.x != kNone && x.out != kNone, "an operand is missing");
    const Value& in = value(x.x);
    const int64_t cols = value(x.out).cols;
    NEREID_REQUIRE(cols > 0 && x.column >= 0 && x.column <= in.cols - cols,
                   "columns [{}, {} + {}) of '{}' with {}", x.column, x.column, cols, in.name,
                   in.cols);
    return expect(x.out, in.extent, in.dtype, cols);
  }
  template <class T>
  Status shapes(const T& x) const {
    const Status status = ops_.check(x);
    return status.ok() ? ok() : internal_error("{}", message(status));
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
  const Graph& graph_;
  const io::OpChecker ops_;
  std::vector<bool> written_;
  std::vector<bool> used_;
};

#undef NEREID_REQUIRE

}  // namespace

Status verify(const Graph& graph) { return Verifier(graph).run(); }

}  // namespace nereid::graph
