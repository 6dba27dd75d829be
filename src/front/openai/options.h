// Options of the OpenAI routes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "hub/address.h"

namespace nereid::front {

struct OpenAiOptions {
  std::string model_name;  // the served id; "": the name in the repository
  // Names of formats, "auto" (by the chat template), or "none".
  std::string tool_parser = "auto", reasoning_parser = "auto";
  std::string pooling = "auto";    // of embeddings: last, mean, or auto (see pooling_of)
  bool request_templates = false;  // requests may bring their own chat template
  bool strict_fields = false;      // refuse requests with unknown fields, else warn
  bool ollama = false;             // Ollama's routes too
  bool any_model_name = false;     // an unknown model name means the first model
  bool fastapi_errors = false;     // 422 for invalid bodies and "detail", as from FastAPI
  bool shows_base_url = false;     // GET / shows the base URL for clients
  bool web_page = false;           // GET / is the web page for browsers (front/page)
  // Memory for answers of /v1/responses kept for later requests; 0: none is kept.
  size_t response_store_bytes = size_t{256} << 20;
  // max_tokens of requests without one, at most the room in the context; 0: that room.
  int64_t default_max_tokens = 0;
  // Defaults of sampling options: none (OpenAI's) or auto
  // (the checkpoint's generation_config.json).
  std::string generation_config = "none";
  std::string tokenizer_dir;  // "": that of the preprocessing model
  // Hosts from which pictures are fetched (see MediaFetcher); empty: only data URLs are taken.
  std::vector<std::string> media_domains;
  hub::Reach farthest_media = hub::Reach::kPublic;  // of their addresses; tests allow kLoopback
};

// InvalidArgument naming the option, the value and what is allowed.
Status check(const OpenAiOptions& options);

}  // namespace nereid::front
