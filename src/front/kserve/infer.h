// The infer route.
#pragma once

#include <memory>

#include "front/http/message.h"
#include "front/kserve/routes.h"
#include "front/kserve/shared_memory.h"

namespace nereid::front {

// Runs one infer request; the answer is sent with the model's final response.
void start_infer(TRITONSERVER_Server* server, const ExchangePtr& exchange,
                 const std::shared_ptr<SharedMemory>& regions, const KserveOptionsPtr& options);

}  // namespace nereid::front
