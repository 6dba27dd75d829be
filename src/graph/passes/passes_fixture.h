// Passes over graphs of the tests, for the reference kernels.
#pragma once

#include <gtest/gtest.h>

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

}  // namespace nereid::graph
