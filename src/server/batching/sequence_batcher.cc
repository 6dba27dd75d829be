#include "server/batching/sequence_batcher.h"

#include <algorithm>

#include "base/clock.h"
#include "base/log_limit.h"

namespace nereid::server {
namespace {

constexpr uint64_t kMaxUs = uint64_t{1} << 50;

bool has_flag(const InferenceRequest& r, uint32_t flag) { return (r.flags & flag) != 0; }

bool is_set(const CorrelationId& id) {
  const auto* text = std::get_if<std::string>(&id);
  return text != nullptr ? !text->empty() : std::get<uint64_t>(id) != 0;
}

std::string text_of(const CorrelationId& id) {
  const auto* text = std::get_if<std::string>(&id);
  return text != nullptr ? *text : std::to_string(std::get<uint64_t>(id));
}

size_t slots_of(const ModelConfig& config) {
  if (config.sequences->oldest) return config.sequences->max_candidates;
  return static_cast<size_t>(std::max<int64_t>(1, config.max_batch_size));
}

}  // namespace

StatusOr<std::unique_ptr<SequenceBatcher>> SequenceBatcher::create(Model& model,
                                                                   size_t num_instances,
                                                                   Drop drop) {
  ASSIGN_OR_RETURN(InitialStates initial, InitialStates::read(model.config(), model.dir()));
  return std::unique_ptr<SequenceBatcher>(
      new SequenceBatcher(model, num_instances, std::move(initial), std::move(drop)));
}

SequenceBatcher::SequenceBatcher(Model& model, size_t num_instances, InitialStates initial,
                                 Drop drop)
    : Batcher(std::move(drop)),
      model_(model),
      config_(model.config()),
      rules_(*config_.sequences),
      initial_(std::move(initial)),
      max_slots_(slots_of(config_)),
      one_at_a_time_(rules_.oldest || rules_.iterative || !rules_.states.empty()),
      max_idle_ns_(std::min(rules_.max_idle_us, kMaxUs) * 1000),
      instances_(num_instances) {
  if (rules_.oldest && rules_.preserve_ordering) {
    for (auto& instance : instances_) instance.order = std::make_unique<ResponseOrder>();
  }
  start();
}

Status SequenceBatcher::check(const InferenceRequest& request) const {
  if (request.batch_size > 1) {
    return invalid_argument(
        "inference request to model '{}' must specify batch-size 1 due to requirements of sequence "
        "batcher",
        config_.name);
  }
  if (!rules_.iterative && !is_set(request.correlation_id)) {
    return invalid_argument(
        "inference request to model '{}' must specify a non-zero or non-empty correlation ID",
        config_.name);
  }
  if (!is_set(request.correlation_id)) return ok();
  return check_correlation_id(config_, request.correlation_id);
}

Status SequenceBatcher::no_start(const CorrelationId& id) const {
  return invalid_argument(
      "inference request for sequence {} to model '{}' must specify the START flag on the first "
      "request of the sequence",
      text_of(id), config_.name);
}

// The sequence that the request belongs to; a new one is added to live_ and placed.
StatusOr<SequenceBatcher::Lane> SequenceBatcher::sequence_for(InferenceRequest& request) {
  const CorrelationId client_id = request.correlation_id;
  const uint32_t client_flags = request.flags;
  if (rules_.iterative) {
    while (!is_set(request.correlation_id) || (!is_set(client_id) && live_.contains(next_id_))) {
      request.correlation_id = ++next_id_;
    }
    if (live_.contains(request.correlation_id)) {
      return invalid_argument("sequence id {} conflicts with in-flight sequence for model '{}'",
                              text_of(request.correlation_id), config_.name);
    }
    request.flags |= TRITONSERVER_REQUEST_FLAG_SEQUENCE_START;
  }
  const bool is_start = has_flag(request, TRITONSERVER_REQUEST_FLAG_SEQUENCE_START);
  const auto known = live_.find(request.correlation_id);
  if (known != live_.end()) {
    if (is_start) {
      static LogLimit log;
      log.warn(
          "sequence {} for model '{}' has a conflict. The previous sequence did not end before "
          "this sequence start. Previous sequence will be terminated early.",
          text_of(request.correlation_id), config_.name);
    }
    return known->second;
  }
  if (!is_start) return no_start(request.correlation_id);
  auto lane = std::make_shared<BatchedSequence>();
  lane->id = request.correlation_id;
  lane->client_id = client_id;
  lane->client_flags = client_flags;
  if (!rules_.states.empty()) lane->states = std::make_unique<ImplicitStates>(config_, initial_);
  live_[lane->id] = lane;
  model_.sequence_began();
  place(lane);
  return lane;
}

Status SequenceBatcher::push(InferenceRequest* request) {
  RETURN_IF_ERROR(check(*request));
  watch(*request);
  {
    std::lock_guard lock(mutex_);
    if (closed_) return unavailable("model '{}' is unloading", config_.name);
    ASSIGN_OR_RETURN(const Lane lane, sequence_for(*request));
    lane->waiting.push_back(request);
    lane->seen_ns = now_ns();
    if (!lane->has_slot && request->timeout_us > 0 && request->timeout_us < kMaxUs) {
      lane->deadline_ns = std::min(lane->deadline_ns, lane->seen_ns + request->timeout_us * 1000);
    }
    wake_at(std::min(lane->seen_ns + max_idle_ns_, lane->deadline_ns));
    if (has_flag(*request, TRITONSERVER_REQUEST_FLAG_SEQUENCE_END) && !rules_.iterative) {
      lane->has_ended = true;
      live_.erase(lane->id);
    }
    watched(*request);
  }
  changed();
  return ok();
}

bool SequenceBatcher::continues(const InferenceRequest& request) {
  std::lock_guard lock(mutex_);
  return !rules_.iterative && live_.contains(request.correlation_id) &&
         !has_flag(request, TRITONSERVER_REQUEST_FLAG_SEQUENCE_START);
}

// Assigns the free slot of the lowest number on any instance: batches stay dense and instances
// share the load. Without a free slot the sequence waits in the backlog.
void SequenceBatcher::place(const Lane& lane) {
  Instance* best = nullptr;
  size_t best_slot = max_slots_;
  for (auto& instance : instances_) {
    const auto free = std::find(instance.slots.begin(), instance.slots.end(), nullptr);
    const auto slot = static_cast<size_t>(free - instance.slots.begin());
    if (slot >= best_slot) continue;
    best = &instance;
    best_slot = slot;
  }
  if (best == nullptr) {
    backlog_.push_back(lane);
    return;
  }
  if (best_slot == best->slots.size()) best->slots.emplace_back();
  best->slots[best_slot] = lane;
  lane->has_slot = true;
}

void SequenceBatcher::prepare(const Lane& lane, InferenceRequest& request) {
  if (request.turn != nullptr) return;
  const bool is_start = has_flag(request, TRITONSERVER_REQUEST_FLAG_SEQUENCE_START);
  const bool is_end = has_flag(request, TRITONSERVER_REQUEST_FLAG_SEQUENCE_END);
  request.turn = std::make_shared<SequenceTurn>(SequenceTurn{this, lane});
  add_controls(config_, {is_start, true, is_end, request.correlation_id}, request);
  if (lane->states == nullptr) return;
  if (is_start) lane->states->reset();
  lane->states->add_inputs(request);
}

void SequenceBatcher::add_warmup_inputs(InferenceRequest& request) const {
  request.core_inputs.clear();
  request.core_memory.clear();
  add_controls(config_, {true, true, false, CorrelationId(uint64_t{1})}, request);
  if (rules_.states.empty()) return;
  request.unowned_states = std::make_shared<ImplicitStates>(config_, initial_);
  request.unowned_states->add_inputs(request);
}

bool SequenceBatcher::plan(size_t index, uint64_t now, uint64_t& wake_ns) {
  Instance& instance = instances_[index];
  std::vector<size_t> fronts;
  for (size_t i = 0; i < instance.slots.size(); ++i) {
    const Lane& lane = instance.slots[i];
    if (lane == nullptr || lane->waiting.empty()) continue;
    if (one_at_a_time_ && lane->num_running > 0) continue;
    prepare(lane, *lane->waiting.front());
    fronts.push_back(i);
  }
  instance.planned.clear();
  if (fronts.empty() || is_held(instance, fronts.size())) return false;
  return rules_.oldest ? plan_oldest(instance, std::move(fronts), now, wake_ns)
                       : plan_direct(instance, fronts, now, wake_ns);
}

// Strategy oldest: an instance starts with enough sequences of its own. Direct: all instances start
// together, once slots and backlog hold enough requests.
bool SequenceBatcher::is_held(Instance& instance, size_t num_fronts) {
  if (closed_) return false;
  if (rules_.oldest) {
    if (instance.hold.holds(num_fronts)) return true;
    instance.hold.release();
    return false;
  }
  StartDelay& hold = instances_.front().hold;
  if (!hold.is_set() && !backlog_hold_.is_set()) return false;
  size_t num_waiting = 0, num_backlog = 0;
  for (const Instance& each : instances_) {
    for (const Lane& lane : each.slots) num_waiting += lane == nullptr ? 0 : lane->waiting.size();
  }
  for (const Lane& lane : backlog_) num_backlog += lane->waiting.size();
  if (hold.holds(num_waiting) || backlog_hold_.holds(num_backlog)) return true;
  hold.release();
  backlog_hold_.release();
  return false;
}

bool SequenceBatcher::plan_direct(Instance& instance, const std::vector<size_t>& fronts,
                                  uint64_t now, uint64_t& wake_ns) const {
  const auto front = [&](size_t slot) { return instance.slots[slot]->waiting.front(); };
  const size_t oldest = *std::min_element(fronts.begin(), fronts.end(), [&](size_t a, size_t b) {
    return front(a)->start_ns < front(b)->start_ns;
  });
  const uint64_t due_ns = front(oldest)->start_ns + rules_.max_delay_us * 1000;
  const double utilization = static_cast<double>(fronts.size()) / static_cast<double>(max_slots_);
  const bool may_wait = rules_.max_delay_us > 0 && utilization < rules_.min_utilization;
  if (may_wait && !closed_ && now < due_ns) {
    wake_ns = due_ns;
    return false;
  }
  for (size_t slot : fronts) {
    if (fit_together(config_, *front(oldest), *front(slot))) instance.planned.push_back(slot);
  }
  return true;
}

bool SequenceBatcher::plan_oldest(Instance& instance, std::vector<size_t> fronts, uint64_t now,
                                  uint64_t& wake_ns) const {
  const auto front = [&](size_t slot) { return instance.slots[slot]->waiting.front(); };
  std::stable_sort(fronts.begin(), fronts.end(),
                   [&](size_t a, size_t b) { return front(a)->start_ns < front(b)->start_ns; });
  std::vector<const InferenceRequest*> order;
  for (size_t slot : fronts) order.push_back(front(slot));
  const BatchRule rule = {rules_.preferred_sizes, rules_.max_delay_us};
  const size_t count =
      config_.max_batch_size > 0 ? size_of_batch(config_, rule, order, now, closed_, wake_ns) : 1;
  instance.planned.assign(fronts.begin(), fronts.begin() + static_cast<ptrdiff_t>(count));
  return count > 0;
}

InferenceRequest* SequenceBatcher::hand_over(Instance& instance, size_t slot) {
  const Lane lane = instance.slots[slot];
  InferenceRequest* request = lane->waiting.front();
  lane->waiting.pop_front();
  ++lane->num_running;
  if (instance.order != nullptr) (void)instance.order->enter(*request->context());
  if (!one_at_a_time_) leave_if_over(lane);
  return request;
}

std::vector<InferenceRequest*> SequenceBatcher::take_planned(size_t index) {
  Instance& instance = instances_[index];
  std::vector<InferenceRequest*> batch;
  if (rules_.oldest) {
    for (size_t slot : instance.planned) batch.push_back(hand_over(instance, slot));
    return batch;
  }
  // A slot is a fixed position in the batch: empty slots before the last one used
  // get padding requests.
  const InferenceRequest& like = *instance.slots[instance.planned.front()]->waiting.front();
  for (size_t slot : instance.planned) {
    while (batch.size() < slot) {
      batch.push_back(make_padding(model_.shared_from_this(), like, initial_));
    }
    batch.push_back(instance.slots[slot]->waiting.front());
  }
  for (size_t slot : instance.planned) (void)hand_over(instance, slot);
  fill_slots();
  return batch;
}

void SequenceBatcher::end(const Lane& lane) {
  lane->has_ended = true;
  const auto it = live_.find(lane->id);
  if (it != live_.end() && it->second == lane) live_.erase(it);
}

void SequenceBatcher::leave_if_over(const Lane& lane) {
  const bool is_busy = one_at_a_time_ && lane->num_running > 0;
  if (!lane->has_ended || !lane->waiting.empty() || is_busy || !lane->has_slot) return;
  for (auto& instance : instances_) {
    for (auto& slot : instance.slots) {
      if (slot == lane) slot.reset();
    }
  }
  lane->has_slot = false;
  model_.request_ended();
}

void SequenceBatcher::fill_slots() {
  while (!backlog_.empty()) {
    const Lane lane = backlog_.front();
    backlog_.pop_front();
    place(lane);
    if (lane->has_slot) continue;
    backlog_.pop_back();
    backlog_.push_front(lane);
    return;
  }
}

void SequenceBatcher::released(const SequenceTurn& turn, InferenceRequest* request) {
  {
    std::lock_guard lock(mutex_);
    BatchedSequence& lane = *turn.lane;
    --lane.num_running;
    lane.seen_ns = now_ns();
    wake_at(lane.seen_ns + max_idle_ns_);
    if (rules_.iterative) {
      request->correlation_id = lane.client_id;
      request->flags = lane.client_flags;
      end(turn.lane);
    }
    leave_if_over(turn.lane);
    fill_slots();
  }
  changed();
}

Status SequenceBatcher::reschedule(const SequenceTurn& turn, InferenceRequest* request) {
  {
    std::lock_guard lock(mutex_);
    // The idle timeout of sweep_sequence(), which may not have run yet.
    if (now_ns() - turn.lane->seen_ns >= max_idle_ns_) end(turn.lane);
    if (turn.lane->has_ended) return no_start(request->correlation_id);
    model_.statistics().pending(1);
    --turn.lane->num_running;
    turn.lane->seen_ns = now_ns();
    request->flags &= ~static_cast<uint32_t>(TRITONSERVER_REQUEST_FLAG_SEQUENCE_START);
    turn.lane->waiting.push_front(request);
    watched(*request);
  }
  changed();
  return ok();
}

// Rejects the sequence's waiting requests from a cancelled one on, and ends a sequence that was
// idle for too long. True when the sequence has ended.
bool SequenceBatcher::sweep_sequence(const Lane& lane, uint64_t now, uint64_t& next) {
  // An execution counts as idle time: a request that is rescheduled after the limit is too late.
  if (rules_.iterative && lane->num_running > 0) {
    if (now - lane->seen_ns >= max_idle_ns_) end(lane);
    if (!lane->has_ended) next = std::min(next, lane->seen_ns + max_idle_ns_);
    return false;
  }
  const auto first =
      std::find_if(lane->waiting.begin(), lane->waiting.end(),
                   [](const InferenceRequest* r) { return r->context()->is_cancelled(); });
  // A sequence without a slot is not idle: only the timeouts of its requests bound the wait.
  uint64_t due_ns = lane->deadline_ns;
  if (lane->has_slot) {
    const bool is_idle = lane->waiting.empty() && lane->num_running == 0;
    due_ns = is_idle ? lane->seen_ns + max_idle_ns_ : kNever;
  }
  if (first == lane->waiting.end() && now < due_ns) {
    next = std::min(next, due_ns);
    return false;
  }
  const Status status = first != lane->waiting.end()
                            ? cancelled("request cancelled while its sequence was queued")
                            : unavailable("timeout of the corresponding sequence has been expired");
  const auto from = first != lane->waiting.end() ? first : lane->waiting.begin();
  for (auto it = from; it != lane->waiting.end(); ++it) {
    InferenceRequest* request = *it;
    request->turn.reset();  // it may be in a planned batch, but no instance has it
    request->core_inputs.clear();
    request->core_memory.clear();
    if (rules_.iterative) {
      request->correlation_id = lane->client_id;
      request->flags = lane->client_flags;
    }
    reject(request, status);
  }
  lane->waiting.erase(from, lane->waiting.end());
  end(lane);
  return true;
}

uint64_t SequenceBatcher::sweep(uint64_t now) {
  uint64_t next = kNever;
  bool has_left = false;
  for (auto& instance : instances_) {
    for (size_t i = 0; i < instance.slots.size(); ++i) {
      const Lane lane = instance.slots[i];
      if (lane == nullptr || !sweep_sequence(lane, now, next)) continue;
      leave_if_over(lane);
      has_left = true;
    }
  }
  if (has_left) fill_slots();
  for (auto it = backlog_.begin(); it != backlog_.end();) {
    if (sweep_sequence(*it, now, next) && (*it)->waiting.empty()) {
      it = backlog_.erase(it);
      model_.request_ended();
    } else {
      ++it;
    }
  }
  if (has_left) changed();
  return next;
}

void SequenceBatcher::on_close() {
  live_.clear();
  backlog_.clear();
}

}  // namespace nereid::server
