// A window's tokens in segments, and where the next window begins.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "speech/vocabulary.h"

namespace nereid::speech {

// A part of a window's tokens, with its times in seconds behind the window's begin.
struct TokenSpan {
  size_t begin = 0, end = 0;  // of the tokens
  double start = 0, stop = 0;
};

struct WindowCut {
  std::vector<TokenSpan> segments;
  int64_t advance = 0;            // frames to the next window, at least 1
  bool is_silent_behind = false;  // one time stamp at the end: no speech comes behind it
};

// `tokens` of a window of `num_frames` (10 ms each), without the end of text. Where two time stamps
// stand together, segments end there, and the next window begins at the last one unless a single
// time stamp ends the tokens; otherwise all is one segment up to the last time stamp, and the next
// window is behind this one. Source: transcribe.py of openai/whisper.
WindowCut cut_window(std::span<const int32_t> tokens, int64_t num_frames,
                     const Vocabulary& vocabulary);

// Bytes of a text divided by its bytes when compressed by zlib; 0 for none. Texts that repeat
// themselves have large ones.
double compression_ratio(std::string_view text);

}  // namespace nereid::speech
