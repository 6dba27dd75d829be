#include "front/openai/pictures/read_pictures.h"

#include <map>
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

ApiError error_at(const PictureSource& source, const Status& status) {
  ApiError error = api_error(status);
  error.message = fmt::format("'{}': {}", source.where, error.message);
  error.param = source.where;
  return error;
}

// A file from a URL, counted in the budget.
struct FetchedFile {
  std::string bytes;
  BudgetShare held;
};

StatusOr<FetchedFile> fetch_file(const OpenAiContext& context, const PictureSource& source,
                                 const PromptWork& work) {
  FetchedFile out{{}, BudgetShare(context.budget)};
  const FetchOptions options = {[&](size_t bytes) { return out.held.reserve(bytes); },
                                work.is_unwanted};
  ASSIGN_OR_RETURN(out.bytes, context.media.fetch(std::string(text_of(source)), options));
  return out;
}

// The files of URLs, by their place among the sources.
std::variant<std::map<size_t, FetchedFile>, ApiError> fetch_files(
    const OpenAiContext& context, const std::vector<PictureSource>& sources,
    const PromptWork& work) {
  std::map<size_t, FetchedFile> out;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (vision::is_data_url(text_of(sources[i]))) continue;
    if (work.lane != Lane::kFetch) throw WaitsForOthers();
    auto file = fetch_file(context, sources[i], work);
    if (!file.ok()) return error_at(sources[i], file.status());
    out.emplace(i, *std::move(file));
  }
  if (work.lane == Lane::kFetch) context.workers.count_as_long();
  return out;
}

// Reads one of a prompt's pictures; counts in the budget what it holds meanwhile.
class PictureReader {
 public:
  PictureReader(const OpenAiContext& context, const ServedPictures& served, size_t num_pictures,
                const PromptWork& work)
      : context_(context),
        served_(served),
        num_pictures_(num_pictures),
        work_(work),
        scratch_(context.budget) {}

  // `fetched`: null for a data URL.
  StatusOr<PicturePtr> read(const PictureSource& source, const FetchedFile* fetched) {
    if (fetched != nullptr) return read_file(fetched->bytes);
    const std::string_view url = text_of(source);
    RETURN_IF_ERROR(hold(url.size() / 4 * 3));
    ASSIGN_OR_RETURN(const std::string file, vision::bytes_of_data_url(url));
    base_ = file.capacity();
    return read_file(file);
  }

 private:
  StatusOr<PicturePtr> read_file(const std::string& file) {
    const auto hold = [this](size_t bytes) { return this->hold(bytes); };
    ASSIGN_OR_RETURN(const vision::Image image, vision::decode_image(file, {.hold = hold}));
    base_ += image.rgb.capacity();
    auto out = std::make_shared<Picture>();
    ASSIGN_OR_RETURN(out->patches, vision::preprocess(image, served_.processor, served_.encoder,
                                                      hold, num_pictures_));
    out->held = BudgetShare(context_.budget);
    RETURN_IF_ERROR(out->held.reserve(out->patches.values.capacity() * sizeof(float)));
    return PicturePtr(std::move(out));
  }
  Status hold(size_t bytes) {
    if (work_.lane == Lane::kWorker && base_ + bytes > kMostWorkerBytes) throw TakesLonger();
    return scratch_.reserve(base_ + bytes);
  }

  const OpenAiContext& context_;
  const ServedPictures& served_;
  const size_t num_pictures_;
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
  auto fetched = fetch_files(context, sources, work);
  if (auto* error = std::get_if<ApiError>(&fetched)) return std::move(*error);
  auto& files = std::get<0>(fetched);
  if (work.lane == Lane::kLoop) throw TakesLonger();
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto file = files.find(i);
    auto picture = PictureReader(context, **model.pictures, sources.size(), work)
                       .read(sources[i], file == files.end() ? nullptr : &file->second);
    if (!picture.ok()) return error_at(sources[i], picture.status());
    out.push_back(*std::move(picture));
    if (file != files.end()) files.erase(file);
  }
  return out;
}

}  // namespace nereid::front
