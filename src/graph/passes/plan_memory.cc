// Assigns arena offsets. In-place updates, slices and concatenated parts share a buffer; buffers
// with disjoint lifetimes share memory (greedy by size, Pisarchyk and Lee, 2020: largest first,
// lowest free offset).
#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "base/round_up.h"
#include "graph/passes/passes.h"

namespace nereid::graph {
namespace {

constexpr int64_t kAlignment = 64;

struct Buffer {
  ValueId root = kNone;
  int32_t first = 0, last = 0;  // lifetime: first and last node, inclusive
  int64_t bytes = 0;            // per row
  int64_t offset = kNone;
};

class Planner {
 public:
  explicit Planner(Graph& graph)
      : graph_(graph), uses_(find_uses(graph)), home_(graph.values.size()) {}

  Status run() {
    for (size_t i = 0; i < home_.size(); ++i) home_[i] = {static_cast<ValueId>(i), 0};
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      RETURN_IF_ERROR(alias(static_cast<int32_t>(i)));
    for (io::RowCount extent : {io::RowCount::kTokens, io::RowCount::kSampled}) place(extent);
    return ok();
  }

 private:
  struct Home {
    ValueId in = kNone;  // itself, or the value whose buffer contains it
    int64_t column = 0;
  };
  Home resolve(ValueId id) const {
    Home home{id, 0};
    while (home_[home.in].in != home.in)
      home = {home_[home.in].in, home.column + home_[home.in].column};
    return home;
  }

  bool overlap(ValueId a, ValueId b) const {
    const Home x = resolve(a), y = resolve(b);
    return x.in == y.in && x.column < y.column + graph_.values[b].cols &&
           y.column < x.column + graph_.values[a].cols;
  }

  // A node after `node` that reads memory of `in` written before `node`; kNone: none.
  int32_t later_reader(int32_t node, ValueId in) const {
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      const auto id = static_cast<ValueId>(i);
      if (uses_.writer[id] >= node || !overlap(in, id)) continue;
      for (const int32_t reader : uses_.readers[id])
        if (reader > node) return reader;
    }
    return kNone;
  }

  // `out` reuses the memory of `in`, if required or possible.
  Status update_in_place(int32_t node, const InPlace& update) {
    const int32_t reader = later_reader(node, update.in);
    const Value& in = graph_.values[update.in];
    if (update.always && reader != kNone)
      return internal_error("'{}' is updated in place by node {} but read by node {}", in.name,
                            node, reader);
    const Value& out = graph_.values[update.out];
    if (update.always || (reader == kNone && in.dtype == out.dtype && in.cols == out.cols))
      home_[update.out] = {update.in, 0};
    return ok();
  }

  // Whether the parts are adjacent in one buffer already.
  bool is_contiguous(const Concat& concat) const {
    const Home first = resolve(concat.parts[0]);
    int64_t column = first.column;
    for (const ValueId part : concat.parts) {
      const Home home = resolve(part);
      if (home.in != first.in || home.column != column) return false;
      column += graph_.values[part].cols;
    }
    return true;
  }

  Status place_parts(const Concat& concat) {
    const Home first = resolve(concat.parts[0]);
    if (first.in != concat.parts[0] && is_contiguous(concat)) {
      home_[concat.out] = {first.in, first.column};
      return ok();
    }
    int64_t column = 0;
    for (const ValueId part : concat.parts) {
      const Home home = resolve(part);
      const int64_t cols = graph_.values[part].cols;
      if (home.in == concat.out || home.column != 0 || graph_.values[home.in].cols != cols)
        return internal_error("'{}' is part of '{}' and of something else",
                              graph_.values[part].name, graph_.values[concat.out].name);
      home_[home.in] = {concat.out, std::exchange(column, column + cols)};
    }
    return ok();
  }

  Status alias(int32_t node) {
    const Op& op = graph_.nodes[node].op;
    for (const InPlace& update : updates_in_place(op))
      RETURN_IF_ERROR(update_in_place(node, update));
    if (const auto* slice = std::get_if<Slice>(&op)) home_[slice->out] = {slice->x, slice->column};
    if (const auto* concat = std::get_if<Concat>(&op)) return place_parts(*concat);
    return ok();
  }

  std::vector<Buffer> buffers(io::RowCount extent) const {
    std::vector<Buffer> found(graph_.values.size());
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      const Value& v = graph_.values[i];
      if (v.extent != extent) continue;
      const auto id = static_cast<ValueId>(i);
      int32_t last = uses_.writer[id];
      for (const int32_t reader : uses_.readers[id]) last = std::max(last, reader);
      Buffer& buffer = found[resolve(id).in];
      const bool is_new = buffer.root == kNone;
      buffer.root = resolve(id).in;
      buffer.first = is_new ? uses_.writer[id] : std::min(buffer.first, uses_.writer[id]);
      buffer.last = is_new ? last : std::max(buffer.last, last);
      const Value& root = graph_.values[buffer.root];
      buffer.bytes = round_up(root.cols * static_cast<int64_t>(size_of(root.dtype)), kAlignment);
    }
    std::erase_if(found, [](const Buffer& b) { return b.root == kNone; });
    return found;
  }

  static int64_t lowest_free(const std::vector<const Buffer*>& placed, const Buffer& buffer) {
    std::vector<const Buffer*> rivals;  // alive at the same time, by offset
    for (const Buffer* other : placed)
      if (other->first <= buffer.last && buffer.first <= other->last) rivals.push_back(other);
    std::sort(rivals.begin(), rivals.end(),
              [](const Buffer* a, const Buffer* b) { return a->offset < b->offset; });
    int64_t offset = 0;
    for (const Buffer* other : rivals) {
      if (offset + buffer.bytes <= other->offset) break;
      offset = std::max(offset, other->offset + other->bytes);
    }
    return offset;
  }

  void place(io::RowCount extent) {
    std::vector<Buffer> all = buffers(extent);
    std::stable_sort(all.begin(), all.end(),
                     [](const Buffer& a, const Buffer& b) { return a.bytes > b.bytes; });
    std::vector<const Buffer*> placed;
    int64_t end = 0;
    for (Buffer& buffer : all) {
      buffer.offset = lowest_free(placed, buffer);
      placed.push_back(&buffer);
      end = std::max(end, buffer.offset + buffer.bytes);
    }
    graph_.arena_bytes_per_row[static_cast<int>(extent)] = end;
    std::vector<int64_t> offset_of(graph_.values.size(), kNone);
    for (const Buffer& buffer : all) offset_of[buffer.root] = buffer.offset;
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      Value& v = graph_.values[i];
      if (v.extent != extent) continue;
      const Home home = resolve(static_cast<ValueId>(i));
      v.offset = offset_of[home.in];
      v.column = home.column;
      v.stride = graph_.values[home.in].cols;
    }
  }

  Graph& graph_;
  const Uses uses_;
  std::vector<Home> home_;
};

}  // namespace

Status plan_memory(Graph& graph, const PassContext&) { return Planner(graph).run(); }

}  // namespace nereid::graph
