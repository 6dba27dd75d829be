#include "front/trace/setting.h"

#include "triton/core/tritonserver.h"

namespace nereid::front {
namespace {
constexpr size_t kMaxWaitingBytes = size_t{64} << 20;
}

TraceSetting::~TraceSetting() {
  if (waiting_.empty()) return;
  if (start_.log_frequency > 0) {
    file_->write_numbered(waiting_);
  } else {
    file_->append(waiting_);
  }
}

Status TraceSetting::check() const {
  if (start_.level == 0) return ok();
  std::string_view why;
  if (start_.rate == 0) {
    why = "sample rate must be non-zero";
  } else if (mode_ == TraceMode::kTriton && file_->path().empty()) {
    why = "trace file name is not given";
  } else if (mode_ == TraceMode::kOpenTelemetry &&
             (start_.level & TRITONSERVER_TRACE_LEVEL_TENSORS) != 0) {
    why = "mode opentelemetry has no level TENSORS, only TIMESTAMPS";
  }
  if (why.empty()) return ok();
  return invalid_argument("Attempting to set invalid trace setting :{}", why);
}

bool TraceSetting::take_sample() {
  if (start_.level == 0 || start_.rate == 0) return false;
  std::lock_guard lock(mutex_);
  if (count_ == 0 || ++num_asked_ % start_.rate != 0) return false;
  if (count_ > 0) {
    --count_;
    ++num_created_;
  }
  return true;
}

void TraceSetting::write(std::string_view records) {
  std::string full;
  {
    std::lock_guard lock(mutex_);
    ++num_collected_;
    if (!records.empty()) {
      if (!waiting_.empty()) waiting_ += ',';
      waiting_ += records;
      ++num_waiting_;
    }
    const bool all = count_ == 0 && num_collected_ >= num_created_;
    const bool numbered = all || waiting_.size() > kMaxWaitingBytes ||
                          (start_.log_frequency > 0 && num_waiting_ >= start_.log_frequency);
    // Without a count or a frequency to wait for, a trace is written when it is over.
    const bool direct = !numbered && start_.log_frequency == 0 && count_ < 0;
    if (waiting_.empty() || (!numbered && !direct)) return;
    full.swap(waiting_);
    num_waiting_ = 0;
    if (direct) return file_->append(full);
  }
  file_->write_numbered(full);
}

TraceValues TraceSetting::values() const {
  std::lock_guard lock(mutex_);
  TraceValues out = start_;
  out.count = count_;
  return out;
}

}  // namespace nereid::front
