// The generate and generate_stream handlers.
#pragma once

#include "front/http/message.h"
#include "front/kserve/routes.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

// Starts the inference that the exchange asks for. Without `stream` the answer is the one response
// as JSON; with it every response is one server-sent event. The client leaving cancels.
void start_generate(TRITONSERVER_Server* server, const ExchangePtr& exchange, bool stream,
                    const KserveOptionsPtr& options);

}  // namespace nereid::front
