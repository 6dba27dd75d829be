// See progress.h.
#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace nereid {
namespace {

constexpr char kVariable[] = "NEREID_PROGRESS";
constexpr Duration kDrawEvery = std::chrono::milliseconds(100);
constexpr Duration kLineEvery = std::chrono::seconds(10);
constexpr Duration kMarkEvery = std::chrono::seconds(5);
// Work that is over sooner shows no bar.
constexpr Duration kShowAfter = std::chrono::milliseconds(500);
constexpr int kBarColumns = 20;

int terminal_width() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void write_to_terminal(std::string_view text) {
  // A terminal that went away is no fault of the work.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

std::string amount_text(double amount, ProgressUnit unit) {
  return unit == ProgressUnit::kBytes ? size_text(amount) : fmt::format("{:.0f}", amount);
}

// Columns of UTF-8 text: a letter's later bytes take none.
int columns_of(std::string_view text) {
  return static_cast<int>(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string first_columns(std::string_view text, int columns) {
  size_t end = 0;
  for (int left = columns; end < text.size(); ++end)
    if ((text[end] & 0xc0) != 0x80 && left-- == 0) break;
  return std::string(text.substr(0, end));
}

}  // namespace

std::string size_text(double bytes) {
  constexpr std::array kUnits = {"B", "kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  for (; std::abs(bytes) >= 999.5 && unit + 1 < kUnits.size(); ++unit) bytes /= 1000;
  return unit == 0 || bytes >= 99.95 ? fmt::format("{:.0f} {}", bytes, kUnits[unit])
                                     : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::clamp(std::ceil(seconds), 0.0, 1e9));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string progress_text(const ProgressState& state, int width) {
  const double share =
      state.total > 0
          ? std::clamp(static_cast<double>(state.done) / static_cast<double>(state.total), 0.0, 1.0)
          : 0;
  const auto filled = static_cast<size_t>(share * kBarColumns);
  const std::string bar = state.total > 0 ? fmt::format("[{}{}]", std::string(filled, '#'),
                                                        std::string(kBarColumns - filled, '-'))
                                          : "";
  const std::string percent =
      state.total > 0 ? fmt::format("{:3.0f}%", std::floor(share * 100)) : "";
  std::string amount = amount_text(static_cast<double>(state.done), state.unit);
  if (state.total > 0) amount += " of " + amount_text(static_cast<double>(state.total), state.unit);
  std::string rate, left;
  if (state.rate > 0) {
    rate = state.unit == ProgressUnit::kBytes ? size_text(state.rate) + "/s"
                                              : fmt::format("{:.3g}/s", state.rate);
    if (state.total > state.done)
      left = duration_text(static_cast<double>(state.total - state.done) / state.rate) + " left";
  }
  // The parts and the order in which they are given up.
  std::array<std::pair<std::string, int>, 6> parts = {
      {{std::string(state.label), 5}, {bar, 0}, {percent, 4}, {amount, 1}, {rate, 2}, {left, 3}}};
  for (int given_up = -1;; ++given_up) {
    std::string line;
    for (const auto& [text, order] : parts)
      if (order > given_up && !text.empty()) line += (line.empty() ? "" : "  ") + text;
    if (columns_of(line) <= width || given_up >= 4) return first_columns(line, width);
  }
}

void allow_progress_bars() {
  const char* const terminal = std::getenv("TERM");
  const bool can_draw =
      ::isatty(STDERR_FILENO) == 1 && terminal && std::string_view(terminal) != "dumb";
  if (can_draw) ::setenv(kVariable, "1", /*overwrite=*/0);
}

bool has_progress_bars() {
  static const bool kHas = [] {
    const char* const value = std::getenv(kVariable);
    return value && *value && std::string_view(value) != "0" && ::isatty(STDERR_FILENO) == 1;
  }();
  return kHas;
}

std::string_view progress_eraser() { return has_progress_bars() ? "\r\x1b[K" : ""; }

ProgressBar::ProgressBar(std::string label, int64_t total, ProgressUnit unit, Lines lines)
    : label_(std::move(label)),
      unit_(unit),
      draws_(has_progress_bars()),
      prints_lines_(!draws_ && lines == Lines::kYes),
      total_(total),
      next_(start_ + (draws_ ? kShowAfter : kLineEvery)),
      old_mark_{start_, 0},
      new_mark_{start_, 0} {}

ProgressBar::~ProgressBar() {
  if (prints_lines_ || is_shown_) show(now(), true);
}

void ProgressBar::add(int64_t amount) {
  done_ += amount;
  if (!draws_ && !prints_lines_) return;
  if (const Time at = now(); at >= next_.load()) show(at, false);
}

void ProgressBar::add_before(int64_t amount) {
  const std::lock_guard lock(mutex_);
  done_ += amount;
  old_mark_.done += amount;
  new_mark_.done += amount;
}

void ProgressBar::hide() {
  const std::lock_guard lock(mutex_);
  if (is_shown_) write_to_terminal(progress_eraser());
}

void ProgressBar::show(Time at, bool is_last) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;  // another thread shows it
  next_ = at + (draws_ ? kDrawEvery : kLineEvery);
  const int64_t done = done_;
  if (const double passed = seconds(at - old_mark_.at); passed > 0)
    rate_ = std::max(static_cast<double>(done - old_mark_.done) / passed, 0.0);
  if (at - new_mark_.at >= kMarkEvery) old_mark_ = std::exchange(new_mark_, {at, done});
  const ProgressState state{label_, done, total_, unit_, is_last ? 0 : rate_};
  if (draws_) {
    std::string text = fmt::format("\r{}\x1b[K", progress_text(state, terminal_width() - 1));
    if (is_last) text = fmt::format("\r\x1b[K");
    write_to_terminal(text);
    is_shown_ = true;
  } else {
    std::string line = progress_text(state, 200);
    if (is_last) line += fmt::format("  in {}", duration_text(seconds(at - start_)));
    write_to_terminal(line + "\n");
  }
}

}  // namespace nereid
