#include "backend/preprocessing/padding.h"

namespace nereid::backend {

Status check_padding(std::string_view name, size_t rows, size_t width, size_t given) {
  const size_t padding = rows * width - given;
  if (padding <= kMaxPadding) return ok();
  return invalid_argument(
      "output '{}': {} of {} x {} elements would be padding, at most {} are allowed; send long "
      "texts in a request without short ones",
      name, padding, rows, width, kMaxPadding);
}

}  // namespace nereid::backend
