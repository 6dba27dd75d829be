// The infer route.
#pragma once

#include <memory>

#include "front/http/message.h"
#include "front/kserve/routes.h"
#include "front/kserve/shared_memory.h"

namespace nereid::front {

// Runs one infer request; the exchange gets its answer when the model's final response is there.
void start_infer(TRITONSERVER_Server* server, const ExchangePtr& exchange,
                 const std::shared_ptr<SharedMemory>& regions, const KserveOptionsPtr& options);

}  // namespace nereid::front
