// A picture as a vision encoder reads it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace nereid::vision {

struct Patches {
  int32_t rows = 0, width = 0;    // width = channels * temporal * patch * patch
  std::vector<float> values;      // [rows, width], normalised as the model's processor does
  std::array<int32_t, 3> grid{};  // t, h, w in patches, before merging; rows == t * h * w
  int32_t num_tokens = 0;         // rows of the encoder's output, of each tile with in_tiles
  int32_t token_columns = 0;      // of these in a row of the picture
  // Each of the t tiles is a picture to the encoder: tile_rows rows of tile_columns, then the whole
  // picture; without rows the whole picture alone.
  bool in_tiles = false;
  int32_t tile_rows = 0, tile_columns = 0;
  // The whole picture in a tile, then the tiles; cut_rows and cut_columns of their tokens at each
  // end show nothing and are left out, and a token stands behind each row (LLaVA-NeXT). Without
  // tiles the whole picture and one token behind it (LLaVA-OneVision).
  bool tiles_in_plane = false;
  int32_t cut_rows = 0, cut_columns = 0;
  // All of it are tiles, which one token stands for (Llama 3.2).
  bool is_canvas = false;

  bool has_layout() const { return tiles_in_plane || is_canvas; }
};

// Most tiles on a side of a picture.
inline constexpr int32_t kMaxTilesOnSide = 8;

// The grids of the pictures that the encoder gets.
inline std::vector<std::array<int32_t, 3>> grids_of(const Patches& patches) {
  if (!patches.in_tiles) return {patches.grid};
  return std::vector<std::array<int32_t, 3>>(static_cast<size_t>(patches.grid[0]),
                                             {1, patches.grid[1], patches.grid[2]});
}

// Rows and columns of tiles, and those of tokens that are cut; of a picture with has_layout().
inline std::array<int32_t, 4> layout_of(const Patches& p) {
  return {p.tile_rows, p.tile_columns, p.cut_rows, p.cut_columns};
}

}  // namespace nereid::vision
