// OpenAI-shaped errors: which field, which status, one body that every client finds its keys in.
#pragma once

#include <string>

#include "base/status.h"
#include "front/http/message.h"

namespace nereid::front {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param;  // the request field at fault; empty: none
  std::string code;   // machine-readable, e.g. context_length_exceeded; empty: none
};

// A failure below the front end; the status follows the code of `status`.
ApiError api_error(const Status& status);

// {"object","message","type","param","code","error":{...}}: the nested object is what OpenAI's
// clients read, the flat keys what clients of other LLM servers read.
std::string openai_error_body(const ApiError& error);
Response openai_error(const ApiError& error);

// The same with FastAPI's member "detail": 422 and a list of places for a fault that a schema of
// the body would find, else a text.
Response fastapi_error(ApiError error);

}  // namespace nereid::front
