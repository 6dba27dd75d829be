// OpenAI routes: /v1/models, /v1/completions, /v1/chat/completions, /v1/responses, ...
#pragma once

#include <memory>

#include "front/http/router.h"
#include "front/http/workers.h"
#include "front/openai/options.h"
#include "front/protection/byte_budget.h"
#include "front/trace/tracer.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

// `options` have passed check(). Long prompts are parsed by `workers`, which must outlive the
// requests, and count in `budget`. `server` must outlive the router.
void add_openai_routes(Router& router, TRITONSERVER_Server* server, OpenAiOptions options,
                       std::shared_ptr<Tracer> tracer, Workers& workers,
                       std::shared_ptr<ByteBudget> budget);

}  // namespace nereid::front
