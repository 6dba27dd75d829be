#include "speech/window.h"

#include <zlib.h>

#include <algorithm>
#include <vector>

#include "speech/features/log_mel.h"

namespace nereid::speech {
namespace {

constexpr double kSecondsPerTimestamp = 0.02;
constexpr int64_t kFramesPerTimestamp = 2;

}  // namespace

WindowCut cut_window(std::span<const int32_t> tokens, int64_t num_frames,
                     const Vocabulary& vocabulary) {
  WindowCut out;
  const auto is_stamp = [&](size_t i) { return vocabulary.is_timestamp(tokens[i]); };
  // Ids behind the window's end come of models without rules.
  const auto index_of = [&](size_t i) {
    return std::clamp<int64_t>(tokens[i] - vocabulary.first_timestamp, 0,
                               num_frames / kFramesPerTimestamp);
  };
  const auto seconds_of = [&](size_t i) {
    return is_stamp(i) ? static_cast<double>(index_of(i)) * kSecondsPerTimestamp : 0;
  };
  const size_t size = tokens.size();
  out.is_silent_behind = size >= 2 && is_stamp(size - 1) && !is_stamp(size - 2);
  std::vector<size_t> ends;
  for (size_t i = 1; i < size; ++i)
    if (is_stamp(i - 1) && is_stamp(i)) ends.push_back(i);
  if (!ends.empty()) {
    if (out.is_silent_behind) ends.push_back(size);
    size_t begin = 0;
    for (const size_t end : ends) {
      out.segments.push_back({begin, end, seconds_of(begin), seconds_of(end - 1)});
      begin = end;
    }
    out.advance = out.is_silent_behind ? num_frames : index_of(begin - 1) * kFramesPerTimestamp;
  } else {
    double stop = static_cast<double>(num_frames) / kFramesPerSecond;
    for (size_t i = size; i-- > 0;) {
      if (!is_stamp(i)) continue;
      if (index_of(i) > 0) stop = seconds_of(i);
      break;
    }
    out.segments.push_back({0, size, 0, stop});
    out.advance = num_frames;
  }
  // A window that leads nowhere is passed over.
  if (out.advance <= 0) out.advance = std::max<int64_t>(num_frames, 1);
  return out;
}

double compression_ratio(std::string_view text) {
  if (text.empty()) return 0;
  uLongf size = compressBound(text.size());
  std::vector<Bytef> out(size);
  if (compress(out.data(), &size, reinterpret_cast<const Bytef*>(text.data()), text.size()) != Z_OK)
    return 0;
  return static_cast<double>(text.size()) / static_cast<double>(size);
}

}  // namespace nereid::speech
