// Responses from a response cache, and insertion of models' responses into it.
#pragma once

#include <memory>

#include "server/cache/cache.h"
#include "server/request/request.h"

namespace nereid::server {

// Looks up `request`, which was accepted. True: answered and released. False: its response, unless
// it is an error, will be inserted.
bool answer_from_cache(ResponseCache& cache, InferenceRequest* request,
                       const std::shared_ptr<ResponseContext>& context);

}  // namespace nereid::server
