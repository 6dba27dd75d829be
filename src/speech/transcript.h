// A transcript: texts and their times.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nereid::speech {

struct Word {
  std::string text;           // with its leading space
  double start = 0, end = 0;  // seconds
  double probability = 0;
  std::vector<int32_t> tokens = {};
};

struct Segment {
  int64_t seek = 0;           // frame at which the window begins
  double start = 0, end = 0;  // seconds
  std::string text;
  std::vector<int32_t> tokens;   // time stamps included
  std::vector<float> log_probs;  // of the tokens, natural; empty where the engine gave none
  double temperature = 0;
  double mean_log_prob = 0;      // of the window's tokens, the end included
  double compression_ratio = 0;  // of the window's text
  double no_speech_prob = 0;     // 0 where it was not asked for
  std::vector<Word> words;
};

// 00:00:01,500, as SRT has it, or 00:01.500 (with hours where there are some), as VTT has it.
// Negative times count as 0.
std::string srt_time(double seconds);
std::string vtt_time(double seconds);

// SubRip and WebVTT; a subtitle for each segment with text.
std::string srt_of(const std::vector<Segment>& segments);
std::string vtt_of(const std::vector<Segment>& segments);

// The segments' texts, without blanks around all of it.
std::string text_of(const std::vector<Segment>& segments);

// Without blanks at both ends.
std::string_view stripped(std::string_view text);

}  // namespace nereid::speech
