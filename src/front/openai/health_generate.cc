// GET /health_generate: generates one token, scores one text, or looks for the language of silence,
// to test the whole path through the engine.
#include <memory>
#include <utility>
#include <vector>

#include "front/bridge/inference_call.h"
#include "front/openai/audio/pass_request.h"
#include "front/openai/engine_request.h"
#include "front/openai/generation.h"
#include "front/openai/handlers.h"
#include "front/trace/exchange_trace.h"
#include "speech/features/log_mel.h"
#include "speech/transcription.h"

namespace nereid::front {
namespace {

void answer_health(const ExchangePtr& exchange, const Status& status) {
  if (status.ok())
    exchange->send({200, "text/plain; charset=utf-8", {}, "Generation health check OK"});
  else
    exchange->send({500, "text/plain; charset=utf-8", {}, std::string(message(status))});
}

void make_token(const OpenAiContextPtr& context, const ExchangePtr& exchange,
                const LanguageModelPtr& model) {
  SamplingOptions sampling;
  sampling.temperature = 0, sampling.max_tokens = 1;
  const auto started = Generation::start(context->models.server(), *context->tracer, model,
                                         exchange, {0}, sampling, [exchange](const Piece& piece) {
                                           if (piece.done) answer_health(exchange, piece.status);
                                         });
  if (!started.ok()) return answer_health(exchange, started.status());
  exchange->on_disconnect([generation = *started] { generation->cancel(); });
}

void run(const OpenAiContextPtr& context, const ExchangePtr& exchange,
         StatusOr<InferenceSpec> spec) {
  if (!spec.ok()) return answer_health(exchange, spec.status());
  spec->tenant = exchange->request().tenant;
  spec->trace = trace_exchange(*context->tracer, spec->model, *exchange);
  auto result = std::make_shared<Status>();
  const auto started = InferenceCall::start(
      context->models.server(), *std::move(spec), [exchange, result](const InferenceReply& reply) {
        exchange->post([exchange, result, status = reply.status, is_last = reply.final] {
          if (result->ok()) *result = status;
          if (is_last) answer_health(exchange, *result);
        });
      });
  if (!started.ok()) return answer_health(exchange, started.status());
  exchange->on_disconnect([call = *started] { call->cancel(); });
}

// On a worker.
StatusOr<InferenceSpec> silence_request(const LanguageModel& model) {
  const ServedSpeech& speech = **model.speech;
  ASSIGN_OR_RETURN(auto mel, speech::LogMel::create(speech.num_mels));
  const std::vector<float> samples(speech::kFrameHop * 10);
  const speech::Features features(std::move(mel), samples);
  ASSIGN_OR_RETURN(InferenceSpec spec,
                   pass_request(speech, *model.engine, features,
                                speech::language_pass(speech.model, features.num_frames())));
  spec.model = model.engine_name;
  return spec;
}

void hear_silence(const OpenAiContextPtr& context, const ExchangePtr& exchange,
                  const LanguageModelPtr& model) {
  context->workers.run(
      exchange, Lane::kWorker,
      [model] { return std::make_shared<StatusOr<InferenceSpec>>(silence_request(*model)); },
      [context, exchange](const std::shared_ptr<StatusOr<InferenceSpec>>& spec) {
        run(context, exchange, std::move(*spec));
      });
}

}  // namespace

void handle_health_generate(const OpenAiContextPtr& context, const ExchangePtr& exchange) {
  context->workers.run(
      exchange, context->models.is_loaded(), [context] { return context->models.get(); },
      [context, exchange](const StatusOr<LanguageModelPtr>& model) {
        if (!model.ok()) return answer_health(exchange, model.status());
        if (const auto& permit = exchange->request().permit) permit->charge(1);
        if ((*model)->num_labels > 0)
          return run(context, exchange, pooling_request(**model, {0}, SamplingOptions(), "score"));
        if ((*model)->speech.ok()) return hear_silence(context, exchange, *model);
        make_token(context, exchange, *model);
      });
}

}  // namespace nereid::front
