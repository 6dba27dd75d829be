// POST /v1/responses in terms of a chat: translation of its answer and stream.
#pragma once

#include <memory>
#include <string>

#include "front/openai/responses/response_store.h"
#include "front/openai/responses/responses_request.h"
#include "front/translate/translated_exchange.h"

namespace nereid::front {

// Makes a response with the id "resp_" + `id_end` of a chat's answer. Stored in `kept` when it is
// complete and the request asks for it.
std::unique_ptr<Translation> responses_translation(ResponsesRequest request, OwnerResponses kept,
                                                   std::string id_end);

}  // namespace nereid::front
