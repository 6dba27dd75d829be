#include "runtime/grammars/mask_worker.h"

#include <sys/resource.h>
#include <unistd.h>

#include <new>
#include <utility>

namespace nereid::runtime {
namespace {

void make_mask(MaskJob& job) {
  const auto with_effort = [&](const auto& call) {
    text::StepBudget effort;
    if (job.status.ok()) job.status = call(effort);
    job.steps += text::StepBudget::kMost - effort.steps;
  };
  for (const TokenId token : job.tokens)
    with_effort([&](text::StepBudget& effort) { return job.output.accept(token, effort); });
  if (!job.status.ok()) return;
  if (!job.output.limits_next()) return job.mask.clear();
  with_effort([&](text::StepBudget& effort) {
    return job.output.fill_mask(job.mask, job.end_ids, effort);
  });
}

}  // namespace

// On Linux niceness is per thread.
void let_engine_run_first() {
  constexpr int kNicer = 10;
  const auto thread = static_cast<id_t>(::gettid());
  const int niceness = getpriority(PRIO_PROCESS, thread);
  static_cast<void>(setpriority(PRIO_PROCESS, thread, niceness + kNicer));
}

MaskWorker::~MaskWorker() {
  closing_ = true;
  jobs_.close();
  if (thread_.joinable()) thread_.join();
}

void MaskWorker::add(std::shared_ptr<MaskJob> job) {
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  jobs_.push(std::move(job));
}

void MaskWorker::run() {
  let_engine_run_first();
  while (const auto job = jobs_.take()) {
    if (closing_ || (*job)->is_dropped) continue;
    try {
      make_mask(**job);
    } catch (const std::bad_alloc&) {
      (*job)->status = resource_exhausted("guided_decoding: there is no memory for a mask");
    }
    if (!closing_) made_((*job)->id);
  }
}

}  // namespace nereid::runtime
