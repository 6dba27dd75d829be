// OpenAI-shaped errors: field, status, and one body with the keys of all clients.
#pragma once

#include <string>

#include "base/status.h"
#include "front/http/message.h"

namespace nereid::front {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param;  // the request field at fault; empty: none
  std::string code;   // machine-readable, such as context_length_exceeded; empty: none
};

// The error for a failure below the front end; the HTTP status follows from the code of `status`.
ApiError api_error(const Status& status);

// The message as valid UTF-8: one that quotes a request may be cut inside a character.
std::string said(const ApiError& error);

// {"object","message","type","param","code","error":{...}}: OpenAI's clients read the nested
// object, clients of other LLM servers the flat keys.
std::string openai_error_body(const ApiError& error);
Response openai_error(const ApiError& error);

// The error with FastAPI's member "detail": 422 and a list of places for a fault that a schema of
// the body would find, else a text.
Response fastapi_error(ApiError error);

}  // namespace nereid::front
