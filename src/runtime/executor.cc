// The public Executor: validates, hands requests to the outbox and the engine, and owns both.
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "nereid/executor.h"
#include "runtime/engine.h"
#include "runtime/inbox.h"
#include "runtime/model_instance.h"
#include "runtime/outbox.h"
#include "runtime/progress.h"
#include "runtime/request_check.h"
#include "runtime/response_store.h"
#include "runtime/stats_rings.h"

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
        bounds_{.limits = limits_of(model_.runner->limits(), config),
                .vocab_size = model_.runner->vocab_size(),
                .has_tokenizer = model_.tokenizer != nullptr,
                .max_beam_width = config.max_beam_width,
                .enable_chunked_context = config.scheduler.enable_chunked_context},
        rings_{.iterations = Ring<IterationStats>(config.iter_stats_max_iterations),
               .requests = Ring<RequestStatsPerIteration>(config.request_stats_max_iterations),
               .events = Ring<KvCacheEvent>(config.kv_cache.event_buffer_size)},
        outbox_(model_.tokenizer, inbox_, progress_),
        engine_(*model_.runner, *model_.sampler, bounds_.limits, config.enable_overlap, inbox_,
                outbox_, progress_) {}

  ~ExecutorImpl() override { close(); }

  StatusOr<RequestId> enqueue(Request request, ResponseCallback callback) override {
    if (!callback) return invalid_argument("callback: there is none");
    RETURN_IF_ERROR(check_request(request, bounds_));
    std::vector<Request> one;
    one.push_back(std::move(request));
    ASSIGN_OR_RETURN(const auto ids, accept(std::move(one), std::move(callback)));
    return ids[0];
  }

  StatusOr<RequestId> enqueue(Request request) override {
    RETURN_IF_ERROR(check_request(request, bounds_));
    std::vector<Request> one;
    one.push_back(std::move(request));
    ASSIGN_OR_RETURN(const auto ids, accept(std::move(one), nullptr));
    return ids[0];
  }

  StatusOr<std::vector<RequestId>> enqueue_requests(std::vector<Request> requests) override {
    for (size_t i = 0; i < requests.size(); ++i)
      if (Status s = check_request(requests[i], bounds_); !s.ok())
        return annotate(s, fmt::format("requests[{}]", i));
    return accept(std::move(requests), nullptr);
  }

  std::vector<Response> await_responses(Timeout timeout) override { return store_.await(timeout); }
  std::vector<Response> await_responses(RequestId id, Timeout timeout) override {
    return store_.await(id, timeout);
  }
  std::vector<std::vector<Response>> await_responses(const std::vector<RequestId>& ids,
                                                     Timeout timeout) override {
    return store_.await(ids, timeout);
  }
  int64_t num_responses_ready(std::optional<RequestId> id) const override {
    return store_.num_ready(id);
  }

  void cancel(RequestId id) override { inbox_.push(Cancel{id}); }

  bool can_enqueue() const override {
    std::lock_guard lock(mutex_);
    return !closed_ && progress_.has_room(bounds_.limits.max_queue_size);
  }

  void drain(std::chrono::milliseconds timeout) override {
    close();
    if (progress_.wait_idle(timeout)) return;
    inbox_.push(CancelAll{});
    // A step that never ends must not hold up the end of the process for ever.
    while (!progress_.wait_idle(std::chrono::seconds(10)))
      log_warn("waiting for the device to finish its step");
  }

  void shutdown() override {
    close();
    while (!progress_.wait_idle(std::chrono::hours(1))) continue;
  }

  ExecutorStats stats() const override { return progress_.stats(); }
  std::vector<IterationStats> latest_iteration_stats() override {
    return rings_.iterations.take_all();
  }
  std::vector<RequestStatsPerIteration> latest_request_stats() override {
    return rings_.requests.take_all();
  }
  std::vector<KvCacheEvent> kv_cache_events() override { return rings_.events.take_all(); }

  std::vector<MemoryUse> memory() const override {
    std::vector<MemoryUse> table;
    for (const exec::MemoryItem& item : model_.runner->memory())
      table.push_back({item.what, static_cast<int64_t>(item.bytes)});
    return table;
  }

  int32_t vocab_size() const override { return bounds_.vocab_size; }
  int32_t max_sequence_length() const override { return bounds_.limits.max_sequence_length; }
  std::vector<TokenId> default_end_ids() const override { return model_.default_end_ids; }

 private:
  // Takes checked requests, all or none. Without a callback their responses go to the store.
  StatusOr<std::vector<RequestId>> accept(std::vector<Request> requests,
                                          ResponseCallback callback) {
    int64_t count = 0;
    for (const Request& r : requests) count += num_sequences(r);
    std::vector<RequestId> ids;
    ids.reserve(requests.size());
    // Under the lock, ids enter the inbox in order, and nothing enters after close().
    std::lock_guard lock(mutex_);
    if (closed_) return unavailable("shutting down: no new requests");
    const int32_t most = bounds_.limits.max_queue_size;
    if (!progress_.enter_queue(count, most))
      return resource_exhausted(
          "queue is full: {} requests wait, {} more would be over {} (max_queue_size)",
          progress_.num_queued(), count, most);
    for (Request& request : requests) {
      const RequestId id = last_id_ + 1;
      last_id_ += static_cast<RequestId>(num_sequences(request));
      ids.push_back(id);
      ResponseCallback call = callback;
      if (!call) {
        store_.expect(id);
        call = [this](Response response) { store_.put(std::move(response)); };
      }
      progress_.opened();
      outbox_.open(subscription(id, request, std::move(call)));
      inbox_.push(Submit{sequence(id, std::move(request))});
    }
    return ids;
  }

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
    store_.close();
  }

  ModelInstance model_;
  const RequestBounds bounds_;
  mutable std::mutex mutex_;  // guards the two below, and the order of entering outbox and inbox
  bool closed_ = false;
  RequestId last_id_ = 0;
  Progress progress_;
  ResponseStore store_;
  StatsRings rings_;
  Inbox inbox_;
  Outbox outbox_;
  Engine engine_;  // destroyed first: its last news still finds the outbox
};

}  // namespace

std::unique_ptr<Executor> make_executor(ModelInstance model, const ExecutorConfig& config) {
  return std::make_unique<ExecutorImpl>(std::move(model), config);
}

}  // namespace nereid::runtime
