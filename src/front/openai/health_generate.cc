// GET /health_generate: one token is made, so the whole way through the engine works.
#include <memory>
#include <utility>

#include "front/openai/generation.h"
#include "front/openai/handlers.h"

namespace nereid::front {
namespace {

void answer_health(const ExchangePtr& exchange, const Status& status) {
  if (status.ok())
    exchange->send({200, "text/plain; charset=utf-8", {}, "Generation health check OK"});
  else
    exchange->send({500, "text/plain; charset=utf-8", {}, std::string(message(status))});
}

}  // namespace

void handle_health_generate(const OpenAiContextPtr& context, const ExchangePtr& exchange) {
  context->workers.run(
      exchange, context->models.is_loaded(), [context] { return context->models.get(); },
      [context, exchange](const StatusOr<LanguageModelPtr>& model) {
        if (!model.ok()) return answer_health(exchange, model.status());
        SamplingOptions sampling;
        sampling.temperature = 0, sampling.max_tokens = 1;
        const auto started =
            Generation::start(context->models.server(), *context->tracer, *model, exchange, {0},
                              sampling, [exchange](const Piece& piece) {
                                if (piece.done) answer_health(exchange, piece.status);
                              });
        if (!started.ok()) return answer_health(exchange, started.status());
        exchange->on_disconnect([generation = *started] { generation->cancel(); });
      });
}

}  // namespace nereid::front
