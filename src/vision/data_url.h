// Pictures as data URLs. Source: RFC 2397.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace nereid::vision {

bool is_data_url(std::string_view url);

// The bytes of data:[image/TYPE];base64,DATA. InvalidArgument: another type, no standard base64.
StatusOr<std::string> bytes_of_data_url(std::string_view url);

}  // namespace nereid::vision
