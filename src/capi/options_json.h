// The options of the C++ API as JSON, by the names of their fields.
#pragma once

#include <string_view>

#include "base/status.h"
#include "nereid/config.h"
#include "nereid/request.h"
#include "nereid/stats.h"

namespace nereid::capi {

// InvalidArgument: not JSON (with the place), an unknown field or one of the wrong type (named).
// Values are checked by the executor.
StatusOr<ExecutorConfig> parse_config(std::string_view text);

// Everything but input_token_ids.
StatusOr<Request> parse_request(std::string_view text);

std::string to_json(const ExecutorStats& stats);
std::string to_json(const KvCacheEvent& event);

}  // namespace nereid::capi
