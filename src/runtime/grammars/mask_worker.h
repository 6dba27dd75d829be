// A thread that makes slow token masks, first come, first served.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/queue.h"
#include "base/status.h"
#include "nereid/request.h"
#include "text/grammar/guided_output.h"

namespace nereid::runtime {

// The next mask of one sequence. Owned by the worker between add() and `made`.
struct MaskJob {
  MaskJob(RequestId of, text::ConstrainedOutput from) : id(of), output(std::move(from)) {}

  const RequestId id;
  text::ConstrainedOutput output;
  std::vector<TokenId> tokens;  // not accepted by `output` yet
  std::vector<TokenId> end_ids;
  std::vector<uint32_t> mask;  // zeros; filled if the status is OK and `output` restricts the token
  Status status = {};
  int64_t steps = 0;  // steps used
  std::atomic<bool> is_dropped = false;
};

class MaskWorker {
 public:
  // `made` is called on the worker's thread.
  explicit MaskWorker(std::function<void(RequestId)> made) : made_(std::move(made)) {}
  ~MaskWorker();  // after it `made` is not called

  void add(std::shared_ptr<MaskJob> job);

 private:
  void run();

  const std::function<void(RequestId)> made_;
  Queue<std::shared_ptr<MaskJob>> jobs_;
  std::atomic<bool> closing_ = false;
  std::thread thread_;  // started by the first add()
};

// Lowers the calling thread's priority below the engine's and request threads.
void let_engine_run_first();

}  // namespace nereid::runtime
