// Test only: a small made-up model and its engine file.
#pragma once

#include <cmath>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "exec/test_harness.h"
#include "io/engine_writer.h"
#include "io/test_plan.h"

namespace nereid::exec {

// io::test_plan() with the attention result projected and added to the residual stream, so that
// logits depend on every position.
inline io::Plan small_plan() {
  io::Plan plan = io::test_plan();
  const auto y = static_cast<io::ValueId>(plan.values.size());
  const auto weight = static_cast<io::WeightId>(plan.weights.size());
  plan.values.push_back(
      {"y", io::RowCount::kTokens, DType::kF32, 32, 32, 0, plan.arena_bytes_per_row[0]});
  plan.arena_bytes_per_row[0] += 128;
  plan.weights.push_back({"proj", {}, 32, 32, kernels::WeightLayout::kRowMajor, {}});
  plan.calls.insert(plan.calls.begin() + 4,
                    {{kernels::ids::Linear{.x = 3, .weight = weight, .out = y}, "ref"},
                     {kernels::ids::Add{.x = 0, .y = y, .out = 0}, "ref"}});
  io::place_weights(plan);
  NEREID_CHECK(io::check_plan(plan).ok());
  return plan;
}

// Writes an engine of `plan` with random weights (norms near 1) into test_directory().
inline std::filesystem::path write_engine(const io::Plan& plan, const std::string& name) {
  const auto path = test_directory() / (name + ".engine");
  auto writer = io::EngineWriter::create(path, plan, "test");
  NEREID_CHECK(writer.ok());
  uint32_t counter = 0;
  for (const io::PlanWeight& weight : plan.weights) {
    std::vector<BF16> values(weight.planes[0].shape.bytes / sizeof(BF16));
    for (BF16& value : values) {
      const auto r = static_cast<float>(std::sin(12.9898 * ++counter) * 43758.5453);
      const float centred = 2 * (r - std::floor(r)) - 1;
      value = to_bf16(weight.n == 1 ? 1 + .1f * centred : .6f * centred);
    }
    NEREID_CHECK(writer->append(std::as_bytes(std::span(values))).ok());
  }
  NEREID_CHECK(writer->finish().ok());
  return path;
}

}  // namespace nereid::exec
