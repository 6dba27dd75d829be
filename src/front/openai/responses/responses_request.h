// Bodies of POST /v1/responses as chat completions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "front/openai/requests/requests.h"
#include "front/openai/responses/response_store.h"

namespace nereid::front {

struct ResponsesRequest {
  std::string chat;      // body of the chat completion for the answer
  json::object members;  // the request's members in the response, defaults included
  std::string items;     // JSON text: the conversation before the answer; empty unless `is_kept`
  bool is_kept = false;  // stored for later requests
  bool stream = false;
  bool drops_messages = false;       // drops the oldest messages if the conversation does not fit
  std::vector<std::string> unknown;  // members of the request that were not read
};

// `id_end`: end of new items' ids, before their number.
Parsed<ResponsesRequest> read_responses_request(const json::object& request,
                                                const OwnerResponses& kept,
                                                std::string_view id_end);

// Its known fields.
FieldUses responses_fields();

// An error of the chat, with the request's field names.
ApiError responses_error(ApiError chat_error);

}  // namespace nereid::front
