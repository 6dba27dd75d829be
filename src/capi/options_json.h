// The options of the C++ API as JSON objects, by the names of their fields.
#pragma once

#include <string_view>

#include "base/status.h"
#include "nereid/config.h"
#include "nereid/request.h"
#include "nereid/stats.h"

namespace nereid::capi {

// InvalidArgument: no JSON (with line and column), or a field that is unknown or of the wrong type
// (named). The executor checks the values.
StatusOr<ExecutorConfig> parse_config(std::string_view text);

// A request without input_token_ids.
StatusOr<Request> parse_request(std::string_view text);

std::string to_json(const ExecutorStats& stats);
std::string to_json(const KvCacheEvent& event);

}  // namespace nereid::capi
