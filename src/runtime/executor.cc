// The public Executor: validates, hands requests to the outbox and the engine, and owns both.
#include <mutex>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "nereid/executor.h"
#include "runtime/engine.h"
#include "runtime/inbox.h"
#include "runtime/model_instance.h"
#include "runtime/outbox.h"
#include "runtime/progress.h"
#include "runtime/request_check.h"

namespace nereid::runtime {
namespace {

sched::Limits limits_of(const exec::RunnerLimits& runner, const ExecutorConfig& config) {
  return {.max_batch_size = runner.max_rows,
          .max_num_tokens = runner.max_tokens,
          .max_queue_size = config.max_queue_size,
          .max_sequence_length = runner.max_sequence_length,
          .num_blocks = runner.num_blocks,
          .tokens_per_block = runner.block_tokens,
          .enable_reuse = config.kv_cache.enable_block_reuse};
}

class ExecutorImpl : public Executor {
 public:
  ExecutorImpl(ModelInstance model, const ExecutorConfig& config)
      : model_(std::move(model)),
        limits_(limits_of(model_.runner->limits(), config)),
        outbox_(model_.tokenizer, inbox_, progress_),
        engine_(*model_.runner, *model_.sampler, limits_, config.enable_overlap, inbox_, outbox_,
                progress_) {}

  ~ExecutorImpl() override { close(); }

  StatusOr<RequestId> enqueue(Request request, ResponseCallback callback) override {
    if (!callback) return invalid_argument("callback: there is none");
    RETURN_IF_ERROR(check_request(request, limits_, vocab_size(), model_.tokenizer != nullptr));
    // Under the lock, ids enter the inbox in order, and nothing enters after close().
    std::lock_guard lock(mutex_);
    if (closed_) return unavailable("shutting down: no new requests");
    if (!progress_.enter_queue(limits_.max_queue_size))
      return resource_exhausted("queue is full: {} requests wait (max_queue_size)",
                                limits_.max_queue_size);
    const RequestId id = ++last_id_;
    progress_.opened();
    outbox_.open(subscription(id, request, std::move(callback)));
    inbox_.push(Submit{sequence(id, std::move(request))});
    return id;
  }

  void cancel(RequestId id) override { inbox_.push(Cancel{id}); }

  void drain(std::chrono::milliseconds timeout) override {
    close();
    if (progress_.wait_idle(timeout)) return;
    inbox_.push(CancelAll{});
    // A step that never ends must not hold up the end of the process for ever.
    while (!progress_.wait_idle(std::chrono::seconds(10)))
      log_warn("waiting for the device to finish its step");
  }

  ExecutorStats stats() const override { return progress_.stats(); }

  std::vector<MemoryUse> memory() const override {
    std::vector<MemoryUse> table;
    for (const exec::MemoryItem& item : model_.runner->memory())
      table.push_back({item.what, static_cast<int64_t>(item.bytes)});
    return table;
  }

  int32_t vocab_size() const override { return model_.runner->vocab_size(); }
  int32_t max_sequence_length() const override { return limits_.max_sequence_length; }
  std::vector<TokenId> default_end_ids() const override { return model_.default_end_ids; }

 private:
  static Subscription subscription(RequestId id, const Request& request,
                                   ResponseCallback callback) {
    Subscription s{.id = id, .callback = std::move(callback), .streaming = request.streaming};
    if (!request.output.exclude_input_from_output) s.echo = request.input_token_ids;
    s.num_input_tokens = static_cast<int32_t>(request.input_token_ids.size());
    s.min_tokens = request.sampling.min_tokens.value_or(0);
    s.stop_strings = request.stop_strings;
    return s;
  }

  static sched::SequenceSpec sequence(RequestId id, Request request) {
    return {.id = id,
            .prompt = std::move(request.input_token_ids),
            .max_new_tokens = request.max_tokens,
            .end_ids = std::move(request.end_ids),
            .stop_words = std::move(request.stop_words),
            .sampling = request.sampling,
            .arrival = now()};
  }

  void close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }

  ModelInstance model_;
  const sched::Limits limits_;
  std::mutex mutex_;  // guards the two below, and the order of entering outbox and inbox
  bool closed_ = false;
  RequestId last_id_ = 0;
  Progress progress_;
  Inbox inbox_;
  Outbox outbox_;
  Engine engine_;  // destroyed first: its last news still finds the outbox
};

}  // namespace

std::unique_ptr<Executor> make_executor(ModelInstance model, const ExecutorConfig& config) {
  return std::make_unique<ExecutorImpl>(std::move(model), config);
}

}  // namespace nereid::runtime
