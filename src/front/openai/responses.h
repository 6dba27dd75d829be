// POST /v1/responses in terms of a chat: what its answer and stream become.
#pragma once

#include <memory>
#include <string>

#include "front/openai/response_store.h"
#include "front/openai/responses_request.h"
#include "front/translate/translated_exchange.h"

namespace nereid::front {

// Makes a response, whose id is "resp_" and `id_end`, of a chat's answer. It is kept in `kept` when
// it is complete and the request wants it.
std::unique_ptr<Translation> responses_translation(ResponsesRequest request, OwnResponses kept,
                                                   std::string id_end);

}  // namespace nereid::front
