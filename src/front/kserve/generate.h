// The generate and generate_stream handlers.
#pragma once

#include "front/http/message.h"
#include "front/kserve/routes.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

// Starts the inference of a request. Without `stream` the answer is the only response as JSON; with
// it every response is a server-sent event. A disconnect cancels.
void start_generate(TRITONSERVER_Server* server, const ExchangePtr& exchange, bool stream,
                    const KserveOptionsPtr& options);

}  // namespace nereid::front
