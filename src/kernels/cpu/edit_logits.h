// Steps 1 to 3 of Sample (kernels/api/sample.h), in place.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/api/sample.h"

namespace nereid::kernels::cpu {

class LogitsEditor {
 public:
  // `history`: tokens before `position`, if parameters need it. `mask`: of Sample::masks, or null.
  void edit(const SampleParams& params, const SampleLists& lists, const uint32_t* mask,
            std::span<const int32_t> history, int32_t position, std::span<float> logits);

 private:
  void penalise(const SampleParams& params, std::span<const int32_t> history,
                std::span<float> logits);

  void ban_repeated_ngrams(int32_t n, std::span<const int32_t> history, std::span<float> logits);

  std::vector<uint32_t> counts_;  // [vocab], zero between calls
  std::vector<int64_t> matched_;  // scratch of ban_repeated_ngrams()
};

}  // namespace nereid::kernels::cpu
