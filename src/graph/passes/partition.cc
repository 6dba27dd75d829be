// Sharding: makes the graph of one rank from that of the whole model. Tensor ranks compute heads,
// columns and experts; layouts of values follow from the divisions of weights, and ops that cannot
// read a divided operand get an all_reduce or all_gather in front. keep_stage() cuts the stages.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>

#include "graph/passes/passes.h"

namespace nereid::graph {
namespace {

struct Range {
  int64_t begin = 0, size = 0;
  int64_t end() const { return begin + size; }
  auto operator<=>(const Range&) const = default;
};
using Ranges = std::vector<Range>;

// Ranks that divide something, and one of them.
struct Team {
  int64_t ranks = 1, rank = 0;
};

// A rank's units. Fewer units than ranks: ranks share one.
Range share_of(int64_t count, const Team& team) {
  const int64_t begin = kernels::share_begin(count, team.ranks, team.rank);
  const int64_t end = kernels::share_begin(count, team.ranks, team.rank + 1);
  return {begin, std::max<int64_t>(end - begin, 1)};
}

int64_t size_of(const Ranges& ranges) {
  int64_t size = 0;
  for (const Range& range : ranges) size += range.size;
  return size;
}

// A rank's columns of a division.
Ranges ranges_of(const Division& division, const Team& team) {
  Ranges ranges;
  int64_t at = 0;
  for (const Units& units : division) {
    const Range share = share_of(units.count, team);
    ranges.push_back({at + share.begin * units.size, share.size * units.size});
    at += units.count * units.size;
  }
  return ranges;
}

bool is_divided(const Division& division) {
  return std::ranges::any_of(division, [](const Units& units) { return units.count > 1; });
}

// Rows `range` of stacked parts. `width`: columns of the weight, 1 for vectors.
void take_rows(const std::vector<WeightPart>& parts, int64_t width, bool is_vector, Range range,
               std::vector<WeightPart>& out) {
  int64_t at = 0;
  for (size_t i = 0, next = 0; i < parts.size(); i = next) {
    int64_t col = 0;
    do col += is_vector ? width : parts[next].width(width), ++next;
    while (col < width && next < parts.size());
    const int64_t begin = std::max(range.begin, at),
                  end = std::min(range.end(), at + parts[i].size);
    for (size_t p = i; begin < end && p < next; ++p) {
      WeightPart part = parts[p];
      if (!part.elements.empty()) {
        const auto first = part.elements.begin() + static_cast<ptrdiff_t>(begin - at);
        part.elements = std::vector<int32_t>(first, first + static_cast<ptrdiff_t>(end - begin));
      } else {
        part.total = part.tensor_rows();
        part.first += (begin - at) * part.step;
      }
      part.size = end - begin;
      out.push_back(std::move(part));
    }
    at += parts[i].size;
  }
}

// Columns `range` of a matrix of k columns.
std::vector<WeightPart> take_columns(const std::vector<WeightPart>& parts, int64_t k, Range range) {
  std::vector<WeightPart> out;
  int64_t at = 0;  // first column of the part
  for (const WeightPart& whole : parts) {
    const int64_t width = whole.width(k);
    const int64_t begin = std::max(range.begin, at), end = std::min(range.end(), at + width);
    if (begin < end) {
      WeightPart part = whole;
      part.total_cols = whole.tensor_cols(k);
      part.first_col += begin - at;
      part.cols = end - begin;
      out.push_back(std::move(part));
    }
    at = (at + width) % k;
  }
  return out;
}

// How a rank has a value.
struct Layout {
  Division columns;      // of the whole value; empty: all columns on every rank
  bool partial = false;  // the value is the sum over ranks
  // Pieces of the experts of other ranks are zeros, or undefined and not read.
  bool masked = false;
  bool by_experts = false;  // columns are divided among the ranks of an expert
  bool is_whole() const { return columns.empty() && !partial && !masked; }
};

class Partitioner {
 public:
  explicit Partitioner(const Graph& graph, const io::Mapping& mapping)
      : in_(graph),
        mapping_(mapping),
        tensor_{mapping.tp, mapping.tensor_rank()},
        expert_{mapping.tp / mapping.ep, mapping.tensor_rank() / mapping.ep},
        layouts_(graph.values.size()),
        local_(graph.values.size(), kNone),
        whole_(graph.values.size(), kNone) {
    out_.model = graph.model;
    out_.mapping = mapping;
    out_.modules = graph.modules;
  }

  StatusOr<Graph> run() && {
    for (const Node& node : in_.nodes) {
      const Status status = std::visit([&](const auto& op) { return add(op); }, node.op);
      if (!status.ok()) {
        const std::vector<ValueId> made = outputs(node.op);
        return annotate(status,
                        made.empty() ? std::string(name_of(node.op)) : in_.values[made[0]].name);
      }
    }
    ASSIGN_OR_RETURN(out_.logits, whole(in_.logits));
    for (const ValueId id : in_.hidden) {
      ASSIGN_OR_RETURN(const ValueId hidden, whole(id));
      out_.hidden.push_back(hidden);
    }
    for (const ValueId id : in_.residuals) {
      ASSIGN_OR_RETURN(const ValueId residual, whole(id));
      out_.residuals.push_back(residual);
    }
    return std::move(out_);
  }

 private:
  const Value& value(ValueId id) const { return in_.values[id]; }
  const Layout& layout(ValueId id) const { return layouts_[id]; }
  const Team& team_of(const Layout& layout) const { return layout.by_experts ? expert_ : tensor_; }

  ValueId new_value(Value value, int64_t cols) {
    value.cols = cols;
    out_.values.push_back(std::move(value));
    return static_cast<ValueId>(out_.values.size() - 1);
  }
  // The rank's value of `id`, with its layout.
  ValueId set(ValueId id, Layout layout) {
    const int64_t cols = layout.columns.empty()
                             ? value(id).cols
                             : size_of(ranges_of(layout.columns, team_of(layout)));
    local_[id] = new_value(value(id), cols);
    layouts_[id] = std::move(layout);
    return local_[id];
  }
  template <class Op>
  void emit(Op op) {
    out_.nodes.push_back({std::move(op)});
  }

  // The value with all columns and the sum of all ranks.
  StatusOr<ValueId> whole(ValueId id) {
    if (id == kNone || layout(id).is_whole()) return id == kNone ? kNone : local_[id];
    if (whole_[id] != kNone) return whole_[id];
    const Layout& from = layout(id);
    if (from.masked && !from.partial)
      return unsupported("experts of other ranks are read by an op that is not a product");
    ValueId x = local_[id];
    if (from.partial) {
      Value sum = out_.values[x];
      sum.name += ".sum";
      const ValueId out = new_value(sum, sum.cols);
      emit(AllReduce{.x = x, .out = out});
      x = out;
    }
    if (!from.columns.empty()) {
      ASSIGN_OR_RETURN(x, gather(id, x));
    }
    return whole_[id] = x;
  }

  StatusOr<ValueId> gather(ValueId id, ValueId x) {
    const Layout& from = layout(id);
    const Units& units = from.columns[0];
    const bool is_even =
        std::ranges::all_of(from.columns, [&](const Units& u) { return u == units; });
    if (!is_even || from.by_experts)
      return unsupported("columns of several kinds are divided and read whole");
    Value all = value(id);
    all.name += ".all";
    const ValueId out = new_value(all, value(id).cols);
    emit(AllGather{.x = x,
                   .unit = units.size,
                   .pieces = static_cast<int32_t>(from.columns.size()),
                   .out = out});
    return out;
  }

  // Refuses divisions that do not fit the ranks.
  static Status check(const Weight& weight, const Division& division, const Team& team) {
    for (const Units& units : division) {
      const bool fits = units.count == 1 || units.may_differ || units.count % team.ranks == 0 ||
                        (units.repeats && team.ranks % units.count == 0);
      if (!fits)
        return invalid_argument("weight '{}': {} units of {} cannot be divided among {} ranks",
                                weight.name, units.count, units.size, team.ranks);
    }
    return ok();
  }
  static Status check_columns(const Weight& weight, Range range) {
    const int64_t group = weight.format.group_size(weight.k);
    if (group == weight.k || (range.begin % group == 0 && range.size % group == 0)) {
      if (!weight.format.ordered) return ok();
      return invalid_argument("weight '{}': reordered columns cannot be divided among ranks",
                              weight.name);
    }
    return invalid_argument(
        "weight '{}': columns [{}, {}) of {} are not whole groups of {}; use fewer ranks, or "
        "weights in other groups",
        weight.name, range.begin, range.end(), weight.k, group);
  }

  // The weight, or the given experts, rows and columns of it.
  struct Cut {
    std::optional<Range> experts, columns;
    std::optional<Ranges> rows;  // of each matrix; elements of a vector
    std::string suffix;
  };
  WeightId take(WeightId id, const Cut& cut = {}) {
    if (id == kNone) return kNone;
    std::string key = fmt::format("{}{}", id, cut.suffix);
    const auto add_range = [&](const Range& r) { key += fmt::format(" {}+{}", r.begin, r.size); };
    if (cut.experts) key += " e", add_range(*cut.experts);
    if (cut.columns) key += " c", add_range(*cut.columns);
    if (cut.rows) {
      key += " r";
      for (const Range& r : *cut.rows) add_range(r);
    }
    const auto [found, is_new] = weights_.try_emplace(key, kNone);
    if (!is_new) return found->second;
    Weight weight = in_.weights[id];
    weight.rows = {}, weight.cols = {}, weight.by_expert = false;
    weight.sources.clear();
    weight.name += cut.suffix;
    const int64_t width = weight.is_vector ? 1 : weight.k;
    const int64_t rows = weight.is_vector ? weight.k : weight.n;
    if (cut.experts || cut.rows) {
      const Range experts = cut.experts.value_or(Range{0, weight.experts});
      const Ranges kept = cut.rows.value_or(Ranges{{0, rows}});
      std::vector<WeightPart> parts;
      for (int64_t e = experts.begin; e < experts.end(); ++e)
        for (const Range& r : kept)
          take_rows(weight.parts, width, weight.is_vector, {e * rows + r.begin, r.size}, parts);
      weight.parts = std::move(parts);
      weight.experts = experts.size;
      (weight.is_vector ? weight.k : weight.n) = size_of(kept);
    }
    if (cut.columns) {
      weight.parts = take_columns(weight.parts, weight.k, *cut.columns);
      weight.k = cut.columns->size;
    }
    out_.weights.push_back(std::move(weight));
    return found->second = static_cast<WeightId>(out_.weights.size() - 1);
  }

  Status add(const Concat& op) {
    Layout layout;
    Concat local;
    const bool divided = std::ranges::any_of(
        op.parts, [&](ValueId id) { return !this->layout(id).columns.empty(); });
    const bool masked =
        std::ranges::any_of(op.parts, [&](ValueId id) { return this->layout(id).masked; });
    for (const ValueId id : op.parts) {
      const Layout& part = this->layout(id);
      if (part.partial || (masked && !part.masked)) {
        ASSIGN_OR_RETURN(const ValueId x, whole(id));
        local.parts.push_back(x);
      } else {
        local.parts.push_back(local_[id]);
        layout.by_experts = layout.by_experts || part.by_experts;
      }
      if (divided && !part.partial && !part.columns.empty())
        layout.columns.insert(layout.columns.end(), part.columns.begin(), part.columns.end());
      else if (divided)
        layout.columns.push_back({1, value(id).cols});
    }
    layout.masked = masked;
    local.out = set(op.out, std::move(layout));
    emit(std::move(local));
    return ok();
  }

  Status add(const Slice& op) {
    const Layout& from = layout(op.x);
    if (from.columns.empty()) {
      Slice local = op;
      ASSIGN_OR_RETURN(local.x, whole(op.x));
      local.out = set(op.out, {});
      emit(local);
      return ok();
    }
    Layout layout{.partial = from.partial, .masked = from.masked, .by_experts = from.by_experts};
    const Ranges ranges = ranges_of(from.columns, team_of(from));
    int64_t at = 0, column = 0;
    const int64_t end = op.column + value(op.out).cols;
    Slice local{.x = local_[op.x], .column = kNone};
    for (size_t i = 0; i < ranges.size(); ++i) {
      const int64_t size = from.columns[i].count * from.columns[i].size;
      const bool is_in = at >= op.column && at + size <= end;
      if (!is_in && at < end && at + size > op.column)
        return unsupported("a part of divided columns");
      if (is_in) {
        if (local.column == kNone) local.column = column;
        layout.columns.push_back(from.columns[i]);
      }
      at += size, column += ranges[i].size;
    }
    local.out = set(op.out, std::move(layout));
    emit(local);
    return ok();
  }

  // Ops that read whole values and make whole ones.
  template <class Op>
  Status add_whole(Op op) {
    Status status;
    kernels::for_fields(op, [&](const auto& field, auto& operand) {
      constexpr kernels::Role kRole = std::remove_cvref_t<decltype(field)>::kRole;
      if constexpr (kRole == kernels::Role::kIn) {
        const StatusOr<ValueId> x = whole(operand);
        if (!x.ok()) return status.Update(x.status());
        operand = *x;
      }
      if constexpr (kRole == kernels::Role::kMatrix || kRole == kernels::Role::kVector)
        operand = take(operand);
    });
    RETURN_IF_ERROR(status);
    kernels::for_fields(op, [&](const auto& field, auto& operand) {
      if constexpr (std::remove_cvref_t<decltype(field)>::kRole == kernels::Role::kOut)
        if (operand != kNone) operand = set(operand, {});
    });
    emit(std::move(op));
    return ok();
  }
  template <class Op>
  Status add(const Op& op) {
    return add_whole(op);
  }

  // Functions of single elements keep the division.
  template <class Op>
  Status add_elementwise(Op op) {
    Layout layout = this->layout(op.x);
    if (layout.partial) {
      ASSIGN_OR_RETURN(op.x, whole(op.x));
      layout = {};
    } else {
      op.x = local_[op.x];
    }
    kernels::for_fields(op, [&](const auto& field, auto& operand) {
      if constexpr (std::remove_cvref_t<decltype(field)>::kRole == kernels::Role::kVector)
        operand = take(operand);
    });
    op.out = set(op.out, std::move(layout));
    emit(std::move(op));
    return ok();
  }
  Status add(const Activate& op) { return add_elementwise(op); }
  Status add(const SoftCap& op) { return add_elementwise(op); }
  Status add(const Xielu& op) { return add_elementwise(op); }
  Status add(const ScaleByPosition& op) { return add_elementwise(op); }

  // Rows are chosen before or behind a sum.
  Status add(const GatherRows& op) {
    if (op.count > 1) return add_whole(op);
    GatherRows local = op;
    local.x = local_[op.x];
    local.out = set(op.out, layout(op.x));
    emit(local);
    return ok();
  }

  Status add(const Add& op) {
    const Layout &x = layout(op.x), &y = layout(op.y);
    Layout layout;
    Add local = op;
    if (x.partial && y.partial && x.columns.empty() && y.columns.empty() && !mapping_.invariant) {
      layout.partial = true;
      local.x = local_[op.x], local.y = local_[op.y];
    } else if (!x.partial && !y.partial && !x.columns.empty() && x.columns == y.columns &&
               x.by_experts == y.by_experts) {
      layout = x;
      local.x = local_[op.x], local.y = local_[op.y];
    } else {
      ASSIGN_OR_RETURN(local.x, whole(op.x));
      ASSIGN_OR_RETURN(local.y, whole(op.y));
    }
    local.out = set(op.out, std::move(layout));
    emit(local);
    return ok();
  }

  Status add(const Glu& op) {
    Layout layout = this->layout(op.x);
    Glu local = op;
    const size_t half = layout.columns.size() / 2;
    const bool is_even =
        layout.columns.size() % 2 == 0 &&
        std::equal(layout.columns.begin(), layout.columns.begin() + static_cast<int64_t>(half),
                   layout.columns.begin() + static_cast<int64_t>(half));
    if (layout.partial || !is_even) {
      ASSIGN_OR_RETURN(local.x, whole(op.x));
      layout = {};
    } else {
      local.x = local_[op.x];
      layout.columns.resize(half);
    }
    local.out = set(op.out, std::move(layout));
    emit(local);
    return ok();
  }

  Status add(const Norm& op) {
    const Layout& x = layout(op.x);
    if (op.add != kNone || x.columns.empty() || x.partial) return add_whole(op);
    const int64_t width = in_.weights[op.weight].k, piece = op.piece > 0 ? op.piece : width;
    const bool has_pieces =
        std::ranges::all_of(x.columns, [&](const Units& units) { return units.size % piece == 0; });
    if (!has_pieces) return add_row_norm(op);
    Norm local = op;
    Cut cut;
    if (width != piece) {  // a weight for each unit
      if (width != value(op.x).cols) return unsupported("a norm weight of some heads");
      cut.rows = ranges_of(x.columns, team_of(x));
    }
    local.weight = take(op.weight, cut);
    local.bias = take(op.bias, cut);
    local.x = local_[op.x];
    local.out = set(op.out, x);
    emit(local);
    return ok();
  }

  // The norm of whole rows, of which the rank keeps its columns.
  Status add_row_norm(const Norm& op) {
    const Layout& x = layout(op.x);
    const Ranges ranges = ranges_of(x.columns, team_of(x));
    if (ranges.size() != 1) return unsupported("a norm of columns of several kinds");
    Norm norm = op;
    ASSIGN_OR_RETURN(norm.x, whole(op.x));
    norm.weight = take(op.weight), norm.bias = take(op.bias);
    Value all = value(op.out);
    all.name += ".all";
    norm.out = new_value(all, value(op.out).cols);
    emit(norm);
    const ValueId out = set(op.out, x);
    if (value(op.out).dtype == value(op.x).dtype)
      emit(TakeColumns{.x = norm.out, .over = local_[op.x], .column = ranges[0].begin, .out = out});
    else
      emit(Slice{.x = norm.out, .column = ranges[0].begin, .out = out});
    return ok();
  }

  // Heads on this rank.
  kernels::Heads local_heads(kernels::Heads heads, const Layout& layout) const {
    if (layout.columns.empty()) return heads;
    heads.num = static_cast<int32_t>(share_of(heads.num, tensor_).size);
    heads.num_kv = static_cast<int32_t>(share_of(heads.num_kv, tensor_).size);
    return heads;
  }

  Status add(const Rope& op) {
    const Layout& x = layout(op.qkv);
    if (x.partial) return add_whole(op);
    Rope local = op;
    local.heads = local_heads(op.heads, x);
    local.qkv = local_[op.qkv];
    local.out = set(op.out, x);
    emit(local);
    return ok();
  }

  Status add(const Attention& op) {
    const Layout& x = layout(op.qkv);
    out_.caches.push_back({op.cache, op.window, op.heads.num_kv, op.heads.dim, op.heads.latent});
    if (x.columns.empty()) return add_whole(op);
    Attention local = op;
    local.qkv = local_[op.qkv];
    local.heads = local_heads(op.heads, x);
    out_.caches.back().num_kv = local.heads.num_kv;
    const Range heads = share_of(op.heads.num, tensor_);
    if (op.alibi > 0) {
      local.alibi_first = static_cast<int32_t>(heads.begin);
      local.alibi_heads = op.heads.num;
    }
    local.sinks = take(op.sinks, {.rows = Ranges{heads}});
    const int64_t width = op.bias_width;
    local.bias = take(op.bias, {.rows = Ranges{{heads.begin * width, heads.size * width}}});
    const Units units{op.heads.num, op.heads.value_dim()};
    local.out = set(op.out, op.heads.num > 1 ? Layout{.columns = {units}} : Layout());
    emit(local);
    return ok();
  }

  Status add(const CrossAttention& op) {
    const Layout& q = layout(op.q);
    if (q.columns.empty()) return add_whole(op);
    CrossAttention local = op;
    local.q = local_[op.q];
    local.heads = local_heads(op.heads, q);
    local.out = set(op.out, {.columns = {Units{op.heads.num, op.heads.dim}}});
    emit(local);
    return ok();
  }
  Status add(const StoreKv& op) {
    const Layout& kv = layout(op.kv);
    if (kv.columns.empty()) return add_whole(op);
    StoreKv local = op;
    local.kv = local_[op.kv];
    local.heads = local_heads(op.heads, kv);
    emit(local);
    return ok();
  }

  Status add(const HeadLinear& op) {
    const Layout& x = layout(op.x);
    const Weight& weight = in_.weights[op.weight];
    if (x.columns.empty() || x.columns.size() != 1 || x.columns[0].count != weight.experts)
      return add_whole(op);
    HeadLinear local = op;
    local.x = local_[op.x];
    local.weight = take(op.weight, {.experts = share_of(weight.experts, tensor_)});
    local.out = set(op.out, {.columns = {Units{weight.experts, op.kept + weight.n}}});
    emit(local);
    return ok();
  }

  Status add(const Linear& op) {
    const Weight& weight = in_.weights[op.weight];
    if (is_divided(weight.cols)) return add_row_parallel(op);
    if (!is_divided(weight.rows) || tensor_.ranks == 1) return add_whole(op);
    RETURN_IF_ERROR(check(weight, weight.rows, tensor_));
    Linear local = op;
    ASSIGN_OR_RETURN(local.x, whole(op.x));
    ASSIGN_OR_RETURN(local.scales, whole(op.scales));
    const Cut cut{.rows = ranges_of(weight.rows, tensor_)};
    local.weight = take(op.weight, cut);
    local.bias = take(op.bias, cut);
    local.out = set(op.out, {.columns = weight.rows});
    emit(local);
    return ok();
  }

  // Parts of the columns over all ranks; sums are those of as many numbers, in a pairwise tree.
  StatusOr<int64_t> num_parts(const Weight& weight, const Units& units) const {
    if (!mapping_.invariant) return tensor_.ranks;
    const int64_t group = weight.format.group_size(weight.k);
    const int64_t unit = group == weight.k ? units.size : std::lcm(units.size, group);
    int64_t parts = io::kInvariantParts;
    while (parts > 1 && weight.k % (parts * unit) != 0) parts /= 2;
    if (parts % tensor_.ranks == 0) return parts;
    return invalid_argument(
        "weight '{}': its {} columns have {} parts of whole units of {}, which cannot be divided "
        "among {} ranks with equal results; use fewer ranks, or no tp_invariant",
        weight.name, weight.k, parts, unit, tensor_.ranks);
  }

  // The product of the rank's columns: a part of the sum.
  Status add_row_parallel(const Linear& op) {
    const Weight& weight = in_.weights[op.weight];
    if (weight.cols.size() != 1) return unsupported("columns of several kinds are divided");
    RETURN_IF_ERROR(check(weight, weight.cols, tensor_));
    ASSIGN_OR_RETURN(const int64_t parts, num_parts(weight, weight.cols[0]));
    if (parts == 1) return add_whole(op);
    if (op.scales != kNone) return unsupported("rows with scales are divided");
    const Range mine = ranges_of(weight.cols, tensor_)[0];
    ValueId x = local_[op.x];
    int64_t first = mine.begin;  // column of the weight at column 0 of x
    const bool fits =
        !layout(op.x).partial && layout(op.x).columns == weight.cols && !layout(op.x).by_experts;
    if (!fits) {
      ASSIGN_OR_RETURN(x, whole(op.x));
      first = 0;
    }
    const int64_t here = parts / tensor_.ranks;
    std::vector<ValueId> sums;
    for (int64_t i = 0; i < here; ++i) {
      const int64_t part = tensor_.rank * here + i;
      const Range columns = here == 1 ? mine : Range{weight.k / parts * part, weight.k / parts};
      RETURN_IF_ERROR(check_columns(weight, columns));
      Linear local = op;
      local.x = x;
      if (columns.begin != first || columns.size != out_.values[x].cols) {
        Value slice = out_.values[x];
        slice.name += fmt::format(".part{}", part);
        local.x = new_value(slice, columns.size);
        emit(Slice{.x = x, .column = columns.begin - first, .out = local.x});
      }
      local.weight = take(
          op.weight, {.columns = columns, .suffix = here == 1 ? "" : fmt::format(".part{}", part)});
      local.bias = part == 0 ? take(op.bias) : kNone;
      local.out = new_value(value(op.out), value(op.out).cols);
      emit(local);
      sums.push_back(local.out);
    }
    for (; sums.size() > 1; sums.resize(sums.size() / 2))
      for (size_t i = 0; i < sums.size() / 2; ++i) {
        const ValueId out = new_value(value(op.out), value(op.out).cols);
        emit(Add{.x = sums[2 * i], .y = sums[2 * i + 1], .out = out});
        sums[i] = out;
      }
    local_[op.out] = sums[0];
    layouts_[op.out] = {.partial = tensor_.ranks > 1};
    return ok();
  }

  // Indices of the rank's experts.
  ValueId select_experts(ValueId experts, int64_t num_experts) {
    if (mapping_.ep == 1) return local_[experts];
    ValueId& selected = selected_.try_emplace(experts, kNone).first->second;
    if (selected != kNone) return selected;
    const Range share = share_of(num_experts, {mapping_.ep, tensor_.rank % mapping_.ep});
    Value value = in_.values[experts];
    value.name += ".here";
    selected = new_value(value, value.cols);
    emit(SelectExperts{.experts = local_[experts],
                       .first = static_cast<int32_t>(share.begin),
                       .count = static_cast<int32_t>(share.size),
                       .out = selected});
    return selected;
  }

  Status add(const ExpertLinear& op) {
    const Weight& weight = in_.weights[op.weight];
    if (tensor_.ranks == 1) return add_whole(op);
    if (mapping_.invariant && expert_.ranks > 1)
      return invalid_argument(
          "tp_invariant: experts are divided by index only; use as many expert ranks as tensor "
          "ranks ({})",
          tensor_.ranks);
    if (weight.experts % mapping_.ep != 0)
      return invalid_argument("weight '{}': {} experts cannot be divided among {} expert ranks",
                              weight.name, weight.experts, mapping_.ep);
    ExpertLinear local = op;
    local.experts = select_experts(op.experts, weight.experts);
    Cut cut{.experts = share_of(weight.experts, {mapping_.ep, tensor_.rank % mapping_.ep})};
    Layout layout{.masked = mapping_.ep > 1};
    const int64_t pieces = value(op.experts).cols;
    const Layout& x = this->layout(op.x);
    if (expert_.ranks > 1 && is_divided(weight.cols)) {
      RETURN_IF_ERROR(check(weight, weight.cols, expert_));
      cut.columns = ranges_of(weight.cols, expert_)[0];
      RETURN_IF_ERROR(check_columns(weight, *cut.columns));
      const bool fits = x.by_experts && !x.columns.empty();
      if (!fits) return unsupported("the experts' inputs are not divided as their columns");
      layout.partial = true;
      local.x = local_[op.x];
    } else if (expert_.ranks > 1 && is_divided(weight.rows)) {
      RETURN_IF_ERROR(check(weight, weight.rows, expert_));
      cut.rows = ranges_of(weight.rows, expert_);
      for (int64_t i = 0; i < pieces; ++i)
        layout.columns.insert(layout.columns.end(), weight.rows.begin(), weight.rows.end());
      layout.by_experts = true;
      ASSIGN_OR_RETURN(local.x, whole(op.x));
    } else if (x.masked && !x.partial) {
      local.x = local_[op.x];
    } else {
      ASSIGN_OR_RETURN(local.x, whole(op.x));
    }
    ASSIGN_OR_RETURN(local.scales, whole(op.scales));
    local.weight = take(op.weight, cut);
    // One rank of an expert adds its bias.
    const bool adds = !layout.partial || expert_.rank == 0;
    local.bias = adds ? take(op.bias, {.experts = cut.experts, .rows = cut.rows}) : kNone;
    // Zeros of other ranks' experts make it a sum over ranks, too.
    layout.partial = layout.partial || (layout.masked && is_divided(weight.cols));
    local.out = set(op.out, std::move(layout));
    emit(local);
    return ok();
  }
  Status add(const WeightedSum& op) {
    const Layout& x = layout(op.x);
    WeightedSum local = op;
    ASSIGN_OR_RETURN(local.weights, whole(op.weights));
    Layout layout;
    if (x.partial && x.columns.empty() && !mapping_.invariant) {
      layout.partial = true;
      local.x = local_[op.x];
    } else if (!x.columns.empty() && !x.masked && !x.partial && value(op.weights).cols == 1) {
      layout = x;
      local.x = local_[op.x];
    } else if (x.masked && !x.partial && x.columns.empty() && value(op.weights).cols == 1) {
      layout = x;  // of one expert
      local.x = local_[op.x];
    } else {
      ASSIGN_OR_RETURN(local.x, whole(op.x));
    }
    local.out = set(op.out, std::move(layout));
    emit(local);
    return ok();
  }

  // Adapters have all inputs of a product and the rank's outputs.
  Status add(const LowRank& op) {
    LowRank local = op;
    local.first_module = static_cast<int32_t>(out_.module_parts.size());
    Layout y = layout(op.y);
    if (op.experts != kNone) return add_expert_adapters(op, local);
    ASSIGN_OR_RETURN(local.x, whole(op.x));
    if (y.partial) {
      ASSIGN_OR_RETURN(local.y, whole(op.y));
      y = {};
    } else {
      local.y = local_[op.y];
    }
    const Ranges here =
        y.columns.empty() ? Ranges{{0, value(op.y).cols}} : ranges_of(y.columns, tensor_);
    for (int32_t i = 0; i < op.num_modules; ++i) add_part(op.first_module + i, here);
    local.num_modules = static_cast<int32_t>(out_.module_parts.size()) - local.first_module;
    const ValueId out = set(op.out, std::move(y));
    if (local.num_modules == 0) {  // no column of a module is here
      out_.values.pop_back();
      local_[op.out] = local.y;
      return ok();
    }
    local.out = out;
    emit(local);
    return ok();
  }
  Status add_expert_adapters(const LowRank& op, LowRank local) {
    const Layout& y = layout(op.y);
    if (expert_.ranks > 1)
      return invalid_argument(
          "adapters of experts need experts that are divided by index only: as many expert ranks "
          "as tensor ranks ({})",
          tensor_.ranks);
    const Range experts = share_of(op.num_experts, {mapping_.ep, tensor_.rank % mapping_.ep});
    if (layout(op.x).masked) {
      local.x = local_[op.x];
    } else {
      ASSIGN_OR_RETURN(local.x, whole(op.x));
    }
    local.experts = select_experts(op.experts, op.num_experts);
    local.y = local_[op.y];
    local.num_experts = static_cast<int32_t>(experts.size);
    for (int64_t e = experts.begin; e < experts.end(); ++e)
      for (int32_t i = 0; i < op.num_modules; ++i) {
        const auto module = op.first_module + static_cast<int32_t>(e) * op.num_modules + i;
        const io::AdapterModule& m = in_.modules[static_cast<size_t>(module)];
        out_.module_parts.push_back({module, m.column, {{0, m.n, 1}}});
      }
    local.out = set(op.out, y);
    emit(local);
    return ok();
  }

  // The part of a module in columns `here` of its product.
  void add_part(int32_t index, const Ranges& here) {
    const io::AdapterModule& m = in_.modules[static_cast<size_t>(index)];
    io::ModulePart part{.module = index};
    int64_t at = 0;  // column on the rank
    for (const Range& range : here) {
      const int64_t begin = std::max(range.begin, m.column),
                    end = std::min(range.end(), m.column + m.n);
      if (begin < end) {
        if (part.runs.empty()) part.column = at + begin - range.begin;
        part.runs.push_back({begin - m.column, end - begin, 1});
      }
      at += range.size;
    }
    if (!part.runs.empty()) out_.module_parts.push_back(std::move(part));
  }

  const Graph& in_;
  const io::Mapping mapping_;
  const Team tensor_, expert_;
  Graph out_;
  std::vector<Layout> layouts_;              // by value of in_
  std::vector<ValueId> local_, whole_;       // values of out_, by value of in_
  std::map<std::string, WeightId> weights_;  // of out_, by cut
  std::map<ValueId, ValueId> selected_;      // local experts, by experts
};

}  // namespace

Status partition(Graph& graph, const PassContext& context) {
  const io::Mapping& mapping = context.mapping;
  RETURN_IF_ERROR(io::check_mapping(mapping));
  if (mapping.is_single() && !mapping.invariant) return ok();
  ASSIGN_OR_RETURN(graph, Partitioner(graph, mapping).run());
  if (mapping.pp > 1) return keep_stage(graph);
  graph.caches.clear();
  if (mapping.is_single()) graph.module_parts.clear();
  sweep(graph);
  return ok();
}

}  // namespace nereid::graph
