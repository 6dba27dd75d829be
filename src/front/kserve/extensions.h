// Server state that clients set, over either protocol: memory regions and log settings.
#pragma once

#include <boost/json/fwd.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/status.h"
#include "front/kserve/control_queue.h"
#include "front/kserve/shared_memory.h"

namespace nereid::front {

// Start values of log settings that the core does not report.
struct LogStart {
  int verbose_level = 0;
  std::string format = "default";  // or ISO8601
  std::string file;                // "": standard error
};

// The log settings. The switches are the core's and apply to the whole process; this keeps those
// that cannot be read back.
class LogSettings {
 public:
  explicit LogSettings(LogStart start);

  // Sets the members of a JSON object (log_info, log_verbose_level, ...; null and absent ones stay)
  // and returns all of them as a JSON object's text. InvalidArgument names the member;
  // Unimplemented for log_file; Unavailable for an unknown format.
  StatusOr<std::string> update(const boost::json::value& changes);
  std::string show();

 private:
  std::string text() const;

  std::mutex mutex_;
  LogStart state_;
};

class Extensions {
 public:
  // `has_model_control`: the core loads and unloads models on request.
  explicit Extensions(LogStart log = {}, bool allow_code_upload = false,
                      bool has_model_control = true)
      : log_(std::move(log)), allow_code_upload_(allow_code_upload) {
    if (!has_model_control) return;
    loads_ = std::make_shared<ControlQueue>();
    unloads_ = std::make_shared<ControlQueue>();
  }

  SharedMemory& regions() { return regions_; }
  LogSettings& log() { return log_; }
  // Whether the files of a load may be shared objects.
  bool allow_code_upload() const { return allow_code_upload_; }
  // Separate from unloads, which need not wait for loads. Null: the core refuses all,
  // which takes no time.
  const ControlQueuePtr& loads() const { return loads_; }
  const ControlQueuePtr& unloads() const { return unloads_; }

 private:
  SharedMemory regions_;
  LogSettings log_;
  const bool allow_code_upload_;
  ControlQueuePtr loads_, unloads_;
};

}  // namespace nereid::front
