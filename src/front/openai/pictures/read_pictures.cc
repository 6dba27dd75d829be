#include "front/openai/pictures/read_pictures.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "vision/data_url.h"
#include "vision/decode/image.h"

namespace nereid::front {
namespace {

// Decoding and resizing of more bytes takes more than some 100 ms.
constexpr size_t kMostWorkerBytes = size_t{16} << 20;

std::string_view text_of(const PictureSource& source) { return std::string_view(source.url); }

// Reads one picture; counts in the budget what it holds meanwhile.
class PictureReader {
 public:
  PictureReader(const OpenAiContext& context, const ServedPictures& served, const PromptWork& work)
      : context_(context), served_(served), work_(work), scratch_(context.budget) {}

  StatusOr<PicturePtr> read(const PictureSource& source) {
    ASSIGN_OR_RETURN(const std::string file, file_of(text_of(source)));
    base_ = file.capacity();
    const auto hold = [this](size_t bytes) { return this->hold(bytes); };
    ASSIGN_OR_RETURN(const vision::Image image, vision::decode_image(file, {.hold = hold}));
    base_ += image.rgb.capacity();
    auto out = std::make_shared<Picture>();
    ASSIGN_OR_RETURN(out->patches,
                     vision::preprocess(image, served_.processor, served_.encoder, hold));
    out->held = BudgetShare(context_.budget);
    RETURN_IF_ERROR(out->held.reserve(out->patches.values.capacity() * sizeof(float)));
    return PicturePtr(std::move(out));
  }

 private:
  Status hold(size_t bytes) {
    if (work_.lane == Lane::kWorker && base_ + bytes > kMostWorkerBytes) throw TakesLonger();
    return scratch_.reserve(base_ + bytes);
  }

  StatusOr<std::string> file_of(std::string_view url) {
    if (vision::is_data_url(url)) {
      RETURN_IF_ERROR(hold(url.size() / 4 * 3));
      return vision::bytes_of_data_url(url);
    }
    if (work_.lane != Lane::kLong) throw TakesLonger();
    return context_.media.fetch(std::string(url),
                                {[this](size_t bytes) { return hold(bytes); }, work_.is_unwanted});
  }

  const OpenAiContext& context_;
  const ServedPictures& served_;
  const PromptWork& work_;
  BudgetShare scratch_;
  size_t base_ = 0;  // bytes of earlier steps
};

}  // namespace

std::optional<ApiError> check_takes_pictures(const LanguageModel& model,
                                             const std::vector<PictureSource>& sources) {
  if (sources.empty() || model.pictures.ok()) return std::nullopt;
  ApiError error = api_error(model.pictures.status());
  error.status = 400;
  error.message = fmt::format("'{}': {}", sources.front().where, error.message);
  error.param = sources.front().where;
  error.code = "unsupported_parameter";
  return error;
}

std::optional<ApiError> place_in_prompt(const OpenAiContext& context, const LanguageModel& model,
                                        std::string_view param, std::vector<int32_t>& ids,
                                        PromptPictures& pictures) {
  std::vector<vision::PictureTokens> tokens;
  for (const PicturePtr& picture : pictures.pictures)
    tokens.push_back(vision::tokens_of(picture->patches));
  auto spans = vision::place_pictures((*model.pictures)->marks, tokens, ids);
  if (!spans.ok())
    return ApiError{400, fmt::format("'{}': {}", param, message(spans.status())),
                    std::string(param)};
  pictures.spans = *std::move(spans);
  pictures.held = BudgetShare(context.budget);
  const Status room = pictures.held.reserve(pictures.num_bytes());
  return room.ok() ? std::nullopt : std::optional(api_error(room));
}

std::variant<std::vector<PicturePtr>, ApiError> read_pictures(
    const OpenAiContext& context, const LanguageModel& model,
    const std::vector<PictureSource>& sources, const PromptWork& work) {
  if (auto error = check_takes_pictures(model, sources)) return *std::move(error);
  std::vector<PicturePtr> out;
  if (sources.empty()) return out;
  if (work.lane == Lane::kLoop) throw TakesLonger();
  for (const PictureSource& source : sources) {
    auto picture = PictureReader(context, **model.pictures, work).read(source);
    if (!picture.ok()) {
      ApiError error = api_error(picture.status());
      error.message = fmt::format("'{}': {}", source.where, error.message);
      error.param = source.where;
      return error;
    }
    out.push_back(*std::move(picture));
  }
  return out;
}

}  // namespace nereid::front
