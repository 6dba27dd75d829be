// Answering requests from a response cache, and keeping what models answer.
#pragma once

#include <memory>

#include "server/cache/cache.h"
#include "server/request/request.h"

namespace nereid::server {

// Answers `request`, which was accepted, from the cache: true, and it is released. Otherwise its
// response, if it is one without error, will be kept when it comes.
bool answer_from_cache(ResponseCache& cache, InferenceRequest* request,
                       const std::shared_ptr<ResponseContext>& context);

}  // namespace nereid::server
