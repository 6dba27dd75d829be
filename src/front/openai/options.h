// Options of the OpenAI routes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace nereid::front {

struct OpenAiOptions {
  std::string model_name;  // the served id; "": the name in the repository
  // Names of formats, or "auto" (what the chat template teaches), or "none".
  std::string tool_parser = "auto", reasoning_parser = "auto";
  std::string pooling = "auto";    // of embeddings: last, mean, or auto (see pooling_of)
  bool request_templates = false;  // requests may bring their own chat template
  bool strict_fields = false;      // refuse requests with unknown fields, else warn
  bool ollama = false;             // Ollama's routes too
  bool any_model_name = false;     // a name that is not known stands for the first model
  bool fastapi_errors = false;     // 422 for invalid bodies and "detail", as FastAPI answers
  bool tells_base_url = false;     // GET / says what clients are to be given
  // Bytes of the answers of /v1/responses that are kept for later requests; 0: none is kept.
  size_t response_store_bytes = size_t{256} << 20;
  // max_tokens of requests without one, at most what the context has room for; 0: just that.
  int64_t default_max_tokens = 0;
  // Sampling options that a request leaves out: none (as OpenAI has them) or auto (as the
  // checkpoint's generation_config.json says).
  std::string generation_config = "none";
  std::string tokenizer_dir;  // "": that of the model which makes ids of text
};

// InvalidArgument naming the option, the value and what is allowed.
Status check(const OpenAiOptions& options);

}  // namespace nereid::front
