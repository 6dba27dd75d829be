#include "vision/data_url.h"

#include "base/base64.h"

namespace nereid::vision {
namespace {

constexpr std::string_view kScheme = "data:";

}  // namespace

bool is_data_url(std::string_view url) { return url.starts_with(kScheme); }

StatusOr<std::string> bytes_of_data_url(std::string_view url) {
  constexpr std::string_view kEncoding = ";base64";
  constexpr size_t kMaxType = 128;
  url.remove_prefix(kScheme.size());
  const size_t comma = url.substr(0, kMaxType + kEncoding.size()).find(',');
  if (comma == std::string_view::npos || !url.substr(0, comma).ends_with(kEncoding))
    return invalid_argument("expected data:image/TYPE;base64,DATA");
  const std::string_view type = url.substr(0, comma - kEncoding.size());
  if (!type.empty() && !type.starts_with("image/"))
    return invalid_argument("the data URL's type is '{}'; expected image/TYPE", type);
  const std::string_view data = url.substr(comma + 1);
  if (!is_standard_base64(data)) return invalid_argument("the data URL's data is not base64");
  return decode_base64(data);
}

}  // namespace nereid::vision
