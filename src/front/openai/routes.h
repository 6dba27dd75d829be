// OpenAI routes: /v1/models, /v1/completions, /v1/chat/completions, /v1/responses, ...
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "front/http/byte_budget.h"
#include "front/http/router.h"
#include "front/http/workers.h"
#include "front/trace/tracer.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

struct OpenAiOptions {
  std::string model_name;  // the served id
  // Names of formats, or "auto" (what the chat template teaches), or "none".
  std::string tool_parser = "auto", reasoning_parser = "auto";
  std::string pooling = "auto";  // of embeddings: last, mean, or auto (see pooling_of)
  bool strict_fields = false;    // refuse requests with unknown fields, else warn
  bool ollama = false;           // Ollama's routes too
  // Of the answers of /v1/responses that are kept for later requests; 0: none is.
  size_t response_store_bytes = size_t{256} << 20;
};

// InvalidArgument naming the option, the value and what is allowed.
Status check(const OpenAiOptions& options);

// `options` have passed check(). Long prompts are read by `workers`, which must outlive the
// requests, and count in `budget`. `server` must outlive the router.
void add_openai_routes(Router& router, TRITONSERVER_Server* server, OpenAiOptions options,
                       std::shared_ptr<Tracer> tracer, Workers& workers,
                       std::shared_ptr<ByteBudget> budget);

}  // namespace nereid::front
