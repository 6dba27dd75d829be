#include "backend/preprocessing/picture_inputs.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "backend/common/float_tensors.h"
#include "base/json_members.h"
#include "vision/data_url.h"
#include "vision/decode/image.h"

namespace nereid::backend {
namespace {

constexpr int64_t kMostPatches = int64_t{1} << 16;  // of a picture; the engine has its own limit
constexpr char kUrls[] = "IMAGE_URL", kBytes[] = "IMAGE_BYTES";

}  // namespace

StatusOr<PictureInputs> PictureInputs::load(const std::filesystem::path& dir,
                                            const text::Tokenizer& tokenizer) {
  PictureInputs out;
  ASSIGN_OR_RETURN(out.encoder_, vision::read_encoder_facts(dir, kMostPatches));
  ASSIGN_OR_RETURN(out.processor_, vision::read_processor(dir, out.encoder_));
  ASSIGN_OR_RETURN(out.marks_, vision::find_marks(dir, tokenizer));
  const auto config = read_json_file(dir / "config.json");
  const bool is_llava = config.ok() && text_member(*config, "model_type") == "llava";
  if (is_llava) out.before_ = "USER:\n", out.after_ = " ASSISTANT:";
  return out;
}

// The pictures of one request, counted in its memory.
class PictureInputs::Reading {
 public:
  Reading(const PictureInputs& inputs, const Request& request)
      : inputs_(inputs), request_(request) {}

  Status add_urls() {
    ASSIGN_OR_RETURN(const auto given, request_.strings(kUrls));
    const std::vector<std::string> urls = given.value_or(std::vector<std::string>());
    ASSIGN_OR_RETURN(const auto bytes, request_.input(kBytes));
    num_pictures_ = static_cast<size_t>(std::ssize(urls) - std::ranges::count(urls, ""));
    if (bytes && !bytes->bytes.empty() && bytes->shape.size() > 1)
      num_pictures_ += static_cast<size_t>(bytes->shape[1]);
    for (const std::string& url : urls) {
      if (url.empty()) continue;
      RETURN_IF_ERROR(named(kUrls, add_url(url)));
    }
    return ok();
  }

  Status add_bytes() {
    ASSIGN_OR_RETURN(const auto view, request_.input(kBytes));
    if (!view || view->bytes.empty()) return ok();
    const Shape& shape = view->shape;
    if (view->datatype != TRITONSERVER_TYPE_UINT8 || shape.size() != 5 || shape[0] != 1 ||
        shape[4] != 3)
      return invalid_argument(
          "input '{}' has the shape [{}]; expected UINT8 [1, pictures, height, width, 3]", kBytes,
          fmt::join(shape, ", "));
    if (shape[1] > kMostPictures)
      return invalid_argument("input '{}' has {} pictures; allowed are {}", kBytes, shape[1],
                              kMostPictures);
    const size_t size = view->bytes.size() / static_cast<size_t>(shape[1]);
    for (size_t at = 0; at < view->bytes.size(); at += size) {
      const auto hold = [this](size_t bytes) { return this->hold(bytes); };
      auto image = vision::new_image(shape[3], shape[2], 0, {.hold = hold});
      if (!image.ok()) return named(kBytes, image.status());
      std::copy_n(view->bytes.data() + at, size, image->rgb.begin());
      RETURN_IF_ERROR(named(kBytes, add(*image)));
    }
    return ok();
  }

  std::vector<vision::Patches> take() { return std::move(out_); }

 private:
  static Status named(const char* input, const Status& status) {
    return status.ok() ? status : annotate(status, fmt::format("input '{}'", input));
  }
  // `bytes`: of all that is held at once.
  Status hold(size_t bytes) {
    if (request_.is_cancelled()) return cancelled("nobody waits for it");
    if (bytes <= num_held_) return ok();
    RETURN_IF_ERROR(request_.hold(bytes - num_held_));
    num_held_ = bytes;
    return ok();
  }
  Status add_url(const std::string& url) {
    if (!vision::is_data_url(url))
      return invalid_argument("'{}' is no data URL; this model fetches no others",
                              url.substr(0, 60));
    ASSIGN_OR_RETURN(const std::string file, vision::bytes_of_data_url(url));
    const auto hold = [&](size_t bytes) { return this->hold(file.size() + bytes); };
    ASSIGN_OR_RETURN(const vision::Image image, vision::decode_image(file, {.hold = hold}));
    return add(image);
  }
  Status add(const vision::Image& image) {
    if (std::ssize(out_) == kMostPictures)
      return invalid_argument("a request has at most {} pictures", kMostPictures);
    const size_t before = num_held_;
    const auto hold = [&](size_t bytes) { return this->hold(before + bytes); };
    ASSIGN_OR_RETURN(
        vision::Patches patches,
        vision::preprocess(image, inputs_.processor_, inputs_.encoder_, hold, num_pictures_));
    // The values stay, here and in the output.
    RETURN_IF_ERROR(request_.hold(2 * patches.values.size() * sizeof(float)));
    out_.push_back(std::move(patches));
    return ok();
  }

  const PictureInputs& inputs_;
  const Request& request_;
  std::vector<vision::Patches> out_;
  size_t num_held_ = 0;
  size_t num_pictures_ = 0;  // of the request
};

StatusOr<std::vector<vision::Patches>> PictureInputs::read(const Request& request) const {
  Reading reading(*this, request);
  RETURN_IF_ERROR(reading.add_urls());
  RETURN_IF_ERROR(reading.add_bytes());
  return reading.take();
}

std::string PictureInputs::with_marks(std::string_view query, size_t num_pictures) const {
  if (marks_.is_in(query)) return vision::with_shown_marks(query, marks_);
  std::string out = before_;
  for (size_t i = 0; i < num_pictures; ++i) out += marks_.in_text;
  return vision::with_shown_marks(out.append(query).append(after_), marks_);
}

StatusOr<std::vector<vision::TokenSpan>> PictureInputs::place(
    const std::vector<vision::Patches>& pictures, std::vector<int32_t>& ids) const {
  std::vector<vision::PictureTokens> tokens;
  for (const vision::Patches& picture : pictures) tokens.push_back(vision::tokens_of(picture));
  return vision::place_pictures(marks_, tokens, ids);
}

Status PictureInputs::use_table(int32_t vocab_size, int32_t max_pictures) {
  if (processor_.kind != vision::ProcessorKind::kPlain)
    return unsupported(
        "pictures of {} have several sizes; allowed are models whose pictures have one, as LLaVA's",
        processor_.name);
  vision::Image blank{1, 1, std::vector<uint8_t>(3)};
  ASSIGN_OR_RETURN(const vision::Patches patches, vision::preprocess(blank, processor_, encoder_));
  if (patches.grid[1] != patches.grid[2] || patches.grid[0] != 1)
    return unsupported("pictures of {} x {} patches; allowed are squares", patches.grid[1],
                       patches.grid[2]);
  table_ = {vocab_size, max_pictures, patches.num_tokens};
  return ok();
}

Status PictureInputs::place_rows(size_t num_pictures, std::vector<int32_t>& ids) const {
  const auto num_marks = static_cast<size_t>(std::ranges::count(ids, marks_.id));
  const size_t count = num_pictures > 0 ? num_pictures : num_marks;
  if (count > static_cast<size_t>(table_.max_pictures))
    return invalid_argument(
        "The number of images in the request ({}) exceeds the maximum allowed ({}).", count,
        table_.max_pictures);
  const vision::PictureTokens one{table_.num_rows, table_.num_rows};
  ASSIGN_OR_RETURN(
      const auto spans,
      vision::place_pictures(marks_, std::vector<vision::PictureTokens>(count, one), ids));
  int32_t row = table_.vocab_size;
  for (const vision::TokenSpan& span : spans)
    for (int32_t i = 0; i < span[1]; ++i) ids[static_cast<size_t>(span[0] + i)] = row++;
  return ok();
}

StatusOr<Output> PictureInputs::pixel_values(const std::vector<vision::Patches>& pictures,
                                             TRITONSERVER_DataType type) const {
  const auto patch = static_cast<size_t>(processor_.patch);
  const auto grid = static_cast<size_t>(pictures.front().grid[1]), side = grid * patch;
  std::vector<float> pixels(pictures.size() * 3 * side * side);
  float* plane = pixels.data();
  for (const vision::Patches& picture : pictures) {
    // Patches are in raster order, and a patch's numbers by channel, row and column.
    const float* from = picture.values.data();
    for (size_t p = 0; p < grid * grid; ++p)
      for (size_t c = 0; c < 3; ++c)
        for (size_t y = 0; y < patch; ++y, from += patch)
          std::copy_n(from, patch,
                      plane + (c * side + p / grid * patch + y) * side + p % grid * patch);
    plane += 3 * side * side;
  }
  const auto length = static_cast<int64_t>(side);
  Output out{"PIXEL_VALUES", type, {1, std::ssize(pictures), 3, length, length}, {}};
  ASSIGN_OR_RETURN(out.bytes, float_bytes("output 'PIXEL_VALUES'", pixels, type));
  return out;
}

std::vector<Output> picture_outputs(const std::vector<vision::Patches>& pictures,
                                    const std::vector<vision::TokenSpan>& spans) {
  const auto count = std::ssize(spans);
  std::vector<float> values;
  std::vector<int32_t> grids, tokens, tiles;
  int64_t num_rows = 0;
  for (const vision::Patches& picture : pictures) {
    num_rows += picture.rows;
    values.insert(values.end(), picture.values.begin(), picture.values.end());
    for (const auto& grid : vision::grids_of(picture))
      grids.insert(grids.end(), grid.begin(), grid.end());
    const auto layout = vision::layout_of(picture);
    if (picture.has_layout()) tiles.insert(tiles.end(), layout.begin(), layout.end());
  }
  for (const vision::TokenSpan& span : spans) tokens.insert(tokens.end(), span.begin(), span.end());
  std::vector<Output> out;
  out.push_back(make_output("IMAGE_PATCHES", {1, num_rows, pictures.front().width}, values));
  out.push_back(make_output("IMAGE_GRIDS", {1, count, 3}, grids));
  out.push_back(make_output("IMAGE_TOKEN_SPANS", {1, count, 2}, tokens));
  if (!tiles.empty()) out.push_back(make_output("IMAGE_TILES", {1, count, 4}, tiles));
  return out;
}

}  // namespace nereid::backend
