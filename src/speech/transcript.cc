#include "speech/transcript.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace nereid::speech {
namespace {

struct Clock {
  int64_t hours, minutes, seconds, milliseconds;
};

Clock clock_of(double seconds) {
  const int64_t all = std::llround(std::clamp(seconds, 0.0, 1e9) * 1000);
  return {all / 3'600'000, all / 60'000 % 60, all / 1000 % 60, all % 1000};
}

// An arrow would end a subtitle's line of times, and an empty line the subtitle.
std::string subtitle_text(std::string_view text) {
  std::string out(stripped(text));
  for (size_t at = 0; (at = out.find("-->", at)) != std::string::npos;) out.replace(at, 3, "->");
  const auto is_break = [](char c) { return c == '\n' || c == '\r'; };
  const auto ends = std::unique(out.begin(), out.end(),
                                [&](char a, char b) { return is_break(a) && is_break(b); });
  out.erase(ends, out.end());
  return out;
}

}  // namespace

std::string_view stripped(std::string_view text) {
  constexpr char kBlanks[] = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::string srt_time(double seconds) {
  const Clock c = clock_of(seconds);
  return fmt::format("{:02}:{:02}:{:02},{:03}", c.hours, c.minutes, c.seconds, c.milliseconds);
}

std::string vtt_time(double seconds) {
  const Clock c = clock_of(seconds);
  const std::string rest = fmt::format("{:02}:{:02}.{:03}", c.minutes, c.seconds, c.milliseconds);
  return c.hours > 0 ? fmt::format("{:02}:{}", c.hours, rest) : rest;
}

std::string srt_of(const std::vector<Segment>& segments) {
  std::string out;
  size_t count = 0;
  for (const Segment& segment : segments) {
    const std::string text = subtitle_text(segment.text);
    if (text.empty()) continue;
    out += fmt::format("{}\n{} --> {}\n{}\n\n", ++count, srt_time(segment.start),
                       srt_time(segment.end), text);
  }
  return out;
}

std::string vtt_of(const std::vector<Segment>& segments) {
  std::string out = "WEBVTT\n\n";
  for (const Segment& segment : segments) {
    const std::string text = subtitle_text(segment.text);
    if (text.empty()) continue;
    out += fmt::format("{} --> {}\n{}\n\n", vtt_time(segment.start), vtt_time(segment.end), text);
  }
  return out;
}

std::string text_of(const std::vector<Segment>& segments) {
  std::string out;
  for (const Segment& segment : segments) out += segment.text;
  return std::string(stripped(out));
}

}  // namespace nereid::speech
