// Cuts a recording at pauses, so that its parts can be transcribed independently.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace nereid::speech {

// Frames (10 ms each) [begin, end) of the parts, in order, all of the recording's whole frames.
// Each has at most `most_frames`, and ends in the quietest quarter of a second of its second half.
std::vector<std::pair<int64_t, int64_t>> parts_at_pauses(std::span<const float> samples,
                                                         int64_t most_frames);

}  // namespace nereid::speech
