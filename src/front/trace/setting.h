// One set of effective trace settings, global or a model's: sampling, and the destination.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/status.h"
#include "front/trace/options.h"
#include "front/trace/trace_file.h"

namespace nereid::front {

struct TraceValues {
  uint32_t level = 0;
  uint32_t rate = 1000;
  int64_t count = -1;
  uint32_t log_frequency = 0;
};

// A change of settings replaces the object; running traces keep theirs.
class TraceSetting {
 public:
  TraceSetting(const TraceValues& values, TraceMode mode, std::shared_ptr<TraceFile> file)
      : start_(values), mode_(mode), file_(std::move(file)), count_(values.count) {}
  ~TraceSetting();  // writes traces that wait for their file

  // InvalidArgument when no request could be sampled although the level is not off.
  Status check() const;
  // True for every rate-th call while the count lasts.
  bool take_sample();
  // Whether a request may be traced independent of rate and count.
  bool is_on() const { return start_.level != 0; }
  // Writes a finished trace: JSON records separated by commas; "" when there are none.
  void write(std::string_view records);

  TraceValues values() const;  // the count is the rest of it

 private:
  const TraceValues start_;
  const TraceMode mode_;
  const std::shared_ptr<TraceFile> file_;
  mutable std::mutex mutex_;
  int64_t count_;
  uint64_t num_asked_ = 0;
  uint64_t num_created_ = 0, num_collected_ = 0;
  uint64_t num_waiting_ = 0;  // traces in waiting_
  std::string waiting_;
};

}  // namespace nereid::front
