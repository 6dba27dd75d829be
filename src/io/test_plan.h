// Test only: a small valid plan, also for fuzz targets.
#pragma once

#include "io/engine_writer.h"
#include "io/plan.h"

namespace nereid::io {

// embed -> norm -> qkv -> attention -> gather -> norm -> head; 32 ids, width 32.
inline Plan test_plan() {
  using kernels::WeightLayout;
  Plan plan;
  ModelFacts& m = plan.model;
  m.name = "test", m.architecture = "TestForCausalLM", m.source_dir = "/nowhere";
  m.vocab_size = 32, m.hidden_size = 32, m.num_layers = 1;
  m.num_heads = 2, m.num_kv_heads = 1, m.head_dim = 16, m.max_positions = 64;
  m.ropes = {{{1, .5f, .25f, .125f, .0625f, .03125f, .015625f, .0078125f}}};
  m.end_ids = {3};
  plan.values = {{"x", RowCount::kTokens, DType::kF32, 32, 32, 0, 0},
                 {"h", RowCount::kTokens, DType::kBF16, 32, 32, 0, 128},
                 {"qkv", RowCount::kTokens, DType::kF32, 64, 64, 0, 192},
                 {"attn", RowCount::kTokens, DType::kBF16, 32, 32, 0, 128},
                 {"last", RowCount::kSampled, DType::kF32, 32, 32, 0, 0},
                 {"last_h", RowCount::kSampled, DType::kBF16, 32, 32, 0, 128},
                 {"logits", RowCount::kSampled, DType::kF32, 32, 32, 0, 192}};
  plan.weights = {{"embed", {}, 32, 32, WeightLayout::kPanel16, {}},
                  {"norm", {}, 1, 32, WeightLayout::kRowMajor, {}},
                  {"qkv", {}, 64, 32, WeightLayout::kPanel16, {}}};
  using namespace kernels::ids;
  plan.calls = {
      {Embed{.table = 0, .out = 0}, "ref"},
      {Norm{.x = 0, .weight = 1, .eps = 1e-5f, .out = 1}, "ref"},
      {Linear{.x = 1, .weight = 2, .out = 2}, "ref"},
      {Attention{.qkv = 2, .heads = {2, 1, 16}, .cache = 0, .scale = .25f, .angles = 0, .out = 3},
       "ref"},
      {GatherRows{.x = 0, .out = 4}, "ref"},
      {Norm{.x = 4, .weight = 1, .eps = 1e-5f, .out = 5}, "ref"},
      {Linear{.x = 5, .weight = 0, .out = 6}, "ref"}};
  plan.logits = 6, plan.hidden = {5};
  plan.arena_bytes_per_row[0] = 448, plan.arena_bytes_per_row[1] = 320;
  plan.device = "cpu", plan.target = "generic";
  plan.choices = {"library 1", "a GPU", {{64, 32, DType::kBF16, DType::kF32, 256, {6, 0, -1}}}};
  place_weights(plan);
  return plan;
}

}  // namespace nereid::io
