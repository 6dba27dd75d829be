// Sizes, tiles and patches; see processor.h.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/blended_plane.h"
#include "vision/processor.h"

namespace nereid::vision {
namespace {

using Hold = std::function<Status(size_t)>;

struct Size {
  int64_t width = 0, height = 0;
};

// The part of a resized picture that the encoder sees; where it is larger than the picture, the
// picture stands in the middle of zeros.
struct Frame {
  Size resized;
  Size seen;
};

Frame plain_frame(const Image& image, const ProcessorConfig& config) {
  Size size{image.width, image.height};
  if (config.resizes && config.shortest_edge > 0) {
    int64_t& shorter = size.width <= size.height ? size.width : size.height;
    int64_t& longer = size.width <= size.height ? size.height : size.width;
    const double scaled = static_cast<double>(config.shortest_edge * longer);
    longer = static_cast<int64_t>(scaled / static_cast<double>(shorter));
    shorter = config.shortest_edge;
  } else if (config.resizes) {
    size = {config.width, config.height};
  }
  return {size, config.crops ? Size{config.crop_width, config.crop_height} : size};
}

// Source: smart_resize() of Qwen2-VL's processor. Python's round() rounds halves to even.
StatusOr<Size> fitted_size(const Image& image, const ProcessorConfig& config,
                           const EncoderFacts& encoder) {
  const double width = image.width, height = image.height;
  const double factor = config.patch * config.merge;
  const double ratio = std::max(width, height) / std::min(width, height);
  if (ratio > 200)
    return invalid_argument(
        "the picture has {} x {} pixels: the longer side may have at most 200 times those of the "
        "shorter one",
        image.width, image.height);
  const auto most = static_cast<double>(
      std::min<int64_t>(config.max_pixels, encoder.max_patches * config.patch * config.patch));
  const auto least = std::min(static_cast<double>(config.min_pixels), most);
  double w = std::nearbyint(width / factor) * factor;
  double h = std::nearbyint(height / factor) * factor;
  if (h * w > most) {
    const double beta = std::sqrt(height * width / most);
    h = std::max(factor, std::floor(height / beta / factor) * factor);
    w = std::max(factor, std::floor(width / beta / factor) * factor);
  } else if (h * w < least) {
    const double beta = std::sqrt(least / (height * width));
    h = std::ceil(height * beta / factor) * factor;
    w = std::ceil(width * beta / factor) * factor;
  }
  return Size{static_cast<int64_t>(w), static_cast<int64_t>(h)};
}

Size pixtral_size(const Image& image, const ProcessorConfig& config) {
  double width = image.width, height = image.height;
  const double ratio = std::max(width, height) / config.longest_edge;
  if (ratio > 1) width = std::floor(width / ratio), height = std::floor(height / ratio);
  const int64_t side = int64_t{config.patch} * config.merge;
  const auto padded = [side](double pixels) {
    return (std::max<int64_t>(static_cast<int64_t>(pixels), 1) + side - 1) / side * side;
  };
  return {padded(width), padded(height)};
}

// Columns and rows of tiles with the ratio of sides nearest to the picture's; of several the one
// with most tiles whose area is less than twice the picture's.
Size tiling_of(const Image& image, const ProcessorConfig& config) {
  const double ratio = static_cast<double>(image.width) / image.height;
  const double area = static_cast<double>(image.width) * image.height;
  const double tile = static_cast<double>(config.width) * config.height;
  std::vector<Size> all;
  for (int64_t columns = 1; columns <= config.max_tiles; ++columns)
    for (int64_t rows = 1; columns * rows <= config.max_tiles; ++rows)
      if (columns * rows >= config.min_tiles) all.push_back({columns, rows});
  std::ranges::stable_sort(all, {}, [](const Size& size) { return size.width * size.height; });
  Size best{1, 1};
  double least = INFINITY;
  for (const Size& size : all) {
    const double difference =
        std::abs(ratio - static_cast<double>(size.width) / static_cast<double>(size.height));
    const auto count = static_cast<double>(size.width * size.height);
    if (difference < least || (difference == least && area > 0.5 * tile * count)) best = size;
    least = std::min(least, difference);
  }
  return best;
}

// Source: Idefics3's processor. The longer side becomes `longest_edge`, the shorter one even; then
// both become multiples of a tile's side. Sides above 4096 are reduced, as there.
struct IdeficsSizes {
  Size first, second;
};
IdeficsSizes idefics_sizes(const Image& image, const ProcessorConfig& config) {
  constexpr int64_t kMost = 4096;
  const auto with_longer_side = [](const Size& size, int64_t side) {
    const double ratio = static_cast<double>(size.width) / static_cast<double>(size.height);
    const auto longer = static_cast<double>(side);
    if (size.width >= size.height) return Size{side, static_cast<int64_t>(longer / ratio)};
    return Size{static_cast<int64_t>(longer * ratio), side};
  };
  const auto at_least_one = [](const Size& size) {
    return Size{std::max<int64_t>(size.width, 1), std::max<int64_t>(size.height, 1)};
  };
  Size first = with_longer_side({image.width, image.height}, config.longest_edge);
  if (image.width >= image.height)
    first.height += first.height % 2;
  else
    first.width += first.width % 2;
  first = at_least_one(first);
  if (std::max(first.width, first.height) > kMost)
    first = at_least_one(with_longer_side(first, kMost));
  const int64_t tile = config.width;
  const auto whole_tiles = [tile](int64_t side) {
    return std::max<int64_t>((side + tile - 1) / tile, 1) * tile;
  };
  const Size second = with_longer_side(first, whole_tiles(std::max(first.width, first.height)));
  return {first, {whole_tiles(second.width), whole_tiles(second.height)}};
}

// Writes patches of pictures of one size.
class PatchWriter {
 public:
  PatchWriter(const ProcessorConfig& config, Patches& out) : config_(config), out_(out) {}

  // Reserves rows for `frames` pictures of `size`, a multiple of the patch.
  Status start(int64_t frames, const Size& size, const EncoderFacts& encoder, const Hold& hold) {
    const int64_t h = size.height / config_.patch, w = size.width / config_.patch;
    const int64_t rows = frames * h * w, together = out_.in_tiles ? h * w : rows;
    if (together > encoder.max_patches)
      return invalid_argument("the picture takes {} patches{}; the model takes {}", together,
                              out_.in_tiles ? " in each tile" : "", encoder.max_patches);
    out_.grid = {static_cast<int32_t>(frames), static_cast<int32_t>(h), static_cast<int32_t>(w)};
    out_.rows = static_cast<int32_t>(rows);
    out_.width = 3 * config_.temporal * config_.patch * config_.patch;
    out_.num_tokens = static_cast<int32_t>(together) / (config_.merge * config_.merge);
    out_.token_columns = out_.grid[2] / config_.merge;
    const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(out_.width);
    if (hold) RETURN_IF_ERROR(hold(count * sizeof(float)));
    out_.values.reserve(count);
    return ok();
  }

  void add_in_raster_order(const Image& image) {
    for (int32_t y = 0; y < out_.grid[1]; ++y)
      for (int32_t x = 0; x < out_.grid[2]; ++x) add_patch(image, y, x);
  }
  // Blocks of merge x merge patches in raster order, each in raster order.
  void add_in_block_order(const Image& image) {
    const int32_t merge = config_.merge;
    for (int32_t y = 0; y < out_.grid[1]; y += merge)
      for (int32_t x = 0; x < out_.grid[2]; x += merge)
        for (int32_t i = 0; i < merge * merge; ++i) add_patch(image, y + i / merge, x + i % merge);
  }

 private:
  // Channel, frame (all the same picture), y, x.
  void add_patch(const Image& image, int32_t row, int32_t column) {
    const int32_t side = config_.patch;
    const auto stride = 3 * static_cast<size_t>(image.width);
    const uint8_t* const corner = image.rgb.data() + static_cast<size_t>(row * side) * stride +
                                  3 * static_cast<size_t>(column * side);
    for (size_t c = 0; c < 3; ++c)
      for (int32_t t = 0; t < config_.temporal; ++t)
        for (int32_t y = 0; y < side; ++y) {
          const uint8_t* from = corner + static_cast<size_t>(y) * stride + c;
          for (int32_t x = 0; x < side; ++x, from += 3)
            out_.values.push_back(config_.values[c][*from]);
        }
  }

  const ProcessorConfig& config_;
  Patches& out_;
};

// `picture` in the middle of `colour`, at (left, top).
Image padded(const Image& picture, const Size& size, int64_t left, int64_t top,
             const std::array<uint8_t, 3>& colour = {}) {
  Image out{static_cast<int32_t>(size.width), static_cast<int32_t>(size.height),
            std::vector<uint8_t>(static_cast<size_t>(3 * size.width * size.height))};
  if (colour != std::array<uint8_t, 3>{})
    for (size_t i = 0; i < out.rgb.size(); ++i) out.rgb[i] = colour[i % 3];
  const size_t row_bytes = 3 * static_cast<size_t>(picture.width);
  for (int32_t y = 0; y < picture.height; ++y)
    std::copy_n(picture.rgb.data() + row_bytes * static_cast<size_t>(y), row_bytes,
                out.rgb.data() + 3 * static_cast<size_t>((top + y) * size.width + left));
  return out;
}

StatusOr<Patches> plain(const Image& image, const ProcessorConfig& config,
                        const EncoderFacts& encoder, const Hold& hold) {
  const auto [resized, seen] = plain_frame(image, config);
  Patches out;
  PatchWriter writer(config, out);
  RETURN_IF_ERROR(writer.start(1, seen, encoder, hold));
  // A crop that reaches beyond the picture is placed as transformers' center_crop() does.
  const Size shown{std::min(seen.width, resized.width), std::min(seen.height, resized.height)};
  const Window window{(resized.width - shown.width) / 2, (resized.height - shown.height) / 2,
                      static_cast<int32_t>(shown.width), static_cast<int32_t>(shown.height)};
  ASSIGN_OR_RETURN(Image part,
                   resize(image, resized.width, resized.height, config.filter, window, hold));
  if (shown.width < seen.width || shown.height < seen.height)
    part =
        padded(part, seen, (seen.width - part.width + 1) / 2, (seen.height - part.height + 1) / 2);
  writer.add_in_raster_order(part);
  return out;
}

StatusOr<Patches> fitted(const Image& image, const ProcessorConfig& config, const Size& size,
                         const EncoderFacts& encoder, const Hold& hold) {
  Patches out;
  PatchWriter writer(config, out);
  RETURN_IF_ERROR(writer.start(1, size, encoder, hold));
  const Window all{0, 0, static_cast<int32_t>(size.width), static_cast<int32_t>(size.height)};
  ASSIGN_OR_RETURN(const Image resized,
                   resize(image, size.width, size.height, config.filter, all, hold));
  if (config.kind == ProcessorKind::kQwen2Vl)
    writer.add_in_block_order(resized);
  else
    writer.add_in_raster_order(resized);
  return out;
}

StatusOr<Patches> tiles(const Image& image, const ProcessorConfig& config,
                        const EncoderFacts& encoder, const Hold& hold) {
  const Size grid = tiling_of(image, config);
  const int64_t count = grid.width * grid.height;
  Patches out;
  PatchWriter writer(config, out);
  const Size tile{config.width, config.height};
  RETURN_IF_ERROR(writer.start(count == 1 ? 1 : count + 1, tile, encoder, hold));
  const auto add = [&](const Size& columns_and_rows, int64_t x, int64_t y) -> Status {
    const Window window{x * tile.width, y * tile.height, config.width, config.height};
    ASSIGN_OR_RETURN(const Image part,
                     resize(image, columns_and_rows.width * tile.width,
                            columns_and_rows.height * tile.height, config.filter, window, hold));
    writer.add_in_raster_order(part);
    return ok();
  };
  for (int64_t i = 0; i < count; ++i) RETURN_IF_ERROR(add(grid, i % grid.width, i / grid.width));
  if (count > 1) RETURN_IF_ERROR(add({1, 1}, 0, 0));
  return out;
}

// The part of `image` with the corner (x, y).
Image cut(const Image& image, int64_t x, int64_t y, const Size& size) {
  Image out{static_cast<int32_t>(size.width), static_cast<int32_t>(size.height),
            std::vector<uint8_t>(static_cast<size_t>(3 * size.width * size.height))};
  const auto row_bytes = static_cast<size_t>(3 * size.width);
  for (int64_t row = 0; row < size.height; ++row)
    std::copy_n(image.rgb.data() + 3 * ((y + row) * image.width + x), row_bytes,
                out.rgb.data() + static_cast<size_t>(row) * row_bytes);
  return out;
}

StatusOr<Patches> idefics3(const Image& image, const ProcessorConfig& config,
                           const EncoderFacts& encoder, const Hold& hold) {
  const Size tile{config.width, config.height};
  auto [first, second] = idefics_sizes(image, config);
  if (!config.splits) second = tile;
  Patches out;
  out.in_tiles = true;
  if (second.width > tile.width || second.height > tile.height) {
    out.tile_rows = static_cast<int32_t>(second.height / tile.height);
    out.tile_columns = static_cast<int32_t>(second.width / tile.width);
  }
  const int64_t num_tiles = int64_t{out.tile_rows} * out.tile_columns;
  PatchWriter writer(config, out);
  RETURN_IF_ERROR(writer.start(num_tiles + 1, tile, encoder, hold));
  size_t held = out.values.capacity() * sizeof(float);
  const auto hold_more = [&](size_t bytes) { return hold ? hold(held + bytes) : ok(); };
  const auto resized = [&](const Image& from, const Size& size) {
    const Window all{0, 0, static_cast<int32_t>(size.width), static_cast<int32_t>(size.height)};
    return resize(from, size.width, size.height, config.filter, all, hold_more);
  };
  ASSIGN_OR_RETURN(const Image once, resized(image, first));
  held += once.rgb.capacity();
  ASSIGN_OR_RETURN(const Image twice, resized(once, second));
  held += twice.rgb.capacity();
  for (int64_t i = 0; i < num_tiles; ++i)
    writer.add_in_raster_order(
        cut(twice, i % out.tile_columns * tile.width, i / out.tile_columns * tile.height, tile));
  if (num_tiles == 0) {
    writer.add_in_raster_order(twice);
    return out;
  }
  ASSIGN_OR_RETURN(const Image whole, resized(twice, tile));
  writer.add_in_raster_order(whole);
  return out;
}

// Source: select_best_resolution() of transformers. The listed size that keeps most of the
// picture's pixels; of several the one that wastes least.
Size best_size(const Image& image, const ProcessorConfig& config) {
  const int64_t all = int64_t{image.width} * image.height;
  int64_t most_kept = 0, least_wasted = std::numeric_limits<int64_t>::max();
  Size best;
  for (const auto& [height, width] : config.sizes) {
    const double scale = std::min(static_cast<double>(width) / image.width,
                                  static_cast<double>(height) / image.height);
    const auto scaled = [scale](int32_t side) { return static_cast<int64_t>(side * scale); };
    const int64_t kept = std::min(scaled(image.width) * scaled(image.height), all);
    const int64_t wasted = int64_t{width} * height - kept;
    if (kept < most_kept || (kept == most_kept && wasted >= least_wasted)) continue;
    most_kept = kept, least_wasted = wasted;
    best = {width, height};
  }
  return best;
}

// The picture's size within `most`, one side as long.
Size size_within(const Image& image, const Size& most) {
  const double x = static_cast<double>(most.width) / image.width;
  const double y = static_cast<double>(most.height) / image.height;
  const auto scaled = [](int32_t side, double scale, int64_t limit) {
    return std::min(static_cast<int64_t>(std::ceil(side * scale)), limit);
  };
  if (x < y) return {most.width, scaled(image.height, x, most.height)};
  return {scaled(image.width, y, most.width), most.height};
}

// Source: unpad_image() of LLaVA-NeXT. Rows or columns of tokens at each end that show nothing.
void set_cut(const Image& image, const ProcessorConfig& config, Patches& out) {
  const int64_t side = int64_t{out.grid[1]} / config.merge;
  const int64_t rows = out.tile_rows * side, columns = out.tile_columns * side;
  // Python's int(round(x, 7)).
  const auto whole = [](double x) { return static_cast<int64_t>(std::floor(x + 5e-8)); };
  const double ratio = static_cast<double>(image.width) / image.height;
  if (ratio > static_cast<double>(columns) / static_cast<double>(rows)) {
    const int64_t shown = whole(image.height * (static_cast<double>(columns) / image.width));
    out.cut_rows = static_cast<int32_t>((rows - shown) / 2);
  } else {
    const int64_t shown = whole(image.width * (static_cast<double>(rows) / image.height));
    out.cut_columns = static_cast<int32_t>((columns - shown) / 2);
  }
  const PlaneSize shown =
      blended_size({rows - 2 * int64_t{out.cut_rows}, columns - 2 * int64_t{out.cut_columns}}, side,
                   config.blended_tiles);
  out.num_tokens = static_cast<int32_t>(side * side + shown.rows * (shown.columns + 1));
}

StatusOr<Patches> any_resolution(const Image& image, const ProcessorConfig& config,
                                 const EncoderFacts& encoder, const Hold& hold) {
  const Size tile{config.width, config.height}, plane = best_size(image, config);
  Patches out;
  out.tiles_in_plane = true;
  out.tile_rows = static_cast<int32_t>(plane.height / tile.height);
  out.tile_columns = static_cast<int32_t>(plane.width / tile.width);
  const int64_t num_tiles = int64_t{out.tile_rows} * out.tile_columns;
  PatchWriter writer(config, out);
  RETURN_IF_ERROR(writer.start(1 + num_tiles, tile, encoder, hold));
  set_cut(image, config, out);
  size_t held = out.values.capacity() * sizeof(float);
  const auto hold_more = [&](size_t bytes) { return hold ? hold(held + bytes) : ok(); };
  const auto resized = [&](const Size& size) {
    const Window all{0, 0, static_cast<int32_t>(size.width), static_cast<int32_t>(size.height)};
    return resize(image, size.width, size.height, config.filter, all, hold_more);
  };
  ASSIGN_OR_RETURN(const Image whole, resized(tile));
  writer.add_in_raster_order(whole);
  const Size shown = size_within(image, plane);
  ASSIGN_OR_RETURN(const Image part, resized(shown));
  held += part.rgb.capacity();
  RETURN_IF_ERROR(hold_more(static_cast<size_t>(3 * plane.width * plane.height)));
  const Image all =
      padded(part, plane, (plane.width - shown.width) / 2, (plane.height - shown.height) / 2);
  for (int64_t i = 0; i < num_tiles; ++i)
    writer.add_in_raster_order(
        cut(all, i % out.tile_columns * tile.width, i / out.tile_columns * tile.height, tile));
  return out;
}

// Source: pad_to_square() of LLaVA-OneVision's processor, for each of several pictures.
StatusOr<Patches> in_square(const Image& image, const ProcessorConfig& config,
                            const EncoderFacts& encoder, const Hold& hold) {
  constexpr int64_t kMostSquare = 8192;  // side
  const int64_t side = std::max(image.width, image.height);
  if (side > kMostSquare)
    return invalid_argument(
        "the picture has {} x {} pixels: beside other pictures its longer side may have at most {}",
        image.width, image.height, kMostSquare);
  Patches out;
  out.tiles_in_plane = true;
  PatchWriter writer(config, out);
  RETURN_IF_ERROR(writer.start(1, {config.width, config.height}, encoder, hold));
  ++out.num_tokens;
  const size_t held = out.values.capacity() * sizeof(float) + static_cast<size_t>(3 * side * side);
  const auto hold_more = [&](size_t bytes) { return hold ? hold(held + bytes) : ok(); };
  RETURN_IF_ERROR(hold_more(0));
  const Image square = padded(image, {side, side}, (side - image.width) / 2,
                              (side - image.height) / 2, config.background);
  const Window all{0, 0, config.width, config.height};
  ASSIGN_OR_RETURN(const Image part,
                   resize(square, config.width, config.height, config.filter, all, hold_more));
  writer.add_in_raster_order(part);
  return out;
}

// Source: get_optimal_tiled_canvas() of transformers. The smallest enlargement, else the least
// reduction, to rows and columns of tiles; of several the one with the least area.
Size canvas_of(const Image& image, const ProcessorConfig& config) {
  const int64_t tile = config.width;
  Size best;
  double best_scale = 0;
  for (int64_t rows = 1; rows <= config.max_tiles; ++rows)
    for (int64_t columns = 1; rows * columns <= config.max_tiles; ++columns) {
      const double scale = std::min(static_cast<double>(rows * tile) / image.height,
                                    static_cast<double>(columns * tile) / image.width);
      const bool is_first = best.width == 0;
      const bool is_better =
          best_scale >= 1 ? scale >= 1 && scale < best_scale : scale > best_scale;
      const bool is_smaller =
          scale == best_scale && rows * columns * tile * tile < best.width * best.height;
      if (!is_first && !is_better && !is_smaller) continue;
      best = {columns * tile, rows * tile}, best_scale = scale;
    }
  return best;
}

// Source: get_image_size_fit_to_canvas() of transformers.
Size size_on_canvas(const Image& image, const Size& canvas, int64_t tile) {
  const int64_t width = std::clamp<int64_t>(image.width, tile, canvas.width);
  const int64_t height = std::clamp<int64_t>(image.height, tile, canvas.height);
  const double x = static_cast<double>(width) / image.width;
  const double y = static_cast<double>(height) / image.height;
  const auto scaled = [](int32_t side, double scale, int64_t most) {
    return std::clamp<int64_t>(static_cast<int64_t>(std::floor(side * scale)), 1, most);
  };
  if (x < y) return {width, scaled(image.height, x, height)};
  return {scaled(image.width, y, width), height};
}

StatusOr<Patches> on_canvas(const Image& image, const ProcessorConfig& config,
                            const EncoderFacts& encoder, const Hold& hold) {
  const Size tile{config.width, config.height}, canvas = canvas_of(image, config);
  Patches out;
  out.is_canvas = true;
  out.tile_rows = static_cast<int32_t>(canvas.height / tile.height);
  out.tile_columns = static_cast<int32_t>(canvas.width / tile.width);
  const int64_t num_tiles = int64_t{out.tile_rows} * out.tile_columns;
  PatchWriter writer(config, out);
  RETURN_IF_ERROR(writer.start(num_tiles, tile, encoder, hold));
  out.num_tokens = out.token_columns = 1;
  size_t held = out.values.capacity() * sizeof(float);
  const auto hold_more = [&](size_t bytes) { return hold ? hold(held + bytes) : ok(); };
  const Size shown = size_on_canvas(image, canvas, tile.width);
  const Window all{0, 0, static_cast<int32_t>(shown.width), static_cast<int32_t>(shown.height)};
  ASSIGN_OR_RETURN(const Image part,
                   resize(image, shown.width, shown.height, config.filter, all, hold_more));
  held += part.rgb.capacity();
  RETURN_IF_ERROR(hold_more(static_cast<size_t>(3 * canvas.width * canvas.height)));
  const Image whole = padded(part, canvas, 0, 0);
  for (int64_t i = 0; i < num_tiles; ++i)
    writer.add_in_raster_order(
        cut(whole, i % out.tile_columns * tile.width, i / out.tile_columns * tile.height, tile));
  return out;
}

}  // namespace

StatusOr<Patches> preprocess(const Image& image, const ProcessorConfig& config,
                             const EncoderFacts& encoder, const Hold& hold, size_t num_pictures) {
  switch (config.kind) {
    case ProcessorKind::kPlain:
      return plain(image, config, encoder, hold);
    case ProcessorKind::kQwen2Vl: {
      ASSIGN_OR_RETURN(const Size size, fitted_size(image, config, encoder));
      return fitted(image, config, size, encoder, hold);
    }
    case ProcessorKind::kPixtral:
      return fitted(image, config, pixtral_size(image, config), encoder, hold);
    case ProcessorKind::kTiles:
      return tiles(image, config, encoder, hold);
    case ProcessorKind::kIdefics3:
      return idefics3(image, config, encoder, hold);
    case ProcessorKind::kAnyResolution:
      return any_resolution(image, config, encoder, hold);
    case ProcessorKind::kOneVision:
      return num_pictures == 1 ? any_resolution(image, config, encoder, hold)
                               : in_square(image, config, encoder, hold);
    case ProcessorKind::kCanvas:
      return on_canvas(image, config, encoder, hold);
  }
  return internal_error("a processor of an unknown kind");
}

}  // namespace nereid::vision
