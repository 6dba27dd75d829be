// No mutex of the group is held during a call of an executor that may block: callers take a shared
// pointer and let go of it. An instance's own thread destroys its executor when it is the last one
// to have it: an executor cannot be destroyed on its outbox thread.
#include "runtime/instances/instance_group.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/contained.h"
#include "base/log.h"
#include "runtime/instances/instance_router.h"
#include "runtime/instances/instance_stats.h"
#include "runtime/outputs/response_store.h"
#include "runtime/requests/request_check.h"

namespace nereid::runtime {
namespace {

constexpr auto kLook = std::chrono::milliseconds(50);  // at an instance's health
constexpr int kIdBits = 40;                            // of an executor's own ids

class InstanceGroup final : public StoringExecutor {
 public:
  InstanceGroup(OpenInstance open, const InstanceGroupOptions& options)
      : open_(std::move(open)),
        options_(options),
        slots_(static_cast<size_t>(options.num_instances)) {}

  ~InstanceGroup() override {
    close();
    for (Slot& slot : slots_)
      if (slot.watch.joinable()) slot.watch.join();
    for (Slot& slot : slots_) {
      std::unique_lock lock(mutex_);
      auto executor = std::exchange(slot.executor, nullptr);
      lock.unlock();
      end(std::move(executor));
    }
  }

  Status start() {
    for (size_t i = 0; i < slots_.size(); ++i) {
      auto executor = open_(static_cast<int32_t>(i));
      if (!executor.ok() && slots_.size() > 1)
        return annotate(executor.status(), fmt::format("instance {}", i));
      RETURN_IF_ERROR(executor.status());
      put(slots_[i], *std::move(executor));
      if (slots_.size() > 1) log_info("instance {} of {} is open", i + 1, slots_.size());
    }
    const Executor& first = *slots_[0].executor;
    if (slots_.size() > 1) block_tokens_ = first.stats().kv_tokens_per_block;
    facts_ = {.vocab_size = first.vocab_size(),
              .embedding_width = first.embedding_width(),
              .encoder = first.encoder(),
              .pictures = first.pictures(),
              .num_labels = first.num_labels(),
              .hidden_size = first.hidden_size(),
              .max_sequence_length = first.max_sequence_length(),
              .end_ids = first.default_end_ids()};
    for (const Slot& slot : slots_)
      facts_.max_sequence_length =
          std::min(facts_.max_sequence_length, slot.executor->max_sequence_length());
    for (size_t i = 0; i < slots_.size(); ++i)
      slots_[i].watch =
          std::thread([this, i] { run_contained("watch an instance", [this, i] { watch(i); }); });
    return ok();
  }

  StatusOr<RequestId> enqueue(Request request, ResponseCallback callback) override {
    if (!callback) return invalid_argument("callback: must not be null");
    return send(std::move(request), callback);
  }

  StatusOr<RequestId> enqueue(Request request) override {
    const std::lock_guard lock(store_mutex_);
    ASSIGN_OR_RETURN(const RequestId id, send(std::move(request), stores()));
    store_.expect(id);
    return id;
  }

  StatusOr<std::vector<RequestId>> enqueue_requests(std::vector<Request> requests) override {
    const std::lock_guard lock(store_mutex_);
    ASSIGN_OR_RETURN(auto ids, enqueue_requests(std::move(requests), stores()));
    for (const RequestId id : ids) store_.expect(id);
    return ids;
  }

  // All of them to one instance, which accepts all or none.
  StatusOr<std::vector<RequestId>> enqueue_requests(std::vector<Request> requests,
                                                    ResponseCallback callback) override {
    if (!callback) return invalid_argument("callback: must not be null");
    if (requests.empty()) return std::vector<RequestId>();
    const auto count = static_cast<int64_t>(requests.size());
    ASSIGN_OR_RETURN(const Target target, choose(route_keys(requests[0], block_tokens_), count));
    auto ids =
        target.executor->enqueue_requests(std::move(requests), passes(target, std::move(callback)));
    if (!ids.ok()) {
      ended(target.instance, count);
      return ids.status();
    }
    for (RequestId& id : *ids) id += target.base;
    return ids;
  }

  void cancel(RequestId id) override {
    const RequestId own = id & ((RequestId{1} << kIdBits) - 1);
    for (const auto& [executor, base] : executors())
      if (id - own == base) executor->cancel(own);
  }

  bool can_enqueue() const override {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return false;
    }
    return std::ranges::any_of(executors(), [](const auto& e) { return e.first->can_enqueue(); });
  }

  Status health() const override {
    const std::lock_guard lock(mutex_);
    Status failure;
    for (const Slot& slot : slots_) {
      const Status own = slot.executor ? slot.executor->health() : slot.failure;
      if (own.ok()) return ok();
      failure.Update(own);
    }
    return failure;
  }

  bool is_hung() const override {
    const auto all = executors();
    return all.size() == slots_.size() &&
           std::ranges::all_of(all, [](const auto& e) { return e.first->is_hung(); });
  }

  void drain(std::chrono::milliseconds timeout) override {
    close();
    // A timeout beyond the clock's range is one without end.
    const Time start = now();
    for (const auto& [executor, base] : executors()) {
      const auto passed = std::chrono::duration_cast<std::chrono::milliseconds>(now() - start);
      executor->drain(std::max(timeout - passed, std::chrono::milliseconds(0)));
    }
  }

  void shutdown() override {
    close();
    for (const auto& [executor, base] : executors()) executor->shutdown();
  }

  ExecutorStats stats() const override {
    ExecutorStats sum;
    std::unique_lock lock(mutex_);
    for (const Slot& slot : slots_) add_stats(sum, slot.before);
    const auto all = executors_locked();
    lock.unlock();
    for (const auto& [executor, base] : all) add_stats(sum, executor->stats());
    sum.device_is_healthy = health().ok();
    return sum;
  }

  // In the order of time, numbered by the steps of all instances.
  std::vector<IterationStats> latest_iteration_stats() override {
    const std::lock_guard one(steps_mutex_);
    std::vector<std::pair<size_t, IterationStats>> steps;
    for (size_t i = 0; i < slots_.size(); ++i)
      if (const auto executor = executor_of(i))
        for (IterationStats& step : executor->latest_iteration_stats())
          steps.emplace_back(i, std::move(step));
    std::ranges::stable_sort(steps, {}, [](const auto& step) { return step.second.timestamp; });
    std::vector<IterationStats> all;
    for (const auto& [i, step] : steps) {
      newest_[i] = step;
      std::vector<IterationStats> others = newest_;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      add_others(all.emplace_back(step), others);
      all.back().iter = steps_before();
      for (const IterationStats& newest : newest_) all.back().iter += newest.iter;
    }
    return all;
  }

  std::vector<RequestStatsPerIteration> latest_request_stats() override {
    std::vector<RequestStatsPerIteration> all;
    for (const auto& [executor, base] : executors())
      for (RequestStatsPerIteration& step : executor->latest_request_stats()) {
        for (RequestStats& request : step.requests) request.id += base;
        all.push_back(std::move(step));
      }
    return all;
  }

  // There is one instance, see check_config(). Events of each executor begin with kCreated.
  std::vector<KvCacheEvent> kv_cache_events() override {
    const std::lock_guard one(steps_mutex_);
    std::vector<KvCacheEvent> events;
    const auto all = executors();
    if (all.empty()) return events;
    const auto& [executor, base] = all[0];
    events = executor->kv_cache_events();
    if (base != std::exchange(events_of_, base)) events_before_ = num_events_;
    for (KvCacheEvent& event : events) {
      event.event_id += events_before_;
      num_events_ = event.event_id + 1;
    }
    return events;
  }

  // Entries of the same kind and rank are added up.
  std::vector<MemoryUse> memory() const override {
    std::vector<MemoryUse> all;
    for (size_t i = 0; i < slots_.size(); ++i) {
      const auto executor = executor_of(i);
      if (!executor) continue;
      const auto num_ranks = static_cast<int32_t>(executor->ranks().size());
      for (MemoryUse& use : executor->memory()) {
        use.rank += static_cast<int32_t>(i) * num_ranks;
        const auto same = std::ranges::find_if(all, [&](const MemoryUse& other) {
          return other.what == use.what && other.rank == use.rank;
        });
        if (same == all.end())
          all.push_back(std::move(use));
        else
          same->bytes += use.bytes;
      }
    }
    return all;
  }

  // Numbered through all instances. Counts since the start of the model.
  std::vector<RankStats> ranks() const override {
    std::vector<RankStats> all;
    for (size_t i = 0; i < slots_.size(); ++i) {
      std::unique_lock lock(mutex_);
      const auto executor = slots_[i].executor;
      const std::vector<RankStats> before = slots_[i].ranks_before;
      lock.unlock();
      std::vector<RankStats> own;
      if (executor) own = executor->ranks();
      add_ranks(before, own);
      for (RankStats& rank : own) {
        rank.rank = static_cast<int32_t>(all.size());
        all.push_back(std::move(rank));
      }
    }
    return all;
  }

  // Sequences of all instances, one instance behind the other.
  BatchTimeline batch_timeline() override {
    BatchTimeline all;
    for (size_t i = 0; i < slots_.size(); ++i) {
      const auto executor = executor_of(i);
      if (!executor) continue;
      BatchTimeline own = executor->batch_timeline();
      all.seconds = own.seconds;
      all.num_left_out += own.num_left_out;
      for (BatchSequence& sequence : own.sequences) {
        sequence.instance = static_cast<int32_t>(i);
        all.sequences.push_back(std::move(sequence));
      }
    }
    return all;
  }

  std::vector<PrefixTreeOutline> prefix_trees() override {
    std::vector<PrefixTreeOutline> all;
    for (size_t i = 0; i < slots_.size(); ++i) {
      const auto executor = executor_of(i);
      if (!executor) continue;
      for (PrefixTreeOutline& own : executor->prefix_trees()) {
        own.instance = static_cast<int32_t>(i);
        all.push_back(std::move(own));
      }
    }
    return all;
  }

  // All instances have the same plan.
  PlanReport plan_report() const override {
    for (size_t i = 0; i < slots_.size(); ++i)
      if (const auto executor = executor_of(i)) return executor->plan_report();
    return {};
  }

  // Sums over instances, without those that were closed.
  std::vector<ExpertLoad> expert_load() const override {
    std::vector<ExpertLoad> all;
    for (size_t i = 0; i < slots_.size(); ++i) {
      const auto executor = executor_of(i);
      if (!executor) continue;
      std::vector<ExpertLoad> own = executor->expert_load();
      if (all.empty()) all.resize(own.size());
      for (size_t l = 0; l < own.size(); ++l) {
        all[l].layer = own[l].layer;
        all[l].tokens.resize(own[l].tokens.size());
        for (size_t e = 0; e < own[l].tokens.size(); ++e) all[l].tokens[e] += own[l].tokens[e];
      }
    }
    return all;
  }

  std::vector<InstanceStats> instances() const override {
    const std::lock_guard lock(mutex_);
    std::vector<InstanceStats> all;
    for (const Slot& slot : slots_)
      all.push_back({.instance = static_cast<int32_t>(all.size()),
                     .is_healthy = slot.executor && slot.executor->health().ok(),
                     .num_requests = slot.num_open,
                     .num_restarts = slot.num_restarts});
    return all;
  }

  int32_t vocab_size() const override { return facts_.vocab_size; }
  int32_t embedding_width() const override { return facts_.embedding_width; }
  EncoderFacts encoder() const override { return facts_.encoder; }
  PictureFacts pictures() const override { return facts_.pictures; }
  int32_t num_labels() const override { return facts_.num_labels; }
  int32_t hidden_size() const override { return facts_.hidden_size; }
  int32_t max_sequence_length() const override { return facts_.max_sequence_length; }
  std::vector<TokenId> default_end_ids() const override { return facts_.end_ids; }

 private:
  // An instance. Guarded by mutex_, but for the thread.
  struct Slot {
    std::shared_ptr<Executor> executor;  // null: closed, to be opened again
    RequestId base = 0;                  // added to the executor's ids
    Time opened;
    Status failure;        // why it is closed
    int64_t num_open = 0;  // requests that were sent and have not ended
    int64_t num_restarts = 0;
    ExecutorStats before;                 // counts of its closed executors
    std::vector<RankStats> ranks_before;  // counts of these, too
    std::thread watch;
  };
  // Where a request goes.
  struct Target {
    size_t instance = 0;
    std::shared_ptr<Executor> executor;
    RequestId base = 0;
  };
  struct Facts {
    int32_t vocab_size = 0, embedding_width = 0;
    EncoderFacts encoder;
    PictureFacts pictures;
    int32_t num_labels = 0, hidden_size = 0;
    int32_t max_sequence_length = 0;
    std::vector<TokenId> end_ids;
  };

  void put(Slot& slot, std::unique_ptr<Executor> executor) {
    const std::lock_guard lock(mutex_);
    slot.executor = std::move(executor);
    slot.base = num_opened_++ << kIdBits;
    slot.opened = now();
  }

  std::shared_ptr<Executor> executor_of(size_t instance) const {
    const std::lock_guard lock(mutex_);
    return slots_[instance].executor;
  }
  using Executors = std::vector<std::pair<std::shared_ptr<Executor>, RequestId>>;  // with `base`
  Executors executors() const {
    const std::lock_guard lock(mutex_);
    return executors_locked();
  }
  Executors executors_locked() const {
    Executors all;
    for (const Slot& slot : slots_)
      if (slot.executor) all.emplace_back(slot.executor, slot.base);
    return all;
  }
  int64_t steps_before() const {
    const std::lock_guard lock(mutex_);
    int64_t sum = 0;
    for (const Slot& slot : slots_) sum += slot.before.num_steps;
    return sum;
  }

  // Adds `before` to `own`; without an executor `own` is empty, and becomes `before`.
  static void add_ranks(const std::vector<RankStats>& before, std::vector<RankStats>& own) {
    if (own.empty())
      own = before;
    else
      for (size_t r = 0; r < std::min(own.size(), before.size()); ++r) {
        own[r].num_steps += before[r].num_steps;
        own[r].exchange_seconds += before[r].exchange_seconds;
      }
  }

  StatusOr<Target> choose(const RouteKeys& keys, int64_t count, uint64_t excluded = 0) {
    const std::lock_guard lock(mutex_);
    if (closed_) return unavailable("shutting down: no new requests");
    std::vector<InstanceLoad> loads;
    for (const Slot& slot : slots_) {
      InstanceLoad& load = loads.emplace_back();
      load.is_healthy = slot.executor && slot.executor->health().ok();
      if (!load.is_healthy || slots_.size() == 1) continue;
      const ExecutorStats stats = slot.executor->stats();
      load.has_queue_place = slot.executor->can_enqueue();
      load.num_open = std::max(slot.num_open, stats.num_active + stats.num_waiting);
      load.max_batch_size = stats.max_batch_size;
      load.num_free_blocks = stats.kv_blocks_free;
    }
    const auto chosen = router_.choose(keys, loads, excluded);
    if (!chosen) {
      for (const Slot& slot : slots_)
        RETURN_IF_ERROR(slot.executor ? slot.executor->health() : slot.failure);
      return unavailable("no instance is healthy");  // one became so just now
    }
    if (slots_.size() > 1) router_.sent(keys, *chosen);
    Slot& slot = slots_[*chosen];
    slot.num_open += count;
    return Target{*chosen, slot.executor, slot.base};
  }

  // An instance may refuse what another one takes: its queue has become full, it has failed, or a
  // request has the id of an adapter that it does not have, or no more.
  StatusOr<RequestId> send(Request request, const ResponseCallback& callback) {
    const RouteKeys keys = route_keys(request, block_tokens_);
    const bool is_one = slots_.size() == 1;
    const bool may_lack = !is_one && keys.adapter && !keys.brings_weights;
    Status refused;
    for (uint64_t tried = 0;;) {
      auto target = choose(keys, 1, tried);
      if (!target.ok()) return refused.ok() ? target.status() : refused;
      Request own = is_one ? std::move(request) : request;
      const auto id = target->executor->enqueue(std::move(own), passes(*target, callback));
      if (id.ok()) {
        if (may_lack && tried != 0) has_adapter(keys, target->instance);
        return *id + target->base;
      }
      ended(target->instance, 1);
      const bool lacks = may_lack && absl::IsInvalidArgument(id.status());
      const bool is_full =
          absl::IsResourceExhausted(id.status()) || absl::IsUnavailable(id.status());
      if (is_one || !(lacks || is_full)) return id.status();
      if (refused.ok()) refused = id.status();
      tried |= uint64_t{1} << target->instance;
      const std::lock_guard lock(mutex_);
      if (lacks) router_.lacks_adapter(keys, target->instance);
    }
  }

  void has_adapter(const RouteKeys& keys, size_t instance) {
    const std::lock_guard lock(mutex_);
    router_.has_adapter(keys, instance);
  }

  ResponseCallback stores() {
    return [this](Response response) {
      const std::lock_guard lock(store_mutex_);  // the id is expected by then
      store_.put(std::move(response));
    };
  }

  // The callback for an executor: responses get the group's ids.
  ResponseCallback passes(const Target& target, ResponseCallback callback) {
    return [this, instance = target.instance, base = target.base,
            callback = std::move(callback)](Response response) {
      response.request_id += base;
      // After an exception at a result an error follows, which is the last response then.
      const bool is_final = response.is_final, is_error = !response.status.ok();
      if (is_final && is_error) ended(instance, 1);
      callback(std::move(response));
      if (is_final && !is_error) ended(instance, 1);
    };
  }

  void ended(size_t instance, int64_t count) {
    const std::lock_guard lock(mutex_);
    slots_[instance].num_open = std::max<int64_t>(slots_[instance].num_open - count, 0);
  }

  // No new requests, no restarts.
  void close() {
    const std::lock_guard store(store_mutex_);
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    closes_.notify_all();
    store_.close();
  }

  // Destroys an executor on this thread. Others let go of it soon.
  static void end(std::shared_ptr<Executor> executor) {
    while (executor.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    executor = nullptr;
  }

  // The instance's thread.
  void watch(size_t i) {
    Slot& slot = slots_[i];
    Duration delay = options_.first_delay;
    std::unique_lock lock(mutex_);
    while (!closes_.wait_for(lock, kLook, [&] { return closed_; })) {
      if (!slot.executor) {
        reopen(i, delay, lock);
        continue;
      }
      const Status failure = slot.executor->health();
      if (failure.ok()) continue;
      if (now() - slot.opened >= options_.last_delay) delay = options_.first_delay;
      lock.unlock();
      log_error("instance {}: {}", i, message(failure));
      if (!options_.restarts) return;
      if (!retire(i, failure)) return;
      lock.lock();
    }
  }

  // Closes the executor of an instance, whose requests have ended with its failure. Its counts are
  // never missing in sums. False: its device hangs, so its memory stays.
  bool retire(size_t i, const Status& failure) {
    Slot& slot = slots_[i];
    auto dead = executor_of(i);
    if (!dead->is_hung()) dead->shutdown();
    if (dead->is_hung()) {
      log_error("instance {} is not opened again: the memory of its device cannot be freed", i);
      return false;
    }
    const ExecutorStats counts = counts_of(dead->stats());
    std::vector<RankStats> ranks = dead->ranks();
    {
      const std::lock_guard one(steps_mutex_);
      const std::lock_guard lock(mutex_);
      slot.executor = nullptr;
      slot.failure = failure;
      router_.forget(i);
      add_stats(slot.before, counts);
      add_ranks(slot.ranks_before, ranks);
      slot.ranks_before = std::move(ranks);
      newest_[i] = {};
    }
    end(std::move(dead));
    return true;
  }

  // One attempt after `delay`, which grows.
  void reopen(size_t i, Duration& delay, std::unique_lock<std::mutex>& lock) {
    log_info("instance {} is opened again in {:.3g} s", i, seconds(delay));
    closes_.wait_for(lock, std::exchange(delay, std::min(2 * delay, options_.last_delay)),
                     [&] { return closed_; });
    if (closed_) return;
    lock.unlock();
    auto opened = open_(static_cast<int32_t>(i));
    if (!opened.ok())
      log_error("instance {}: {}", i, message(opened.status()));
    else
      put(slots_[i], *std::move(opened));
    lock.lock();
    if (!slots_[i].executor) return;
    ++slots_[i].num_restarts;
    log_info("instance {} serves again, restart {}", i, slots_[i].num_restarts);
  }

  const OpenInstance open_;
  const InstanceGroupOptions options_;
  int64_t block_tokens_ = 0;  // of the KV cache; one instance: 0
  Facts facts_;
  std::mutex store_mutex_;  // before mutex_; ids are expected before their responses are put

  mutable std::mutex mutex_;  // guards those below
  std::condition_variable closes_;
  bool closed_ = false;
  RequestId num_opened_ = 0;
  std::vector<Slot> slots_;
  InstanceRouter router_;

  mutable std::mutex steps_mutex_;                     // before mutex_; guards those below
  std::vector<IterationStats> newest_{slots_.size()};  // of each instance
  RequestId events_of_ = 0;                            // base of the executor
  uint64_t events_before_ = 0, num_events_ = 0;
};

}  // namespace

StatusOr<std::unique_ptr<Executor>> open_instances(OpenInstance open,
                                                   const InstanceGroupOptions& options) {
  auto group = std::make_unique<InstanceGroup>(std::move(open), options);
  RETURN_IF_ERROR(group->start());
  return group;
}

}  // namespace nereid::runtime
