// Bodies of POST /v1/responses as chat completions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "front/openai/requests.h"
#include "front/openai/response_store.h"

namespace nereid::front {

struct ResponsesRequest {
  std::string chat;      // body of the chat completion that makes the answer
  json::object members;  // what the response says of its request, defaults included
  std::string items;     // JSON text: the conversation before the answer; empty unless `is_kept`
  bool is_kept = false;  // later requests may name the response
  bool stream = false;
  bool drops_messages = false;       // the oldest, where the conversation does not fit
  std::vector<std::string> unknown;  // members of the request that were not read
};

// `id_end` is what ids of new items end with, before their number.
Parsed<ResponsesRequest> read_responses_request(const json::object& request,
                                                const OwnResponses& kept, std::string_view id_end);

// The fields that it knows.
FieldUses responses_fields();

// An error of the chat in terms of the request that it was made of.
ApiError responses_error(ApiError chat_error);

}  // namespace nereid::front
