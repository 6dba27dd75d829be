// Runner of an engine file: memory, streams, staging of steps, tickets.
#include "exec/runner.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "exec/adapter_pool.h"
#include "exec/attention_scores.h"
#include "exec/bound_plan.h"
#include "exec/encoder_pass.h"
#include "exec/expert_counter.h"
#include "exec/kv_cache.h"
#include "exec/memory.h"
#include "exec/profile.h"
#include "exec/recorded_steps.h"
#include "exec/rope_table.h"
#include "exec/slot_sampler.h"
#include "exec/step_data.h"
#include "exec/step_in_flight.h"
#include "exec/step_message.h"

namespace nereid::exec {
namespace {

class EngineRunner : public Runner {
 public:
  EngineRunner(io::EngineFile file, const RunnerLimits& limits, RankComms comms)
      : file_(std::move(file)), limits_(limits), exchange_(std::move(comms)) {}

  // A runner on a hung device is leaked: running work may still use its memory.
  static void operator delete(EngineRunner* runner, std::destroying_delete_t) {
    if (runner->device_ && runner->device_->health().is_hung())
      return keep_for_ever(std::shared_ptr<void>(runner, [](void*) {}));
    runner->~EngineRunner();
    ::operator delete(runner);
  }

  Status load(Device& device, const kernels::Registry& registry,
              const kernels::KernelChoices& forced, const kernels::AlgorithmChoices* choices,
              std::optional<io::EngineFile> encoder) {
    device_ = &device;
    const bool needs_encoder = plan().model.num_cross_layers > 0;
    if (encoder ? plan().model.encoder_positions == 0 : needs_encoder)
      return invalid_argument("the model {} an encoder", encoder ? "does not have" : "needs");
    RETURN_IF_ERROR(exchange_.check(plan().mapping));
    if (!plan().mapping.is_single())
      rank_name_ = fmt::format("rank {} on {}", plan().mapping.rank, device.info().id());
    embedding_width_ = exec::embedding_width(plan());
    feature_width_ = exec::feature_width(plan());
    RETURN_IF_ERROR(allocate(device, encoder ? &encoder->plan() : nullptr));
    if (plan().mapping.draws()) {
      ASSIGN_OR_RETURN(sampler_, SlotSampler::create(device, registry, forced, limits_,
                                                     vocab_size(), hidden_size() * num_states()));
    }
    DeviceMemory memory;
    memory.weights = weights_.bytes();
    for (int i = 0; i < io::kNumExtents; ++i) memory.arenas[i] = arenas_[i].bytes();
    memory.kv_cache = &cache_;
    if (encoder) {
      const EncoderResults results{&cross_cache_, features_.bytes(), feature_width_};
      ASSIGN_OR_RETURN(encoder_,
                       EncoderPass::create(*std::move(encoder), limits_, device, registry, results,
                                           exchange_, adapters_, plan().mapping));
      memory.cross_cache = &cross_cache_;
      scores_ = AttentionScores(device, scored_heads(), limits_.depth);
    }
    memory.rope_table = ropes_.angles();
    memory.rope_components = ropes_.components();
    memory.slot_tokens = slot_tokens();
    memory.adapters = &adapters_;
    memory.fused = fused_.bytes();
    memory.exchange = &exchange_;
    if (limits_.counts_experts && plan().mapping.tensor_rank() == 0) {
      if (device.info().kind != DeviceKind::kCpu)
        return unsupported("expert_load: true is for models on CPUs, not on {}",
                           device.info().id());
      experts_ = std::make_unique<ExpertCounter>(plan());
    }
    ASSIGN_OR_RETURN(bound_, BoundPlan::bind(plan(), limits_, device.info(), registry, memory));
    if (std::ranges::any_of(limits_.num_host_blocks.of, [](int32_t n) { return n > 0; })) {
      ASSIGN_OR_RETURN(copy_stream_, device.create_copy_stream());
      ASSIGN_OR_RETURN(onboard_stream_, device.create_copy_stream());
    }
    if (limits_.num_adapters > 0) {
      ASSIGN_OR_RETURN(load_stream_, device.create_copy_stream());
    }
    ASSIGN_OR_RETURN(stream_, device.create_stream());
    if (registry.tuner.use) registry.tuner.use(choices ? *choices : plan().choices, *stream_);
    ASSIGN_OR_RETURN(auto event, stream_->submit([this](Stream& stream) {
      return stream.fill(slot_tokens_.data(), 0, slot_tokens_.size());
    }));
    return event->wait();
  }

  StatusOr<Ticket> launch(std::span<const std::byte> message) override {
    RETURN_IF_ERROR(device_->health().failure());  // a hung device may still read staged bytes
    int32_t index = 0;
    while (index < limits_.depth && staging_[index].in_use) ++index;
    if (index == limits_.depth)
      return invalid_argument("{} steps are in flight already; wait for one first", limits_.depth);
    if (std::ranges::any_of(staging_, [](const StepInFlight& s) { return s.waits_for_masks; }))
      return invalid_argument("a step in flight waits for its masks; draw it first");
    StepInFlight& staging = staging_[index];
    ASSIGN_OR_RETURN(const StepMessageView step, decode(message));
    RETURN_IF_ERROR(check_copies(step.copies, cache_.groups().size(), limits_));
    RETURN_IF_ERROR(check_onboards(step.onboards));
    staging.step = {};
    const bool needs_no_rows = !step.copies.empty() || !step.onboards.empty() ||
                               !step.adapter_loads.empty() || !step.adapter_moves.empty() ||
                               !step.encoder_inputs.empty();
    if (!step.rows.empty() || !needs_no_rows) {
      ASSIGN_OR_RETURN(staging.step, StepData::pack(step, cache_.groups(), limits_, vocab_size(),
                                                    staging.step_data.bytes()));
    }
    RETURN_IF_ERROR(check_inputs(step, staging.step));
    if (encoder_) RETURN_IF_ERROR(encoder_->stage(step, index));
    RETURN_IF_ERROR(scores_.stage(step, index));
    RETURN_IF_ERROR(adapters_.check(step));
    adapters_.stage(step, index);
    const Status embeddings = embeds() ? stage_embeddings(step.embeddings, staging) : ok();
    // Only the sampler fails rows alone; the other ranks would compute them without embeddings.
    RETURN_IF_ERROR(sampler_ ? sampler_->stage(step, index, embeddings) : embeddings);
    if (accepted_) accepted_();
    RETURN_IF_ERROR(issue_copies(step.copies, staging));
    RETURN_IF_ERROR(issue_loads(index));
    const bool has_masks = sampler_ && std::ranges::any_of(step.rows, [](const StepRow& row) {
                             return row.has_mask != 0;
                           });
    staging.broadcasts = exchange_.has_tensor_ranks() && !exchange_.has_stages() &&
                         std::ranges::any_of(step.rows, &StepRow::samples);
    const auto work = [this, index, has_masks](Stream& stream) {
      StepGuard guard(exchange_, rank_name_);
      return guard.done(has_masks ? compute(index, stream) : run_step(index, stream));
    };
    auto& used = has_masks ? staging.used_forward : staging.used;
    ASSIGN_OR_RETURN(auto event, stream_->submit(work, std::move(used)));
    if (sampler_) sampler_->issued(index);
    adapters_.keep(step);
    issue_onboards(step.onboards);
    staging.in_use = true;
    staging.waits_for_masks = has_masks;
    return Ticket(std::move(event), index);
  }

  void draw(Ticket& ticket, std::span<const std::byte> masks) override {
    StepInFlight& staging = staging_[staging_of(ticket)];
    staging.drawn = issue_draw(staging_of(ticket), masks, event_of(ticket));
    staging.waits_for_masks = false;
    if (!staging.drawn.ok()) exchange_.abort(staging.drawn);
  }

  StatusOr<StepResult> wait(Ticket& ticket) override {
    if (!ticket) return invalid_argument("an empty ticket cannot be waited for");
    const int32_t index = staging_of(ticket);
    StepInFlight& staging = staging_[index];
    Status status = event_of(ticket)->wait();
    if (staging.forward) {  // the forward pass's error takes precedence
      if (Status computed = staging.forward->wait(); !computed.ok()) status = computed;
      staging.used_forward = std::move(staging.forward);
    }
    if (std::exchange(staging.waits_for_masks, false))
      staging.drawn = invalid_argument("the step's masks never came");
    if (status.ok()) status = staging.drawn;
    if (status.ok()) status = exchange_.ended();
    staging.drawn = ok();
    for (const auto& copies : staging.copies)
      if (Status copied = copies->wait(); status.ok()) status = copied;
    staging.copies.clear();
    staging.used = std::move(event_of(ticket));
    staging.in_use = false;
    ticket = Ticket();
    last_done_ = index;
    if (!status.ok()) {
      exchange_.abort(status);
      return status;
    }
    ++num_steps_;
    if (!sampler_) return StepResult();
    const StepResult results = scores_.add_to(sampler_->results(index), index);
    RETURN_IF_ERROR(follow(results));
    return results;
  }

  Status follow(StepResult drawn) override { return keep_paths(staging_[last_done_].step, drawn); }
  bool draws() const override { return sampler_ != nullptr; }
  void abort(const Status& reason) override { exchange_.abort(reason); }

  std::optional<Status> onboarded(bool may_wait) override {
    if (onboards_.empty()) return std::nullopt;
    const StatusOr<std::unique_ptr<Event>>& first = onboards_.front();
    if (first.ok() && !may_wait && !(*first)->done()) return std::nullopt;
    Status status = first.ok() ? (*first)->wait() : first.status();
    onboards_.pop_front();
    return status;
  }

  const RunnerLimits& limits() const override { return limits_; }
  std::span<const CacheGroup> groups() const override { return cache_.groups(); }
  int32_t vocab_size() const override { return plan().model.vocab_size; }
  int32_t hidden_size() const override {
    return plan().hidden.empty() ? 0 : plan().model.hidden_size;
  }
  int32_t num_states() const override { return static_cast<int32_t>(plan().hidden.size()); }
  bool weighs_drafts() const override { return sampler_ && sampler_->weighs_drafts(); }
  int32_t embedding_width() const override { return embedding_width_; }
  ScoredHeads scored_heads() const override {
    if (!encoder_ || !plan().mapping.is_single() || plan().model.pictures.in_cross) return {};
    for (const io::Call& call : plan().calls)
      if (const auto* cross = std::get_if<kernels::ids::CrossAttention>(&call.op))
        return {plan().model.num_cross_layers, cross->heads.num};
    return {};
  }
  int32_t encoder_width() const override {
    return encoder_ && plan().model.num_cross_layers > 0 ? encoder_->output_width() : 0;
  }
  std::span<const EncodedInput> encoder_outputs() const override {
    return encoder_ ? encoder_->outputs(last_done_) : std::span<const EncodedInput>();
  }
  std::vector<RankFigures> ranks() const override {
    if (plan().mapping.is_single()) return {};
    return {{plan().mapping.rank, device_->info().id(), num_steps_, exchange_.seconds()}};
  }
  std::vector<ExpertLoad> expert_load() const override {
    return experts_ ? experts_->load() : std::vector<ExpertLoad>();
  }
  std::vector<MemoryItem> memory() const override {
    std::vector<MemoryItem> table = memory_table(plan(), limits_, device_->info());
    if (!encoder_) return table;
    const std::vector<MemoryItem> more = encoder_->memory();
    const auto host = std::ranges::find_if(
        table, [](const MemoryItem& item) { return item.what.starts_with("host "); });
    table.insert(host, more.begin(), more.end());
    return table;
  }

  void set_recording(bool on) override {
    recorded_ = on ? std::make_unique<RecordedSteps>() : nullptr;
  }

  void set_profiling(bool on) override {
    profile_ = on ? std::make_unique<Profile>(bound_.profile_entries()) : nullptr;
  }
  std::vector<OpTime> profile() const override {
    return profile_ ? profile_->times() : std::vector<OpTime>();
  }
  void set_observer(ProductObserver observer) override { observer_ = std::move(observer); }
  void on_accepted(std::function<void()> accepted) override { accepted_ = std::move(accepted); }

 private:
  const io::Plan& plan() const { return file_.plan(); }
  int32_t* slot_tokens() const { return static_cast<int32_t*>(slot_tokens_.data()); }

  // Parts of the rank's modules: those of the decoder, then of the encoder, whose modules are last.
  std::vector<io::ModulePart> module_parts(const io::Plan* encoder) const {
    std::vector<io::ModulePart> parts = plan().module_parts;
    if (encoder == nullptr) return parts;
    const auto first = static_cast<int32_t>(plan().modules.size() - encoder->modules.size());
    for (io::ModulePart part : encoder->module_parts) {
      part.module += first;
      parts.push_back(std::move(part));
    }
    return parts;
  }

  // `encoder`: null: the model has none.
  Status allocate(Device& device, const io::Plan* encoder) {
    ASSIGN_OR_RETURN(weights_, device.upload(file_.blob().data(), file_.blob().size()));
    for (const io::RowCount extent : {io::RowCount::kTokens, io::RowCount::kSampled}) {
      ASSIGN_OR_RETURN(arenas_[static_cast<int>(extent)],
                       device.allocate(arena_bytes(plan(), limits_, extent)));
    }
    if (const size_t bytes = fused_bytes(plan(), device.info()); bytes > 0) {
      ASSIGN_OR_RETURN(fused_, device.allocate(bytes));
    }
    ASSIGN_OR_RETURN(cache_, KvCache::create(plan(), limits_, device));
    ASSIGN_OR_RETURN(features_, device.allocate(feature_block_bytes(plan(), limits_) *
                                                static_cast<size_t>(limits_.num_feature_blocks)));
    if (plan().model.num_cross_layers > 0) {
      RunnerLimits cross = limits_;
      cross.num_blocks = limits_.num_cross_blocks;
      cross.num_host_blocks = 0;
      ASSIGN_OR_RETURN(cross_cache_, KvCache::create({cross_group(plan())},
                                                     plan().model.num_cross_layers, cross, device));
    }
    ASSIGN_OR_RETURN(adapters_,
                     AdapterPool::create(plan().modules, limits_, device, module_parts(encoder),
                                         !plan().mapping.is_single()));
    ASSIGN_OR_RETURN(ropes_, RopeTables::create(plan(), limits_, device));
    ASSIGN_OR_RETURN(slot_tokens_,
                     device.allocate(static_cast<size_t>(limits_.max_rows) * sizeof(int32_t)));
    ASSIGN_OR_RETURN(step_data_,
                     device.allocate(StepData::max_bytes(limits_, cache_.groups().size())));
    staging_.resize(static_cast<size_t>(limits_.depth));
    for (StepInFlight& staging : staging_) {
      ASSIGN_OR_RETURN(staging.step_data,
                       device.allocate_host(StepData::max_bytes(limits_, cache_.groups().size())));
    }
    return ok();
  }

  // Whether the plan begins with the tokens' embeddings: that of the first stage.
  bool embeds() const { return plan().mapping.stage() == 0; }

  Status check_inputs(const StepMessageView& message, const StepData& step) const {
    if (!encoder_ && (!message.encoder_inputs.empty() || !message.encoder_tokens.empty() ||
                      !message.encoder_embeddings.empty() || !message.encoder_blocks.empty() ||
                      !message.encoder_components.empty() || !message.encoder_windows.empty() ||
                      !message.encoder_blends.empty()))
      return invalid_argument("encoder inputs of a model without encoder");
    if (exchange_.has_stages() &&
        std::ranges::find(message.tokens, kTokenOnDevice) != message.tokens.end())
      return invalid_argument(
          "a token that only the device knows (id {}): a model in stages takes known ones",
          kTokenOnDevice);
    if (!embeds()) return ok();
    const int64_t needed = int64_t{step.num_embeddings} * embedding_width_;
    if (static_cast<int64_t>(message.embeddings.size()) == needed) return ok();
    return invalid_argument("{} numbers of embeddings; {} tokens need {}",
                            message.embeddings.size(), step.num_embeddings, needed);
  }

  // ResourceExhausted: no memory for the embeddings.
  Status stage_embeddings(std::span<const BF16> embeddings, StepInFlight& staging) {
    staging.embedding_bytes = 0;
    const size_t bytes = embeddings.size_bytes();
    if (bytes == 0) return ok();
    if (bytes > staging.embeddings.size()) {
      const size_t most = static_cast<size_t>(limits_.max_tokens) *
                          static_cast<size_t>(embedding_width_) * sizeof(BF16);
      const size_t grown = std::min(std::bit_ceil(bytes), most);
      auto host = device_->allocate_host(grown);
      auto device = host.ok() ? device_->allocate(grown) : host.status();
      if (!device.ok())
        return annotate(device.status(), fmt::format("{} bytes of embeddings of one step", bytes));
      staging.host_embeddings = *std::move(host);
      staging.embeddings = *std::move(device);
    }
    std::memcpy(staging.host_embeddings.data(), embeddings.data(), bytes);
    staging.embedding_bytes = bytes;
    return ok();
  }

  // Submits block copies: to and from the host on the copy stream, beside the step in flight;
  // within the device on the step stream. Each run of one kind waits for the previous run, and the
  // step for all of them.
  Status issue_copies(std::span<const BlockCopy> copies, StepInFlight& staging) {
    staging.copies.clear();
    for (size_t begin = 0, end = 0; begin < copies.size(); begin = end) {
      const bool host = cache_.touches_host(copies[begin]);
      while (end < copies.size() && cache_.touches_host(copies[end]) == host) ++end;
      const auto part = copies.subspan(begin, end - begin);
      if (host && device_copies_) RETURN_IF_ERROR(copy_stream_->wait(*device_copies_));
      if (!host && host_copies_) RETURN_IF_ERROR(stream_->wait(*host_copies_));
      ASSIGN_OR_RETURN(
          std::shared_ptr<Event> event,
          (host ? copy_stream_ : stream_)
              ->submit([this, part = std::vector(part.begin(), part.end())](Stream& stream) {
                return cache_.copy_blocks(part, stream);
              }));
      (host ? host_copies_ : device_copies_) = event;
      staging.copies.push_back(std::move(event));
    }
    if (!staging.copies.empty() && host_copies_) return stream_->wait(*host_copies_);
    return ok();
  }

  // Submits adapter loads on the load stream, after earlier steps and beside this one; the next
  // step waits for them, this one if its rows use them.
  Status issue_loads(int32_t index) {
    if (loads_) RETURN_IF_ERROR(stream_->wait(*loads_));
    loads_ = nullptr;
    if (!adapters_.has_loads(index)) return ok();
    ASSIGN_OR_RETURN(const auto before, stream_->submit([](Stream&) { return ok(); }));
    RETURN_IF_ERROR(load_stream_->wait(*before));
    ASSIGN_OR_RETURN(loads_, load_stream_->submit([this, index](Stream& stream) {
      return adapters_.load(index, stream);
    }));
    staging_[index].copies.push_back(loads_);
    return adapters_.needs_loads(index) ? stream_->wait(*loads_) : ok();
  }

  Status check_onboards(std::span<const BlockCopy> onboards) const {
    RETURN_IF_ERROR(check_copies(onboards, cache_.groups().size(), limits_));
    for (size_t i = 0; i < onboards.size(); ++i) {
      const int32_t end = limits_.num_blocks[static_cast<size_t>(onboards[i].group)];
      if (onboards[i].from >= end && onboards[i].to < end) continue;
      return invalid_argument("onboard {}: {} to {} is not from the host pool (blocks from {} on)",
                              i, onboards[i].from, onboards[i].to, end);
    }
    return ok();
  }

  // Submits onboards on their own stream; no step waits for it.
  void issue_onboards(std::span<const BlockCopy> onboards) {
    if (onboards.empty()) return;
    const auto issue = [&]() -> StatusOr<std::unique_ptr<Event>> {
      for (const auto& before : {host_copies_, device_copies_})
        if (before) RETURN_IF_ERROR(onboard_stream_->wait(*before));
      return onboard_stream_->submit(
          [this, all = std::vector(onboards.begin(), onboards.end())](Stream& stream) {
            return cache_.copy_blocks(all, stream);
          });
    };
    onboards_.push_back(issue());
  }

  // Moves the KV of accepted paths to the rows' first draft cells, before later steps and copies.
  Status keep_paths(const StepData& step, StepResult results) {
    if (!step.after) return ok();
    std::vector<CellMove> moves;
    for (int32_t r = 0; r < step.num_rows; ++r) {
      int32_t first = step.row_begin[r];  // first draft
      while (first < step.row_begin[r + 1] && step.after[first] == 0) ++first;
      const std::span<const int32_t> path = results[static_cast<size_t>(r)].path;
      for (size_t i = 0; first < step.row_begin[r + 1] && i < path.size(); ++i)
        add_moves(step, r, step.cells[first + path[i]], step.cells[first] + static_cast<int32_t>(i),
                  moves);
    }
    if (moves.empty()) return ok();
    ASSIGN_OR_RETURN(device_copies_,
                     stream_->submit([this, all = std::move(moves)](Stream& stream) {
                       return cache_.move_cells(all, stream);
                     }));
    return ok();
  }

  // Moves a row's keys and values between two positions, in all groups.
  void add_moves(const StepData& step, int32_t row, int32_t from, int32_t to,
                 std::vector<CellMove>& moves) const {
    if (from == to) return;
    const int32_t size = limits_.block_tokens;
    for (size_t g = 0; g < cache_.groups().size(); ++g) {
      const auto group = static_cast<int32_t>(g);
      const int32_t* const blocks = step.block_table(group) + int64_t{row} * step.max_blocks;
      moves.push_back({group, blocks[from / size], from % size, blocks[to / size], to % size});
    }
  }

  // `event`: of the forward pass; becomes that of the whole step.
  Status issue_draw(int32_t index, std::span<const std::byte> masks,
                    std::unique_ptr<Event>& event) {
    StepInFlight& staging = staging_[index];
    if (!staging.waits_for_masks) return invalid_argument("the step waits for no masks");
    RETURN_IF_ERROR(device_->health().failure());
    ASSIGN_OR_RETURN(const MaskView view, decode_masks(masks));
    RETURN_IF_ERROR(sampler_->set_masks(view, index));
    const auto work = [this, index](Stream& stream) {
      StepGuard guard(exchange_, rank_name_);
      const Status sent = sampler_->send(index, stream);
      return guard.done(sent.ok() ? sample(index, stream) : sent);
    };
    ASSIGN_OR_RETURN(auto whole, stream_->submit(work, std::move(staging.used)));
    staging.forward = std::exchange(event, std::move(whole));
    return ok();
  }

  // Runs on the stream.
  Status run_step(int32_t index, Stream& stream) {
    if (sampler_) RETURN_IF_ERROR(sampler_->send(index, stream));
    RETURN_IF_ERROR(compute(index, stream));
    return sample(index, stream);
  }

  Status compute(int32_t index, Stream& stream) {
    const StepData& data = staging_[index].step;
    RETURN_IF_ERROR(adapters_.run(index, stream));
    if (encoder_) RETURN_IF_ERROR(encoder_->run(index, stream));
    return data.num_rows > 0 ? run_plan(data, index, stream) : ok();
  }

  Status sample(int32_t index, Stream& stream) {
    const int32_t num_logits = staging_[index].step.num_logits;
    if (sampler_)
      RETURN_IF_ERROR(
          sampler_->run(index, bound_.logits(num_logits), slot_tokens(), stream, bound_.hidden()));
    if (!staging_[index].broadcasts) return ok();
    return exchange_.broadcast_tokens(slot_tokens(), limits_.max_rows, stream);
  }

  // The device's step data has one copy, protected by stream order.
  Status run_plan(const StepData& staged, int32_t index, Stream& stream) {
    const std::byte* const block = staging_[index].step_data.bytes();
    RETURN_IF_ERROR(stream.copy(step_data_.data(), block, staged.bytes));
    StepData step = staged.at(block, step_data_.bytes());
    if (const StepInFlight& s = staging_[index]; s.embedding_bytes > 0) {
      RETURN_IF_ERROR(
          stream.copy(s.embeddings.data(), s.host_embeddings.data(), s.embedding_bytes));
      step.embeddings = static_cast<const BF16*>(s.embeddings.data());
    }
    step.features = reinterpret_cast<const BF16*>(features_.bytes());
    step.num_features = limits_.num_feature_blocks * limits_.block_tokens;
    step.feature_width = feature_width_;
    step.scores = scores_.calls(index);
    const auto run = [&](Stream& s) {
      return bound_.run(step, s, profile_.get(), observer_, nullptr, experts_.get());
    };
    const bool records = recorded_ && !profile_ && !observer_;
    RETURN_IF_ERROR(records ? recorded_->run(step, stream, run) : run(stream));
    RETURN_IF_ERROR(scores_.read(index, stream));
    const io::EngineFile* file = &file_;
    if (!file->is_lost() && encoder_) file = &encoder_->file();
    if (!file->is_lost()) return ok();
    const Status lost =
        data_loss("{} has become smaller while it was in use", file->path().string());
    device_->health().fail(lost);  // the mapped weights are gone
    return lost;
  }

  const io::EngineFile file_;
  const RunnerLimits limits_;
  Device* device_ = nullptr;
  int32_t embedding_width_ = 0, feature_width_ = 0;
  Buffer weights_, slot_tokens_, step_data_;
  Buffer features_;  // of pictures, [num_feature_blocks * block_tokens, feature_width_]
  RopeTables ropes_;
  KvCache cache_, cross_cache_;           // cross_cache_: of cross attention
  std::unique_ptr<EncoderPass> encoder_;  // null: the model has none
  AttentionScores scores_;
  AdapterPool adapters_;
  Buffer arenas_[io::kNumExtents], fused_;
  std::vector<StepInFlight> staging_;     // [depth]
  std::unique_ptr<SlotSampler> sampler_;  // null: another rank draws
  Exchange exchange_;
  std::string rank_name_;               // in errors; empty: no other ranks
  int32_t last_done_ = 0;               // staging of the step that was waited for last
  std::atomic<int64_t> num_steps_ = 0;  // that succeeded
  BoundPlan bound_;
  std::unique_ptr<ExpertCounter> experts_;  // null: not counted
  std::unique_ptr<Profile> profile_;
  ProductObserver observer_;
  std::function<void()> accepted_;
  std::unique_ptr<RecordedSteps> recorded_ = std::make_unique<RecordedSteps>();
  // Ends of the last host copies that a step waits for, and of the last device copies.
  std::shared_ptr<Event> host_copies_, device_copies_;
  std::shared_ptr<Event> loads_;  // adapter loads that the next step waits for
  std::deque<StatusOr<std::unique_ptr<Event>>> onboards_;  // not yet reported by onboarded()
  std::unique_ptr<Stream> copy_stream_, onboard_stream_;   // null: no host pool
  std::unique_ptr<Stream> load_stream_;                    // null: no adapters
  std::unique_ptr<Stream> stream_;                         // last member: its steps use the others
};

Status check_device(const io::Plan& plan, const DeviceInfo& device) {
  const std::string_view kind = name_of(device.kind);
  if (plan.device == kind) return ok();
  return invalid_argument("the engine was built for '{}', the device is '{}'; build it again",
                          plan.device, kind);
}

}  // namespace

StatusOr<std::unique_ptr<Runner>> make_runner(io::EngineFile engine, Device& device,
                                              const kernels::Registry& registry,
                                              const RunnerLimits& limits,
                                              const kernels::KernelChoices& forced, RankComms comms,
                                              const kernels::AlgorithmChoices* choices,
                                              std::optional<io::EngineFile> encoder) {
  const std::string path = engine.path().string();
  const auto prepare = [&]() -> StatusOr<std::unique_ptr<Runner>> {
    RETURN_IF_ERROR(check_device(engine.plan(), device.info()));
    RETURN_IF_ERROR(check_limits(engine.plan(), limits));
    for (size_t g = 0; g < cache_groups(engine.plan(), limits).size(); ++g)
      if (limits.num_blocks[g] < 1)
        return invalid_argument("limit num_blocks: {} is not positive", limits.num_blocks[g]);
    if (engine.plan().model.num_cross_layers > 0 &&
        limits.num_cross_blocks < cross_blocks_per_input(limits))
      return invalid_argument("limit num_cross_blocks: {}; an input of {} positions needs {}",
                              limits.num_cross_blocks, limits.max_encoder_length,
                              cross_blocks_per_input(limits));
    auto runner = std::make_unique<EngineRunner>(std::move(engine), limits, std::move(comms));
    RETURN_IF_ERROR(runner->load(device, registry, forced, choices, std::move(encoder)));
    return runner;
  };
  auto runner = prepare();
  if (!runner.ok()) return annotate(runner.status(), path);
  return runner;
}

StatusOr<std::unique_ptr<Runner>> make_runner(const std::filesystem::path& engine, Device& device,
                                              const kernels::Registry& registry,
                                              const RunnerLimits& limits,
                                              const kernels::KernelChoices& forced) {
  ASSIGN_OR_RETURN(io::EngineFile file, io::EngineFile::open(engine));
  return make_runner(std::move(file), device, registry, limits, forced);
}

}  // namespace nereid::exec
