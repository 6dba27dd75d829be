// POST /v1/audio/transcriptions and /v1/audio/translations.
#include <algorithm>
#include <utility>

#include "front/openai/audio/audio_request.h"
#include "front/openai/audio/transcriber.h"
#include "front/openai/handlers.h"

namespace nereid::front {
namespace {

using TranscriberPtr = std::shared_ptr<Transcriber>;

// Blocks that any worker decodes, some 300 ms; longer sound goes to the lane of long work.
constexpr int kShortBlocks = 1000;

// The first speech model, for requests without a model's name.
LanguageModelPtr first_speech_model(LanguageModels& models) {
  const auto all = models.all();
  if (!all.ok()) return nullptr;
  for (const LanguageModelPtr& model : *all)
    if (model->speech.ok()) return model;
  return nullptr;
}

std::variant<LanguageModelPtr, ApiError> speech_model(const OpenAiContext& context,
                                                      const Request& http, AudioRequest& request) {
  auto accepted = accept_request(context, http, request.common);
  if (std::holds_alternative<ApiError>(accepted)) return accepted;
  LanguageModelPtr model = std::get<LanguageModelPtr>(accepted);
  if (model->speech.ok()) return model;
  if (request.common.model.empty())
    if (LanguageModelPtr other = first_speech_model(context.models)) return other;
  ApiError error = api_error(model->speech.status());
  error.status = 400;
  error.param = "model";
  return error;
}

std::variant<TranscriberPtr, ApiError> read_request(const OpenAiContextPtr& context,
                                                    const ExchangePtr& exchange, AudioTask task,
                                                    Lane lane) {
  const Request& http = exchange->request();
  const std::string* const type = find_header(http.headers, "Content-Type");
  auto parsed = parse_audio_request(task, type ? *type : "", http.content());
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  auto& request = std::get<AudioRequest>(parsed);
  auto model = speech_model(*context, http, request);
  if (auto* error = std::get_if<ApiError>(&model)) return std::move(*error);
  Recording recording{.share = BudgetShare(context->budget)};
  int num_blocks = 0;
  const speech::DecodeOptions options = {
      .hold = [&](size_t bytes) { return recording.share.reserve(bytes); },
      .is_unwanted =
          [&] {
            if (lane == Lane::kWorker && ++num_blocks > kShortBlocks) throw TakesLonger();
            return exchange->disconnected();
          }};
  auto sound = speech::decode_sound(request.file, options);
  if (!sound.ok()) {
    ApiError error = api_error(sound.status());
    error.message = fmt::format("'file': {}", error.message);
    error.param = "file";
    return error;
  }
  recording.sound = *std::move(sound);
  return Transcriber::create(context, exchange, std::get<LanguageModelPtr>(std::move(model)),
                             std::move(request), std::move(recording));
}

void handle_audio(const OpenAiContextPtr& context, const ExchangePtr& exchange, AudioTask task) {
  const bool is_large = exchange->request().content().size() > kLongPromptBytes;
  context->workers.run(
      exchange, is_large ? Lane::kLong : Lane::kWorker,
      [=](Lane lane) -> std::variant<TranscriberPtr, ApiError> {
        try {
          return read_request(context, exchange, task, lane);
        } catch (const std::bad_alloc& e) {
          return ApiError{503, shortage(e), "", ""};
        }
      },
      [context, exchange](const std::variant<TranscriberPtr, ApiError>& read) {
        if (const auto* const error = std::get_if<ApiError>(&read))
          return exchange->send(refusal(*context, *error));
        const TranscriberPtr& transcriber = std::get<0>(read);
        start_in_turn(*context, exchange, transcriber->model(), transcriber->num_positions(),
                      [transcriber] { transcriber->start(); });
      });
}

// Sound files.
constexpr RouteTraits kHears = {Api::kInference, Access::kCallers, Cost::kTokens,
                                ErrorShape::kOpenAi, /*large_bodies=*/true};

}  // namespace

void add_audio_routes(Router& router, const OpenAiContextPtr& context) {
  router.add("POST", "/v1/audio/transcriptions", kHears,
             [context](const ExchangePtr& x) { handle_audio(context, x, AudioTask::kTranscribe); });
  router.add("POST", "/v1/audio/translations", kHears,
             [context](const ExchangePtr& x) { handle_audio(context, x, AudioTask::kTranslate); });
}

}  // namespace nereid::front
