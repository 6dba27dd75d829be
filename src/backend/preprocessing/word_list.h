// The tensor form of word lists: [2, N], row 0 all token ids, row 1 the end of each word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace nereid::backend {

using Words = std::vector<std::vector<int32_t>>;

// Row 0: the ids of all words, padded with 0 to `width`; row 1: inclusive cumulative end offsets,
// padded with -1. `width` is at least the number of ids (1: a list of empty words).
std::vector<int32_t> flatten_words(const Words& words, size_t width);

}  // namespace nereid::backend
