// Responses as byte strings, the form in which caches store them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/request/response.h"

namespace nereid::server {

struct CachedOutput {
  std::string name;
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  Shape shape;
  std::string_view bytes;
};

struct CachedResponse {
  std::vector<CachedOutput> outputs;
  std::vector<TRITONSERVER_Parameter> parameters;
};

// nullopt when an output is in device memory or a parameter is a foreign buffer.
std::optional<std::string> serialize(const InferenceResponse& response);

// Parses into views of `text`. Internal for any other text than serialize() makes: a
// cache may be external.
StatusOr<CachedResponse> parse_cached_response(std::string_view text);

}  // namespace nereid::server
