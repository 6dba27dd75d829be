// Model name and version of a matched route.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "front/http/message.h"

namespace nereid::front {

struct ModelPath {
  std::string name;
  int64_t version = -1;  // -1: newest ready
};

// From the route parameters "m" and "v". InvalidArgument when the version overflows.
StatusOr<ModelPath> model_path(const Request& request);

}  // namespace nereid::front
