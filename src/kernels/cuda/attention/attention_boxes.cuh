// TMA loads of attention_single.cu, f8e4m3 cache: one warp loads tiles of 64 keys, box by box, into
// a ring of stages.
#pragma once

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/tensor_map.h"

namespace nereid::kernels::cuda {

constexpr int kKeyBits = 6;
constexpr int kKeys = 1 << kKeyBits;  // per tile
constexpr int kLine = 128;            // bytes of a line in shared memory
constexpr int kMaxStages = 3;
constexpr int kMinSlot = 8;  // lines; period of the TMA swizzle

// TMA descriptors.
struct Boxes {
  CUtensorMap keys, values;
  int slot_bits, block_bits;  // log2 of lines per box, of boxes per block
  int stages;
};

constexpr int kTile = kKeys * kLine;  // bytes of a tile's keys
constexpr int kScales = kKeys * static_cast<int>(sizeof(float));

// The row's keys in units of boxes: those of the sinks, then those of the window.
struct Slots {
  int sink, begin, count;
  __device__ int number(int slot) const { return slot < sink ? slot : slot - sink + begin; }
};

#if defined(NEREID_HOPPER)

// Offset of a byte of a line in lines aligned to 1,024 bytes (128-byte swizzle).
inline __device__ int place_in_lines(int line, int byte) {
  return (line * kLine + byte) ^ line % 8 * 16;
}

inline __device__ Slots slots_of(const KeyRange& range, int position, int bits) {
  Slots s;
  s.sink = (range.sink + (1 << bits) - 1) >> bits;
  s.begin = max(range.begin >> bits, s.sink);
  s.count = s.sink + max(0, (position >> bits) + 1 - s.begin);
  return s;
}

// A block's part of a row's tiles, split evenly among as few blocks as chunk_keys allow.
struct Part {
  int num_parts, tiles, first_slot, num_slots;
  bool is_last;  // contains the new key
};
inline __device__ Part part_of(const AttentionParams& p, const Slots& slots, int slot_bits) {
  const int bits = kKeyBits - slot_bits, tiles = (slots.count + (1 << bits) - 1) >> bits;
  const int chunks = static_cast<int>(gridDim.x), chunk = static_cast<int>(blockIdx.x);
  const int most = max(p.chunk_keys / kKeys, (tiles + chunks - 1) / chunks);
  Part part = {};
  part.num_parts = (tiles + most - 1) / most;
  if (chunk >= part.num_parts) return part;
  const int first = chunk * tiles / part.num_parts;
  part.tiles = (chunk + 1) * tiles / part.num_parts - first;
  part.first_slot = first << bits;
  part.num_slots = min(slots.count - part.first_slot, part.tiles << bits);
  part.is_last = chunk == part.num_parts - 1;
  return part;
}

// The stages of tiles in shared memory.
struct Stages {
  uint8_t* tiles;  // keys, then values
  float* scales;   // of keys, then of values
  uint64_t* full;
  uint64_t* empty;
  int count;

  // Called by one thread; `readers`: arrivals that free a stage.
  __device__ void init(int readers) const {
    for (int s = 0; s < count; ++s) {
      barrier_init(full + s, 1);
      barrier_init(empty + s, readers);
    }
    barriers_are_ready();
  }
  __device__ uint8_t* keys(int stage) const { return tiles + stage * 2 * kTile; }
  __device__ uint8_t* values(int stage) const { return keys(stage) + kTile; }
  __device__ float* key_scales(int stage) const { return scales + stage * 2 * kKeys; }
  __device__ float* value_scales(int stage) const { return key_scales(stage) + kKeys; }
};

// The loading warp: lane i has the cache block of slot i of the part's next kWarp slots.
struct Fetcher {
  const AttentionParams& p;
  const Boxes& boxes;
  const QueryTile& tile;
  const Slots& slots;
  const Stages& stages;
  int first, count;   // slots of the part
  int block, coming;  // of this lane's slot, and of the slot kWarp later

  __device__ void begin() {
    const int lane = threadIdx.x % kWarp;
    block = look_up(lane);
    coming = look_up(lane + kWarp);
  }

  // Loads the tiles of the part, each once a stage is free.
  __device__ void run() {
    const int lane = threadIdx.x % kWarp, in_tile = kKeys >> boxes.slot_bits;
    int base = 0, stage = 0;
    uint32_t parity = 1;
    for (int begin = 0; begin < count; begin += in_tile) {
      if (begin - base == kWarp) {
        base = begin;
        block = coming;
        coming = look_up(base + lane + kWarp);
      }
      const int end = min(count, begin + in_tile), slot = base + lane;
      constexpr int kBytes = 2 * kLine + 2 * static_cast<int>(sizeof(float));
      barrier_wait(stages.empty + stage, parity);
      if (lane == 0)
        barrier_expect(stages.full + stage,
                       static_cast<uint32_t>(((end - begin) << boxes.slot_bits) * kBytes));
      __syncwarp();
      if (slot >= begin && slot < end) copy(slot, slot - begin, stage);
      if (++stage == stages.count) stage = 0, parity ^= 1;
    }
  }

 private:
  __device__ int look_up(int slot) const {
    if (slot >= count) return 0;
    const int in_table = slots.number(first + slot) >> boxes.block_bits;
    return p.block_table[static_cast<int64_t>(tile.row) * p.max_blocks + in_table];
  }
  __device__ void copy(int slot, int in_tile, int stage) const {
    const int line = in_tile << boxes.slot_bits;
    const int in_block = slots.number(first + slot) & ((1 << boxes.block_bits) - 1);
    const int row = in_block << boxes.slot_bits;
    const int64_t scale = block * p.scale_stride + tile.kv_head * p.block_tokens + row;
    const uint32_t bytes = static_cast<uint32_t>(sizeof(float)) << boxes.slot_bits;
    uint64_t* const full = stages.full + stage;
    const uint64_t once = read_once();
    copy_box(stages.keys(stage) + line * kLine, &boxes.keys, 0, row, tile.kv_head, block, full,
             once);
    copy_box(stages.values(stage) + line * kLine, &boxes.values, 0, row, tile.kv_head, block, full,
             once);
    copy_bytes(stages.key_scales(stage) + line, p.k_scales + scale, bytes, full);
    copy_bytes(stages.value_scales(stage) + line, p.v_scales + scale, bytes, full);
  }
};

// A thread's fragment of the new token's line (TMA may have read the cache before it was written):
// a piece of the key or value and the scale. Applied to the last tile.
struct NewLine {
  static constexpr int kPieces = kLine / 16;
  uint4 piece = {};
  float scale = 0;

  __device__ void load(const AttentionParams& p, const QueryTile& tile, int position) {
    const int i = static_cast<int>(threadIdx.x) % kPieces;
    const bool of_value = threadIdx.x >= kPieces;
    if (threadIdx.x >= 2 * kPieces) return;
    const CellIndex place = place_of(p, tile.row, position, tile.kv_head);
    const auto* const cells = static_cast<const uint8_t*>(of_value ? p.v_cache : p.k_cache);
    if (16 * i < p.head_dim) piece = *reinterpret_cast<const uint4*>(cells + place.first + 16 * i);
    scale = (of_value ? p.v_scales : p.k_scales)[place.scale];
  }
  __device__ void store(const Stages& stages, int stage, int line) const {
    const int i = static_cast<int>(threadIdx.x) % kPieces;
    const bool of_value = threadIdx.x >= kPieces;
    if (threadIdx.x >= 2 * kPieces) return;
    uint8_t* const lines = of_value ? stages.values(stage) : stages.keys(stage);
    *reinterpret_cast<uint4*>(lines + place_in_lines(line, 16 * i)) = piece;
    if (i == 0) (of_value ? stages.value_scales(stage) : stages.key_scales(stage))[line] = scale;
  }
};

#endif  // NEREID_HOPPER

}  // namespace nereid::kernels::cuda
