// Progress of long work on standard error: a bar with rate and time left, drawn again in its place.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace nereid {

enum class ProgressUnit : uint8_t { kBytes, kCount };

// The state that a bar shows.
struct ProgressState {
  std::string_view label;
  int64_t done = 0, total = 0;  // in `unit`; total 0: unknown
  ProgressUnit unit = ProgressUnit::kBytes;
  double rate = 0;  // units a second; 0: unknown
};

// "config.json  [####------]  42%  1.2 of 2.9 GB  85 MB/s  0:20 left", at most `width` columns;
// parts that find no room are left out from the middle on.
std::string progress_text(const ProgressState& state, int width);

// "812 B", "1.2 GB": powers of 1000.
std::string size_text(double bytes);

// "0:07", "12:30", "3:05:00".
std::string duration_text(double seconds);

// Lets this process draw bars if standard error is a terminal, unless $NEREID_PROGRESS is there
// already (0: no bars). The variable also reaches the shared libraries of the process, which have
// copies of this file's state. Bars are off in programs that do not call this.
void allow_progress_bars();
bool has_progress_bars();

// Clears the line of a bar, so that other text can stand there; the bar comes back below it.
std::string_view progress_eraser();

// A bar from construction to destruction. Without bars it prints nothing, or with `Lines::kYes` a
// plain line every ten seconds and at the end.
class ProgressBar {
 public:
  enum class Lines : uint8_t { kNo, kYes };
  ProgressBar(std::string label, int64_t total, ProgressUnit unit, Lines lines = Lines::kNo);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Any thread. `amount` may be negative: work that is done again.
  void add(int64_t amount);
  // Adds what an earlier process did, which counts for no rate.
  void add_before(int64_t amount);
  void set_total(int64_t total) { total_ = total; }
  int64_t done() const { return done_; }
  // Clears the line, for other text; the next add() draws it again.
  void hide();

 private:
  void show(Time at, bool is_last);

  const std::string label_;
  const ProgressUnit unit_;
  const bool draws_, prints_lines_;
  const Time start_ = now();
  std::atomic<int64_t> total_, done_ = 0;
  std::atomic<Time> next_;
  std::mutex mutex_;
  // The rate is that since the older one of two marks, which are five seconds apart.
  struct Mark {
    Time at;
    int64_t done = 0;
  };
  Mark old_mark_, new_mark_;
  double rate_ = 0;
  bool is_shown_ = false;
};

}  // namespace nereid
