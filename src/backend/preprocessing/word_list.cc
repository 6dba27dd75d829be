// Word lists as tensors.
#include "backend/preprocessing/word_list.h"

namespace nereid::backend {

std::vector<int32_t> flatten_words(const Words& words, size_t width) {
  std::vector<int32_t> rows(2 * width, 0);
  for (size_t i = 0; i < width; ++i) rows[width + i] = -1;
  size_t end = 0, word_index = 0;
  for (const auto& word : words) {
    for (int32_t id : word) rows[end++] = id;
    rows[width + word_index++] = static_cast<int32_t>(end);
  }
  return rows;
}

}  // namespace nereid::backend
