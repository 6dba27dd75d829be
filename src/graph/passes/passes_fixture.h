// Test only: passes over test graphs, for the reference kernels.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <variant>
#include <vector>

#include "graph/passes/passes.h"
#include "graph/test_graph.h"
#include "graph/verify.h"
#include "kernels/ref/ref.h"

namespace nereid::graph {

template <class T>
std::vector<T> all(const Graph& graph) {
  std::vector<T> found;
  for (const Node& node : graph.nodes)
    if (const T* op = std::get_if<T>(&node.op)) found.push_back(*op);
  return found;
}

class PassesTest : public testing::Test {
 protected:
  PassesTest() { kernels::ref::add_kernels(registry_), context_.registry = &registry_; }

  Graph compile(Graph graph, const std::vector<std::string>& disabled = {}) {
    const Status status = run_passes(graph, context_, disabled);
    EXPECT_TRUE(status.ok()) << status;
    return graph;
  }
  Graph after(Status (*pass)(Graph&, const PassContext&), Graph graph = test_graph()) {
    EXPECT_TRUE(pass(graph, context_).ok());
    EXPECT_TRUE(verify(graph).ok()) << verify(graph);
    return graph;
  }

  kernels::Registry registry_;
  PassContext context_;
};

// Runs the plan on labels instead of numbers: each byte read must have the label of the last write
// of the same value.
class LabelMachine {
 public:
  explicit LabelMachine(const Graph& graph) : graph_(graph) {
    for (int e = 0; e < io::kNumExtents; ++e) arena_[e].assign(graph.arena_bytes_per_row[e], kNone);
  }
  void run() {
    for (const Node& node : graph_.nodes) {
      // A slice reads its own part only: other slices' memory may be reused.
      const auto* slice = std::get_if<Slice>(&node.op);
      if (slice) expect(slice->out, slice->x);
      for (const ValueId id : inputs(node.op))
        if (!slice) expect(id, id);
      for (const ValueId id : outputs(node.op)) write(id);
      // A kernel may read inputs after its first write, except those updated in place.
      for (const ValueId id : inputs(node.op))
        if (!becomes_output(node.op, id)) expect(id, id);
    }
    expect(graph_.logits, graph_.logits);
  }

 private:
  static bool becomes_output(const Op& op, ValueId id) {
    if (std::holds_alternative<Concat>(op) || std::holds_alternative<Slice>(op)) return true;
    for (const InPlace& update : updates_in_place(op))
      if (update.in == id) return true;
    return false;
  }
  std::span<int32_t> bytes(ValueId id) {
    const Value& v = graph_.values[id];
    const auto size = static_cast<int64_t>(size_of(v.dtype));
    return std::span(arena_[static_cast<int>(v.extent)])
        .subspan(v.offset + v.column * size, v.cols * size);
  }
  void expect(ValueId id, int32_t label) {
    for (const int32_t found : bytes(id))
      ASSERT_EQ(found, label) << graph_.values[id].name << " was overwritten";
  }
  void write(ValueId id) {
    for (int32_t& b : bytes(id)) b = id;
  }
  const Graph& graph_;
  std::vector<int32_t> arena_[io::kNumExtents];
};

}  // namespace nereid::graph
