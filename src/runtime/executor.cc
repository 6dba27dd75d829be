// The public Executor: validates, hands requests to the outbox and the engine, and owns both.
#include <chrono>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "convert/inspect.h"
#include "exec/encoder_pass.h"
#include "nereid/executor.h"
#include "runtime/clock.h"
#include "runtime/engine.h"
#include "runtime/engine_thread.h"
#include "runtime/grammars/grammars.h"
#include "runtime/model_instance.h"
#include "runtime/outputs/outbox.h"
#include "runtime/outputs/response_store.h"
#include "runtime/outputs/stats_rings.h"
#include "runtime/progress.h"
#include "runtime/prompts/pictures.h"
#include "runtime/prompts/prompt_scorer.h"
#include "runtime/prompts/prompt_table.h"
#include "runtime/request_sequences.h"
#include "runtime/requests/encoder_check.h"
#include "runtime/requests/inbox.h"
#include "runtime/requests/request_check.h"
#include "runtime/step_modules.h"
#include "runtime/watchdog.h"

namespace nereid::runtime {
namespace {

std::vector<sched::BlockGroupConfig> groups_of(const exec::Runner& runner) {
  std::vector<sched::BlockGroupConfig> groups;
  for (const exec::CacheGroup& group : runner.groups()) {
    const size_t g = groups.size();
    groups.push_back({.num_blocks = runner.limits().num_blocks[g],
                      .num_host_blocks = runner.limits().num_host_blocks[g],
                      .window = group.window,
                      .sink = group.sink});
  }
  return groups;
}

sched::Limits limits_of(const ModelInstance& instance, const ExecutorConfig& config) {
  const exec::Runner& model = *instance.runner;
  const exec::RunnerLimits& runner = model.limits();
  return {.max_batch_size = runner.max_rows,
          .max_num_tokens = runner.max_tokens,
          .num_stages = instance.num_stages,
          .max_queue_size = config.max_queue_size,
          .max_sequence_length = runner.max_sequence_length,
          .max_beam_width = config.max_beam_width,
          .groups = groups_of(model),
          .tokens_per_block = runner.block_tokens,
          .enable_reuse = config.kv_cache.enable_block_reuse,
          .enable_partial_reuse = config.kv_cache.enable_partial_reuse,
          .renews_last_cached =
              instance.proposer && instance.proposer->wanted_states() == Proposer::States::kAll,
          .offload_min_priority = config.kv_cache.offload_min_priority,
          .event_buffer_size = config.kv_cache.event_buffer_size,
          .max_logits = runner.num_logits_rows(),
          .max_scored_tokens = most_scored_tokens(model.vocab_size()),
          .max_adapters = runner.num_adapters,
          .max_adapter_pages = runner.num_adapter_pages,
          .max_encoder_length = runner.max_encoder_length,
          .max_encoder_tokens = runner.max_encoder_tokens,
          .max_encoder_parts = instance.pictures.facts.patch_width > 0
                                   ? exec::max_picture_parts(instance.pictures.facts)
                                   : runner.max_rows,
          .num_encoder_blocks = runner.num_cross_blocks + runner.num_feature_blocks,
          .policy = config.scheduler};
}

std::vector<exec::MemoryItem> memory_table(const ModelInstance& model) {
  std::vector<exec::MemoryItem> table = model.runner->memory();
  if (!model.proposer) return table;
  for (exec::MemoryItem& item : model.proposer->memory()) table.push_back(std::move(item));
  return table;
}

// Buffers in host memory beside a GPU are pinned.
MemoryTotals memory_totals(const ModelInstance& model) {
  MemoryTotals totals;
  const bool on_cpu = model.device.device->info().kind == DeviceKind::kCpu;
  for (const exec::MemoryItem& item : memory_table(model)) {
    const bool in_host = item.what.starts_with("host ");
    (on_cpu    ? totals.cpu
     : in_host ? totals.pinned
               : totals.gpu) += static_cast<int64_t>(item.bytes);
  }
  return totals;
}

Speculation::Options speculation_options(const ModelInstance& model, const ExecutorConfig& config) {
  constexpr int32_t kUsualDraftLen = 4, kUsualLookUp = 8;
  const bool has_model = !config.draft_model.empty();
  int32_t usual = model.proposer && !model.proposer->is_free() ? kUsualDraftLen : kUsualLookUp;
  if (model.proposer && model.proposer->usual_drafts() > 0) usual = model.proposer->usual_drafts();
  return {.max_drafts = config.max_draft_len > 0 ? config.max_draft_len : usual,
          .adapts = config.speculation == "auto" || (config.speculation.empty() && has_model),
          .overlaps = model.runner->limits().depth > 1,
          .vocab_size = model.runner->vocab_size(),
          .clock = model.clock};
}

// See ExecutorConfig::max_prefill_ms.
Duration max_prefill(const ModelInstance& model, const ExecutorConfig& config) {
  constexpr int64_t kUsualOnCpus = 50;
  const bool on_cpu = model.device.device->info().kind == DeviceKind::kCpu;
  return std::chrono::milliseconds(config.max_prefill_ms.value_or(on_cpu ? kUsualOnCpus : 0));
}

EncoderFacts encoder_facts(const ModelInstance& model) {
  EncoderFacts facts = model.encoder;
  facts.output_width = model.runner->encoder_width();
  return facts;
}

class ExecutorImpl : public StoringExecutor {
 public:
  ExecutorImpl(ModelInstance model, const ExecutorConfig& config)
      : model_(std::move(model)),
        bounds_{.limits = limits_of(model_, config),
                .vocab_size = model_.runner->vocab_size(),
                .embedding_width = model_.runner->embedding_width(),
                .has_tokenizer = model_.tokenizer != nullptr,
                .max_logits_bytes = config.max_logits_bytes,
                .max_input_len = model_.limits.max_input_len,
                .max_prompt_table = model_.limits.max_prompt_table,
                .gather_context_logits = model_.limits.gather_context_logits,
                .gives_hidden = model_.runner->hidden_size() > 0,
                .lookahead = config.speculation == "lookahead" ? std::optional(config.lookahead)
                                                               : std::nullopt,
                .weighs_drafts = model_.runner->weighs_drafts(),
                .encoder = encoder_facts(model_),
                .pictures = model_.pictures,
                .scored_heads = model_.runner->scored_heads(),
                .num_labels = model_.score_head.num_labels},
        typical_acceptance_(config.typical_acceptance),
        max_time_(config.max_request_secs > 0 ? std::chrono::seconds(config.max_request_secs)
                                              : std::chrono::milliseconds::max()),
        rings_{.iterations = Ring<IterationStats>(config.iter_stats_max_iterations),
               .requests = Ring<RequestStatsPerIteration>(config.request_stats_max_iterations),
               .events = Ring<KvCacheEvent>(config.kv_cache.event_buffer_size)},
        grammars_(model_.tokenizer, bounds_.vocab_size),
        outbox_(model_.tokenizer, inbox_, progress_),
        watchdog_(model_.health(), outbox_, progress_, config.exit_on_device_failure),
        engine_(model_.health(), *model_.runner,
                {.limits = bounds_.limits,
                 .normalize_log_probs = config.normalize_log_probs,
                 .clock = model_.clock},
                modules(config), inbox_, outbox_, progress_, rings_),
        thread_(engine_, inbox_, watchdog_) {}

  ~ExecutorImpl() override = default;
  // It stays where the engine's thread hangs, which uses nearly all of it.
  static void operator delete(ExecutorImpl* executor, std::destroying_delete_t) {
    executor->close();
    executor->inbox_.push(CancelAll{});
    while (!executor->progress_.wait_idle(std::chrono::hours(1))) continue;
    if (executor->watchdog_.gave_up())
      return keep_for_ever(std::shared_ptr<void>(executor, [](void*) {}));
    executor->~ExecutorImpl();
    ::operator delete(executor);
  }

  StatusOr<RequestId> enqueue(Request request, ResponseCallback callback) override {
    if (!callback) return invalid_argument("callback: must not be null");
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
    RETURN_IF_ERROR(check_all(requests));
    return accept(std::move(requests), nullptr);
  }

  StatusOr<std::vector<RequestId>> enqueue_requests(std::vector<Request> requests,
                                                    ResponseCallback callback) override {
    if (!callback) return invalid_argument("callback: must not be null");
    RETURN_IF_ERROR(check_all(requests));
    return accept(std::move(requests), std::move(callback));
  }

  void cancel(RequestId id) override { inbox_.push(Cancel{id}); }

  Status health() const override { return model_.health().failure(); }
  bool is_hung() const override { return model_.health().is_hung(); }

  bool can_enqueue() const override {
    std::lock_guard lock(mutex_);
    return !closed_ && health().ok() && progress_.has_room(bounds_.limits.max_queue_size);
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

  ExecutorStats stats() const override {
    ExecutorStats stats = progress_.stats();
    stats.device_is_healthy = health().ok();
    stats.adapters.num_places = bounds_.limits.max_adapters;
    stats.adapters.num_pages = bounds_.limits.max_adapter_pages;
    model_.adapters->add_stats(stats.adapters);
    return stats;
  }
  std::vector<IterationStats> latest_iteration_stats() override {
    return rings_.iterations.take_all();
  }
  std::vector<RequestStatsPerIteration> latest_request_stats() override {
    return rings_.requests.take_all();
  }
  std::vector<KvCacheEvent> kv_cache_events() override { return rings_.events.take_all(); }

  std::vector<MemoryUse> memory() const override {
    std::vector<MemoryUse> table;
    for (const exec::MemoryItem& item : memory_table(model_))
      table.push_back({item.what, static_cast<int64_t>(item.bytes), item.rank});
    return table;
  }
  BatchTimeline batch_timeline() override { return rings_.batch.take(model_.clock->now()); }
  std::vector<PrefixTreeOutline> prefix_trees() override {
    constexpr auto kPatience = std::chrono::milliseconds(10);
    const bool asks = rings_.prefixes.ask(model_.clock->now());
    if (asks) inbox_.push(WakeUp{});
    return {rings_.prefixes.newest(*model_.clock, asks ? kPatience : kPatience.zero())};
  }
  PlanReport plan_report() const override {
    std::call_once(report_once_, [this] {
      report_ = convert::plan_report(model_.plans);
      report_.text += "\nmemory\n";
      for (const MemoryUse& use : memory())
        report_.text += fmt::format("{:<32}{:>10.2f} MiB  rank {}\n", use.what,
                                    static_cast<double>(use.bytes) / (1 << 20), use.rank);
    });
    return report_;
  }
  std::vector<ExpertLoad> expert_load() const override { return model_.runner->expert_load(); }
  std::vector<RankStats> ranks() const override {
    std::vector<RankStats> all;
    for (const exec::RankFigures& rank : model_.runner->ranks())
      all.push_back({rank.rank, rank.device, rank.num_steps, rank.exchange_seconds});
    return all;
  }

  int32_t vocab_size() const override { return bounds_.vocab_size; }
  int32_t embedding_width() const override { return bounds_.embedding_width; }
  int32_t num_labels() const override { return bounds_.num_labels; }
  int32_t hidden_size() const override { return model_.runner->hidden_size(); }
  int32_t max_sequence_length() const override { return bounds_.limits.max_sequence_length; }
  EncoderFacts encoder() const override { return bounds_.encoder; }
  PictureFacts pictures() const override { return bounds_.pictures.shown(); }
  std::vector<TokenId> default_end_ids() const override { return model_.default_end_ids; }

 private:
  // Parts of a request that take long to make or to find.
  struct Findings {
    Grammars::Order guide;
    std::shared_ptr<const Adapter> adapter;
    std::vector<sched::InputKey> input_keys;
    std::vector<EncoderRows> encoder_inputs;
    std::vector<sched::WholeSpan> whole_spans;
    PromptPositions positions;
    std::shared_ptr<AttentionScores> scores;
    std::shared_ptr<EncoderOutput> encoder_output;
    int64_t num_scores = 0;
    int64_t encoder_positions = 0;
    int64_t logits_bytes = 0;           // of the whole request
    std::vector<TokenId> external_ids;  // of the prompt, without what stands in front of it
  };
  // Takes the bytes back from `progress` if the requests are refused.
  struct LogitsPromise {
    LogitsPromise(Progress& progress, int64_t bytes, int64_t most)
        : progress(progress),
          bytes(bytes),
          most(most),
          is_made(progress.promise_logits(bytes, most)) {}
    ~LogitsPromise() {
      if (is_made) progress.promise_logits(-bytes, most);
    }
    LogitsPromise(const LogitsPromise&) = delete;
    LogitsPromise& operator=(const LogitsPromise&) = delete;
    Progress& progress;
    const int64_t bytes, most;
    bool is_made;
  };
  // An adapter of rows becomes a part of the request.
  StatusOr<Findings> find(Request& request) {
    Findings found;
    found.external_ids = request.input_token_ids;
    ASSIGN_OR_RETURN(found.guide, grammars_.order(request));
    if (request.lora) {
      ASSIGN_OR_RETURN(found.adapter, model_.adapters->find(*request.lora));
      if (const PromptTable& rows = found.adapter->prompt; !rows.values.empty()) {
        put_in_front(rows, bounds_.vocab_size, request);
        found.adapter = nullptr;
        RETURN_IF_ERROR(check_request(request, bounds_));
      }
    }
    found.input_keys = input_keys(request, bounds_.vocab_size);
    found.logits_bytes = logits_bytes(request, bounds_);
    found.num_scores = num_attention_scores(request, bounds_);
    found.encoder_positions = num_encoder_positions(request, bounds_);
    if (request.encoder_input)
      found.encoder_inputs.push_back(encoder_rows(
          *std::exchange(request.encoder_input, std::nullopt), bounds_.encoder.feature_width,
          request.cache_salt, found.adapter ? found.adapter->key : 0));
    found.whole_spans = whole_spans(request, bounds_.pictures.facts);
    if (!request.pictures.empty()) add_pictures(request, found);
    if (bounds_.pictures.facts.whole_prompts)
      add_prompt_keys(request.input_token_ids, found.input_keys);
    return found;
  }

  void add_pictures(Request& request, Findings& found) const {
    const size_t num_tokens = request.input_token_ids.size();
    if (bounds_.pictures.has_components)
      found.positions = prompt_positions(request.pictures, num_tokens, bounds_.pictures.facts);
    found.encoder_inputs =
        picture_inputs(std::exchange(request.pictures, {}), bounds_.pictures, request.cache_salt);
    add_picture_keys(found.encoder_inputs, num_tokens, found.input_keys);
  }

  // Allocates the scores here, because that would take the engine thread milliseconds. Null: the
  // request asks for none.
  static StatusOr<std::shared_ptr<AttentionScores>> memory_for_scores(const Request& request,
                                                                      int64_t numbers) {
    if (numbers == 0) return std::shared_ptr<AttentionScores>();
    const int64_t heads = std::ssize(request.output.alignment_heads);
    const int64_t tokens = std::ssize(request.input_token_ids);
    auto scores = std::make_shared<AttentionScores>();
    scores->num_heads = static_cast<int32_t>(heads);
    scores->num_tokens = static_cast<int32_t>(tokens);
    scores->num_positions = static_cast<int32_t>(numbers / heads / tokens);
    try {
      scores->scores.resize(static_cast<size_t>(numbers));
    } catch (const std::bad_alloc&) {
      return resource_exhausted("there is no memory for {} attention scores", numbers);
    }
    return scores;
  }

  // Memory of the encoder's output; null: the request does not return it.
  StatusOr<std::shared_ptr<EncoderOutput>> memory_for_output(const Request& request,
                                                             int64_t positions) const {
    if (!request.output.return_encoder_output) return std::shared_ptr<EncoderOutput>();
    auto output = std::make_shared<EncoderOutput>();
    output->num_positions = static_cast<int32_t>(positions);
    output->width = bounds_.encoder.output_width;
    try {
      output->values.resize(static_cast<size_t>(positions * output->width));
    } catch (const std::bad_alloc&) {
      return resource_exhausted("there is no memory for {} x {} numbers of an encoder's output",
                                positions, output->width);
    }
    return output;
  }

  // A token's numbers of logits and attention scores, in multiples of the vocabulary.
  int32_t score_weight(const AttentionScores* scores) const {
    if (!scores) return 1;
    return static_cast<int32_t>(1 + int64_t{scores->num_heads} * scores->num_positions /
                                        bounds_.vocab_size);
  }

  Status check_all(const std::vector<Request>& requests) const {
    for (size_t i = 0; i < requests.size(); ++i)
      if (Status s = check_request(requests[i], bounds_); !s.ok())
        return annotate(s, fmt::format("requests[{}]", i));
    return ok();
  }

  // Takes checked requests, all or none. Without a callback their responses go to the store.
  StatusOr<std::vector<RequestId>> accept(std::vector<Request> requests,
                                          ResponseCallback callback) {
    int64_t count = 0, logits = 0;
    std::vector<Findings> findings;
    for (Request& r : requests) {
      ASSIGN_OR_RETURN(Findings found, find(r));
      findings.push_back(std::move(found));
      count += num_sequences(r);
      logits += findings.back().logits_bytes;
    }
    LogitsPromise promise(progress_, logits, bounds_.max_logits_bytes);
    if (!promise.is_made)
      return unavailable(
          "{} bytes of logits do not fit beside {} bytes for other requests; at most {} together "
          "are allowed (max_logits_bytes)",
          logits, progress_.promised_logits(), bounds_.max_logits_bytes);
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSIGN_OR_RETURN(findings[i].scores, memory_for_scores(requests[i], findings[i].num_scores));
      ASSIGN_OR_RETURN(findings[i].encoder_output,
                       memory_for_output(requests[i], findings[i].encoder_positions));
    }
    std::vector<RequestId> ids;
    ids.reserve(requests.size());
    // Under the lock, ids enter the inbox in order, and nothing enters after close().
    std::lock_guard lock(mutex_);
    if (closed_) return unavailable("shutting down: no new requests");
    RETURN_IF_ERROR(health());
    const int32_t most = bounds_.limits.max_queue_size;
    if (!progress_.enter_queue(count, most))
      return resource_exhausted(
          "queue is full: {} requests wait, {} more would be over {} (max_queue_size)",
          progress_.num_queued(), count, most);
    promise.is_made = false;  // the outbox takes the bytes back, request by request
    for (size_t i = 0; i < requests.size(); ++i) {
      Request& request = requests[i];
      const RequestId id = last_id_ + 1;
      last_id_ += static_cast<RequestId>(num_sequences(request));
      ids.push_back(id);
      ResponseCallback call = callback;
      if (!call) {
        store_.expect(id);
        call = [this](Response response) { store_.put(std::move(response)); };
      }
      submit(id, std::move(request), std::move(findings[i]), std::move(call));
    }
    return ids;
  }

  // Gives an accepted request to the outbox and the inbox; a grammar that is not there is compiled.
  void submit(RequestId id, Request request, Findings found, ResponseCallback callback) {
    progress_.opened();
    outbox_.open(subscription(id, request, std::move(found.external_ids), std::move(callback),
                              found.logits_bytes));
    const Grammars::Order guide = found.guide;
    const int32_t weight = score_weight(found.scores.get());
    SequenceParts parts{.input_keys = std::move(found.input_keys),
                        .encoder_inputs = std::move(found.encoder_inputs),
                        .whole_spans = std::move(found.whole_spans),
                        .components = std::move(found.positions.components),
                        .component_offset = found.positions.offset,
                        .scores = std::move(found.scores),
                        .encoder_output = std::move(found.encoder_output),
                        .guide = guide.guide,
                        .adapter = found.adapter.get(),
                        .score_weight = weight,
                        .typical_acceptance = typical_acceptance_,
                        .max_time = max_time_,
                        .arrival = model_.clock->now()};
    inbox_.push(Submit{request_sequences(id, std::move(request), std::move(parts)),
                       std::move(found.adapter), guide.waiter != nullptr});
    if (guide.waiter)
      grammars_.start(guide, [this, id](const Status& status) {
        inbox_.push(GrammarReady{id, status});
      });
  }

  static Subscription subscription(RequestId id, const Request& request,
                                   std::vector<TokenId> prompt, ResponseCallback callback,
                                   int64_t logits_bytes) {
    const SamplingConfig& sampling = request.sampling;
    const bool beams = sampling.beam_width > 1;
    Subscription s{.id = id, .callback = std::move(callback), .streaming = request.streaming};
    s.whole = beams || request.return_all_generated_tokens;
    s.log_probs = request.output.return_log_probs;
    s.num_sequences = num_sequences(request);
    s.num_returned = sampling.num_return_sequences.value_or(beams ? sampling.beam_width : 1);
    s.beam_width = sampling.beam_width;
    s.num_input_tokens = static_cast<int32_t>(prompt.size());
    if (!request.output.exclude_input_from_output) s.echo = std::move(prompt);
    s.min_tokens = sampling.min_tokens.value_or(0);
    s.stop_strings = request.stop_strings;
    s.client_id = request.client_id;
    s.logits_bytes = logits_bytes;
    return s;
  }

  StepModules modules(const ExecutorConfig& config) {
    return make_step_modules({.memory = memory_totals(model_),
                              .score_head = model_.score_head.weights,
                              .max_prefill = max_prefill(model_, config),
                              .jumps_ahead = config.enable_jump_ahead,
                              .guide_steps = model_.guide_steps,
                              .proposer = model_.proposer.get(),
                              .speculation = speculation_options(model_, config),
                              .clock = model_.clock},
                             *model_.runner, inbox_, progress_, rings_,
                             [this](RequestId id) { outbox_.scored(id); });
  }

  void close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    store_.close();
  }

  ModelInstance model_;
  const RequestBounds bounds_;
  const float typical_acceptance_;
  const std::chrono::milliseconds max_time_;  // of a request
  mutable std::once_flag report_once_;
  mutable PlanReport report_;
  mutable std::mutex mutex_;  // guards the two below, and the order of entering outbox and inbox
  bool closed_ = false;
  RequestId last_id_ = 0;
  Progress progress_;
  StatsRings rings_;
  Inbox inbox_;
  Grammars grammars_;
  Outbox outbox_;
  Watchdog watchdog_;
  Engine engine_;
  EngineThread thread_;  // destroyed first: its last update still finds the outbox
};

}  // namespace

std::unique_ptr<Executor> make_executor(ModelInstance model, const ExecutorConfig& config) {
  return std::make_unique<ExecutorImpl>(std::move(model), config);
}

}  // namespace nereid::runtime
