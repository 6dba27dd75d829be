// Picture inputs of a tensorrt_llm request: patches of all pictures, their grids, and the tokens
// that stand for them. The engine checks the numbers against the model.
#include <algorithm>
#include <limits>

#include "backend/common/float_tensors.h"
#include "backend/tensorrtllm/tensor_fields.h"

namespace nereid::backend {
namespace {

constexpr const char* kPatches = "image_patches";
constexpr const char* kGrids = "image_grids";
constexpr const char* kSpans = "image_token_spans";
constexpr const char* kTiles = "image_tiles";
constexpr size_t kMaxPictures = 1024;  // of a request

// Pictures without patches, from their grids (t, h, w) and spans (first token, number of tokens).
StatusOr<std::vector<Picture>> read_places(const Item& item) {
  ASSIGN_OR_RETURN(const auto grids, item.values<int32_t>(kGrids));
  ASSIGN_OR_RETURN(const auto spans, item.values<int32_t>(kSpans));
  if (!grids || !spans)
    return invalid_argument("input '{}' comes without input '{}'", kPatches,
                            grids ? kSpans : kGrids);
  const size_t count = grids->size() / 3;
  if (grids->size() % 3 != 0 || count < 1 || count > kMaxPictures)
    return invalid_argument("input '{}' has {} numbers, expected 3 for each of 1 to {} pictures",
                            kGrids, grids->size(), kMaxPictures);
  if (spans->size() != 2 * count)
    return invalid_argument("input '{}' has {} numbers, expected 2 for each of {} pictures", kSpans,
                            spans->size(), count);
  ASSIGN_OR_RETURN(const auto tiles, item.values<int32_t>(kTiles));
  if (tiles && tiles->size() != 4 * count)
    return invalid_argument("input '{}' has {} numbers, expected 4 for each of {} pictures", kTiles,
                            tiles->size(), count);
  std::vector<Picture> pictures(count);
  for (size_t i = 0; i < count; ++i) {
    Picture& picture = pictures[i];
    picture.frames = (*grids)[3 * i];
    picture.height = (*grids)[3 * i + 1], picture.width = (*grids)[3 * i + 2];
    picture.first_token = (*spans)[2 * i], picture.num_tokens = (*spans)[2 * i + 1];
    if (!tiles) continue;
    const int32_t* const layout = tiles->data() + 4 * i;
    picture.tile_rows = layout[0], picture.tile_columns = layout[1];
    picture.cut_rows = layout[2], picture.cut_columns = layout[3];
  }
  return pictures;
}

}  // namespace

Status read_pictures(const Item& item, const ReadContext& context, nereid::Request& out) {
  ASSIGN_OR_RETURN(const auto view, item.input(kPatches));
  if (!view || view->bytes.empty()) {
    for (const char* name : {kGrids, kSpans, kTiles})
      if (item.has(name))
        return invalid_argument("input '{}' comes without input '{}'", name, kPatches);
    return ok();
  }
  if (context.pictures.patch_width == 0)
    return invalid_argument("input '{}': the model takes no pictures", kPatches);
  RETURN_IF_ERROR(item.request().hold(view->bytes.size()));
  ASSIGN_OR_RETURN(std::vector<Picture> pictures, read_places(item));
  ASSIGN_OR_RETURN(const std::vector<uint16_t> numbers, read_bf16(kPatches, *view));
  const int64_t width = context.pictures.patch_width, most = std::ssize(numbers) / width;
  int64_t first = 0;
  for (size_t i = 0; i < pictures.size(); ++i) {
    Picture& p = pictures[i];
    int64_t rows = 1;
    for (const int32_t side : {p.frames, p.height, p.width})
      rows = side < 1 || rows > most / side ? most + 1 : rows * side;
    if (rows > most - first)
      return invalid_argument(
          "input '{}': picture {} has a grid of [{}, {}, {}], expected positive numbers whose "
          "patches are among the {} rows of {} that '{}' has left",
          kGrids, i, p.frames, p.height, p.width, most - first, width, kPatches);
    const auto begin = numbers.begin() + first * width;
    p.patches.assign(begin, begin + rows * width);
    first += rows;
  }
  if (std::ssize(numbers) != first * width)
    return invalid_argument(
        "input '{}' has {} numbers, expected {}: the pictures of '{}' have {} "
        "rows of {}",
        kPatches, numbers.size(), first * width, kGrids, first, width);
  out.pictures = std::move(pictures);
  return ok();
}

}  // namespace nereid::backend
