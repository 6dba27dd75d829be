// The shapes of attention's cases.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/api/op.h"
#include "tensor/dtype.h"

namespace nereid::kernels::testing {

struct Sequence {
  int32_t start, count;             // positions cached before, new tokens
  std::vector<int32_t> after = {};  // StepView::after of the last of them
};

struct AttentionShape {
  std::vector<Sequence> sequences;
  int32_t heads, kv_heads, d;
  int32_t block = 32, window = 0;
  bool rope = false;
  int32_t sink = 0;
  DType kv = DType::kBF16;
  KeyLayout keys = KeyLayout::kLines;
  int32_t rotated = 0;  // columns of a head; 0 = all
  bool interleaved = false, sinks = false;
  float cap = 0, alibi = 0, alibi_scale = 1;
  int32_t latent = 0;  // columns of a value that lie in its key

  int32_t angle_cols() const { return rotated > 0 ? rotated : d; }
  bool has_trees() const {
    return std::ranges::any_of(sequences, [](const Sequence& s) { return !s.after.empty(); });
  }
};

inline const AttentionShape kAttentionShapes[] = {
    {.sequences = {{0, 1}}, .heads = 1, .kv_heads = 1, .d = 2, .block = 4},
    {.sequences = {{0, 1}}, .heads = 4, .kv_heads = 2, .d = 64, .rope = true},
    {.sequences = {{200, 1}}, .heads = 8, .kv_heads = 2, .d = 64, .rope = true},
    {.sequences = {{0, 100}}, .heads = 4, .kv_heads = 2, .d = 64, .rope = true},
    {.sequences = {{63, 70}}, .heads = 3, .kv_heads = 1, .d = 80},
    {.sequences = {{5, 1}, {0, 40}, {130, 1}, {31, 33}, {64, 2}},
     .heads = 4,
     .kv_heads = 2,
     .d = 64,
     .rope = true},
    {.sequences = {{100, 30}, {3, 1}},
     .heads = 6,
     .kv_heads = 2,
     .d = 36,
     .block = 16,
     .window = 23,
     .rope = true},
    {.sequences = {{150, 1}, {10, 90}},
     .heads = 2,
     .kv_heads = 2,
     .d = 128,
     .block = 128,
     .window = 64},
    {.sequences = {{90, 20}, {1, 1}}, .heads = 7, .kv_heads = 1, .d = 14, .block = 7, .rope = true},
    {.sequences = {{40, 3}, {2, 1}}, .heads = 22, .kv_heads = 2, .d = 256, .rope = true},
    {.sequences = {{1023, 1}, {700, 3}}, .heads = 8, .kv_heads = 1, .d = 96, .rope = true},
    // One token each, for seven and four heads.
    {.sequences = {{300, 1}, {0, 1}, {15, 1}, {16, 1}, {900, 1}},
     .heads = 8,
     .kv_heads = 2,
     .d = 128,
     .rope = true},
    {.sequences = {{100, 1}, {63, 1}},
     .heads = 14,
     .kv_heads = 2,
     .d = 64,
     .block = 16,
     .rope = true,
     .sinks = true,
     .cap = 3},
    // The same with ALiBi, over a window, and so many rows that a block of a GPU's kernel has all
    // of a row's blocks, of which the last have the largest scores.
    {.sequences = {{200, 1}, {70, 1}, {0, 1}},
     .heads = 12,
     .kv_heads = 2,
     .d = 80,
     .block = 16,
     .rope = true,
     .alibi = 8},
    {.sequences = {{300, 1}, {20, 1}, {90, 1}},
     .heads = 3,
     .kv_heads = 1,
     .d = 112,
     .block = 64,
     .window = 70,
     .rope = true,
     .sink = 20,
     .sinks = true},
    {.sequences = std::vector<Sequence>(30, Sequence{300, 1}),
     .heads = 9,
     .kv_heads = 9,
     .d = 16,
     .block = 8,
     .alibi = 8},
    // So many KV heads that few of a GPU's blocks share one's keys: the new key is not among the
    // first that a block reads. Then eight query heads, sinks and a window.
    {.sequences = {{290, 1}, {300, 1}, {40, 1}, {7, 1}, {253, 1}},
     .heads = 16,
     .kv_heads = 8,
     .d = 16,
     .block = 16,
     .rope = true},
    {.sequences = {{400, 1}, {15, 1}, {128, 1}},
     .heads = 16,
     .kv_heads = 2,
     .d = 128,
     .block = 16,
     .window = 150,
     .rope = true,
     .sink = 21,
     .rotated = 64,
     .interleaved = true,
     .sinks = true,
     .cap = 3},
    // Rows of one and of few tokens beside prompts of several blocks.
    {.sequences = {{40, 200}, {900, 1}, {64, 3}, {500, 1}, {300, 130}},
     .heads = 8,
     .kv_heads = 2,
     .d = 128,
     .rope = true},
    // Sinks: of a few positions, of more than a block, in the same tile as the window.
    {.sequences = {{300, 1}, {90, 40}, {2, 3}},
     .heads = 4,
     .kv_heads = 2,
     .d = 64,
     .block = 16,
     .window = 50,
     .rope = true,
     .sink = 4},
    {.sequences = {{150, 90}, {30, 2}, {0, 60}},
     .heads = 8,
     .kv_heads = 1,
     .d = 48,
     .block = 16,
     .window = 20,
     .sink = 37},
    {.sequences = {{200, 1}, {0, 40}},
     .heads = 4,
     .kv_heads = 2,
     .d = 64,
     .rope = true,
     .rotated = 24,
     .cap = 1.5f},
    {.sequences = {{150, 3}, {0, 70}}, .heads = 6, .kv_heads = 2, .d = 32, .alibi = 8},
    // Over three tiles of keys, of which the last have the largest scores.
    {.sequences = {{150, 3}, {0, 300}},
     .heads = 4,
     .kv_heads = 4,
     .d = 64,
     .alibi = 8,
     .alibi_scale = 0.125f},
    {.sequences = {{90, 1}, {0, 30}},
     .heads = 4,
     .kv_heads = 1,
     .d = 36,
     .block = 16,
     .window = 20,
     .rope = true,
     .rotated = 20,
     .interleaved = true,
     .sinks = true},
    // Latent heads.
    {.sequences = {{100, 1}, {0, 70}, {33, 5}},
     .heads = 4,
     .kv_heads = 1,
     .d = 24,
     .rope = true,
     .rotated = 8,
     .interleaved = true,
     .latent = 16},
    {.sequences = {{70, 1}, {0, 3}},
     .heads = 20,
     .kv_heads = 1,
     .d = 576,
     .rope = true,
     .rotated = 64,
     .interleaved = true,
     .latent = 512},
    {.sequences = {{90, 1}}, .heads = 37, .kv_heads = 1, .d = 24, .latent = 16},
    {.sequences = {{150, 20}, {10, 1}},
     .heads = 6,
     .kv_heads = 2,
     .d = 40,
     .block = 16,
     .window = 30,
     .sink = 3,
     .sinks = true,
     .cap = 2,
     .alibi = 8,
     .latent = 28},
    // Trees: beside other rows, over the end of a tile, all after the same token.
    {.sequences = {{60, 9, {1, 2, 1, 2, 4, 1, 1}},
                   {5, 1},
                   {0, 40},
                   {126, 6, {1, 2, 3, 4, 5}},
                   {31, 4, {1, 1, 1}}},
     .heads = 4,
     .kv_heads = 2,
     .d = 64,
     .rope = true},
    {.sequences = {{90, 8, {1, 2, 1, 2, 1}}, {30, 1}},
     .heads = 6,
     .kv_heads = 2,
     .d = 40,
     .block = 16,
     .window = 30,
     .rope = true,
     .sink = 3,
     .sinks = true,
     .cap = 2,
     .alibi = 8},
    {.sequences = {{61, 12, {1, 2, 3, 3, 3, 3, 2}}},
     .heads = 4,
     .kv_heads = 1,
     .d = 24,
     .rope = true,
     .rotated = 8,
     .latent = 16},
    // Heads of widths that a GPU's tiles do not take: no multiple of eight columns, and too wide.
    {.sequences = {{130, 1}, {60, 9, {1, 2, 1, 2, 4, 1, 1}}, {2, 40}},
     .heads = 4,
     .kv_heads = 2,
     .d = 100,
     .block = 16,
     .window = 50,
     .rope = true,
     .sink = 5,
     .kv = DType::kF8E4M3,
     .sinks = true,
     .cap = 3,
     .alibi = 8},
    {.sequences = {{70, 3}, {20, 1}},
     .heads = 4,
     .kv_heads = 2,
     .d = 320,
     .rope = true,
     .rotated = 80,
     .interleaved = true}};

}  // namespace nereid::kernels::testing
