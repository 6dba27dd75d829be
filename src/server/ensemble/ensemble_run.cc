// Execution of an ensemble request.
#include "server/ensemble/ensemble_run.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/copy_bytes.h"
#include "server/memory/host_allocator.h"

namespace nereid::server {
namespace {

// Forked branches of one request that run steps at the same time.
constexpr size_t kDefaultInflight = 16;

// Nesting of event handling on this thread: a thread that advances an ensemble
// must not wait for one.
thread_local int event_depth = 0;

}  // namespace

// The request of a step; over when it is both released and final.
struct EnsembleRun::StepCall {
  std::shared_ptr<EnsembleRun> run;
  std::unique_ptr<InferenceRequest> request;
  // Owners of the memory that the request refers to.
  std::vector<std::shared_ptr<const FlowTensor>> inputs;
  bool is_released = false, is_final = false;

  // Runs as an event.
  void maybe_over(const std::shared_ptr<StepCall>& self) {
    if (!is_released || !is_final || request == nullptr) return;
    run->running_.erase(request.get());
    --run->num_open_;
    request.reset();
    inputs.clear();
    self->run.reset();
  }
};

EnsembleRun::EnsembleRun(const EnsembleModel& model, InferenceRequest* request,
                         std::shared_ptr<ResponseContext> context)
    : model_(model),
      request_(request),
      context_(std::move(context)),
      room_limit_(model.config().max_inflight_requests) {}

template <class Event>
void EnsembleRun::post(Event event) {
  events_.post([event = std::move(event)] {
    ++event_depth;
    event();
    --event_depth;
  });
}

template <class Work>
void EnsembleRun::contain(Work work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    fail(unavailable("the server has no memory left for this request"));
  } catch (const std::exception& e) {
    fail(internal_error("{}", e.what()));
  }
}

void EnsembleRun::enter_room() {
  std::lock_guard lock(room_mutex_);
  ++num_inside_;
}

void EnsembleRun::wait_for_room(const EnsembleModel::Step& step) {
  // Neither a thread that advances an ensemble nor one that a later step may need may wait.
  const auto& steps = model_.plan().steps;
  const auto same = [&](const auto& s) { return s.model == step.model; };
  if (event_depth > 0 || std::count_if(steps.begin(), steps.end(), same) > 1) return;
  std::unique_lock lock(room_mutex_);
  room_changed_.wait(lock, [&] { return is_room_open_ || num_inside_ < room_limit_; });
}

void EnsembleRun::leave_room(Branch& branch) {
  if (!std::exchange(branch.inside, false)) return;
  {
    std::lock_guard lock(room_mutex_);
    --num_inside_;
  }
  room_changed_.notify_all();
}

void EnsembleRun::open_room() {
  {
    std::lock_guard lock(room_mutex_);
    is_room_open_ = true;
  }
  room_changed_.notify_all();
}

void EnsembleRun::start() {
  const auto& plan = model_.plan();
  root_ = std::make_shared<Branch>();
  root_->tensors.resize(plan.tensors.size());
  root_->done.resize(plan.steps.size());
  root_->started.resize(plan.steps.size());
  skip_unwanted_steps();
  for (const InputTensor& input : request_->inputs) {
    root_->tensors[input.spec - model_.config().inputs.data()] =
        std::make_shared<FlowTensor>(input.datatype, input.backend_shape, input.buffers);
  }
  auto self = shared_from_this();
  context_->cancel_state().on_cancel([weak = weak_from_this()] {
    auto run = weak.lock();
    if (run == nullptr) return;
    run->post([run] {
      run->cancel_steps();
      run->finish_if_over();
    });
  });
  post([self] {
    self->contain([&] { self->advance(self->root_); });
    self->finish_if_over();
  });
}

// Marks steps as done whose outputs no requested output depends on, directly or through others.
void EnsembleRun::skip_unwanted_steps() {
  const auto& outputs = model_.config().outputs;
  if (request_->wanted_outputs.size() == outputs.size()) return;
  const auto& plan = model_.plan();
  std::vector<bool> is_wanted(plan.steps.size());
  std::vector<size_t> tensors;  // needed tensors whose writers are not looked at yet
  for (const TensorSpec* wanted : request_->wanted_outputs) {
    tensors.push_back(plan.outputs[static_cast<size_t>(wanted - outputs.data())]);
  }
  while (!tensors.empty()) {
    const int producer = plan.producer[tensors.back()];
    tensors.pop_back();
    if (producer < 0 || is_wanted[static_cast<size_t>(producer)]) continue;
    is_wanted[static_cast<size_t>(producer)] = true;
    for (const auto& link : plan.steps[static_cast<size_t>(producer)].inputs) {
      tensors.push_back(link.tensor);
    }
  }
  for (size_t i = 0; i < is_wanted.size(); ++i) {
    root_->started[i] = root_->done[i] = !is_wanted[i];
  }
}

bool EnsembleRun::settled(const Branch& branch, const EnsembleModel::Step& step) const {
  const auto& producer = model_.plan().producer;
  return std::all_of(step.inputs.begin(), step.inputs.end(), [&](const auto& link) {
    const int from = producer[link.tensor];
    return branch.tensors[link.tensor] != nullptr || from < 0 || branch.done[from];
  });
}

void EnsembleRun::advance(const BranchPtr& branch) {
  const auto& steps = model_.plan().steps;
  int fork = -1;
  for (bool progress = true; progress && !failed_;) {
    progress = false;
    fork = -1;
    for (size_t i = 0; i < steps.size() && !failed_; ++i) {
      if (branch->started[i] || !settled(*branch, steps[i])) continue;
      const bool has_input =
          std::any_of(steps[i].inputs.begin(), steps[i].inputs.end(),
                      [&](const auto& link) { return branch->tensors[link.tensor] != nullptr; });
      if (has_input && steps[i].model->decoupled()) {
        fork = static_cast<int>(i);
      } else if (has_input) {
        launch(branch, i);
      } else {
        // An input is absent: the step is skipped.
        branch->started[i] = branch->done[i] = progress = true;
      }
    }
  }
  if (failed_ || branch->num_running > 0) return;
  // A decoupled step runs alone in its branch, so that a fork copies a quiet state.
  if (fork >= 0) {
    branch->fork = &steps[fork];
    launch(branch, fork);
  } else {
    complete(*branch);
    flush_all();
  }
}

void EnsembleRun::complete(Branch& branch) {
  branch.complete = true;
  leave_room(branch);
  if (!branch.counted) return;
  branch.counted = false;
  --num_active_;
  start_waiting();
}

void EnsembleRun::add_inputs(const Branch& branch, const EnsembleModel::Step& step,
                             StepCall& call) const {
  const ModelConfig& config = step.model->config();
  const bool prepend = model_.config().max_batch_size == 0 && config.max_batch_size > 0;
  const bool strip = model_.config().max_batch_size > 0 && config.max_batch_size == 0;
  InferenceRequest& request = *call.request;
  request.inputs.reserve(step.inputs.size());
  call.inputs.reserve(step.inputs.size());
  for (const auto& link : step.inputs) {
    const auto& tensor = branch.tensors[link.tensor];
    if (tensor == nullptr) continue;
    call.inputs.push_back(tensor);
    InputTensor& input = request.inputs.emplace_back();
    input.name = link.name;
    input.spec = link.spec;
    input.datatype = tensor->datatype;
    input.shape = tensor->shape;
    input.buffers = tensor->buffers;
    if (link.spec->is_shape_tensor) continue;
    if (prepend) input.shape.insert(input.shape.begin(), 1);
    if (strip && input.shape.size() == link.spec->dims.size() + 1 && input.shape[0] == 1) {
      input.shape.erase(input.shape.begin());
    }
  }
}

namespace {

// Copies the client's parameters and options to a step's request.
void copy_asked(const InferenceRequest& from, InferenceRequest& to) {
  to.id = from.id;
  to.flags = from.flags;
  to.correlation_id = from.correlation_id;
  to.set_priority(from.priority);
  to.timeout_us = from.timeout_us;
  to.tenant = from.tenant;
  to.parameters = from.parameters;
}

}  // namespace

void EnsembleRun::launch(const BranchPtr& branch, size_t index) {
  if (context_->is_cancelled()) return fail(cancelled("request was cancelled"));
  const EnsembleModel::Step& step = model_.plan().steps[index];
  branch->started[index] = true;
  auto call = std::make_shared<StepCall>();
  call->run = shared_from_this();
  call->request = std::make_unique<InferenceRequest>(step.model);
  InferenceRequest& request = *call->request;
  copy_asked(*request_, request);
  request.stage_sums = &stage_sums_;
  request.allocator = host_allocator();
  if (request_->trace != nullptr) {
    request.trace = std::make_shared<TraceHold>(request_->trace->get()->spawn_child());
  }
  request.known_outputs = &step.wanted;
  add_inputs(*branch, step, *call);
  const bool is_bounded = room_limit_ > 0 && branch == root_ && step.model->decoupled();
  request.deliver = [call, branch, index, is_bounded](std::unique_ptr<InferenceResponse> response,
                                                      uint32_t flags) {
    auto run = call->run;
    const bool is_final = (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0;
    std::shared_ptr<InferenceResponse> shared(std::move(response));
    const bool enters = is_bounded && !is_final && shared != nullptr;
    if (enters) run->enter_room();
    run->post([run, call, branch, index, shared, is_final, enters] {
      call->is_final = call->is_final || is_final;
      run->contain([&] { run->on_response(branch, index, shared, is_final, enters); });
      call->maybe_over(call);
      run->finish_if_over();
    });
    // Until FINAL the step is open, and so is the ensemble's request with all that it refers to.
    if (enters) run->wait_for_room(run->model_.plan().steps[index]);
  };
  // The release callback owns this reference; if it will not come, it is freed below.
  auto* userp = new std::shared_ptr<StepCall>(call);
  request.release_userp = userp;
  request.release_fn = [](TRITONSERVER_InferenceRequest*, const uint32_t, void* p) {
    std::unique_ptr<std::shared_ptr<StepCall>> call(static_cast<std::shared_ptr<StepCall>*>(p));
    auto run = (*call)->run;
    run->post([run, call = *call] {
      call->is_released = true;
      call->maybe_over(call);
      run->finish_if_over();
    });
  };
  ++branch->num_running;
  ++num_open_;
  running_.insert(&request);
  Status status = step.model->enqueue(&request);
  if (status.ok()) return;
  delete userp;
  --branch->num_running;
  --num_open_;
  running_.erase(&request);
  call->request.reset();
  call->run.reset();
  fail(status);
}

void EnsembleRun::on_response(const BranchPtr& branch, size_t index,
                              std::shared_ptr<InferenceResponse> response, bool is_final,
                              bool is_inside) {
  if (is_final) --branch->num_running;
  if (failed_) return;
  if (response != nullptr && response->error != nullptr) {
    return fail(to_status(response->error.get()));
  }
  const EnsembleModel::Step& step = model_.plan().steps[index];
  if (branch->fork == &step) {
    branch->fork_final = is_final;
    if (response != nullptr) {
      auto child = std::make_shared<Branch>();
      // The last response takes the branch's tensors: nothing reads them afterwards.
      child->tensors = is_final ? std::move(branch->tensors) : branch->tensors;
      child->done = branch->done;
      child->started = branch->started;
      child->done[index] = true;
      child->inside = is_inside;
      store_outputs(*child, step, response);
      branch->children.push_back(child);
      waiting_.push_back(std::move(child));
    }
    if (branch->counted) {
      branch->counted = false;
      --num_active_;
    }
    leave_room(*branch);
    start_waiting();
    return flush_all();
  }
  if (!is_final) {
    return fail(internal_error("model '{}' sent several responses but is not decoupled",
                               step.model->config().name));
  }
  if (response != nullptr) store_outputs(*branch, step, response);
  branch->done[index] = true;
  advance(branch);
}

void EnsembleRun::store_outputs(Branch& branch, const EnsembleModel::Step& step,
                                const std::shared_ptr<InferenceResponse>& response) const {
  const ModelConfig& config = step.model->config();
  const bool strip = model_.config().max_batch_size == 0 && config.max_batch_size > 0;
  const bool prepend = model_.config().max_batch_size > 0 && config.max_batch_size == 0;
  for (const auto& output : response->outputs) {
    const auto link = std::find_if(step.outputs.begin(), step.outputs.end(),
                                   [&](const auto& l) { return l.name == output.name; });
    if (link == step.outputs.end()) continue;
    const InputBuffers buffers = {
        {output.buffer, output.byte_size, output.memory_type, output.memory_type_id}};
    auto tensor = std::make_shared<FlowTensor>(output.datatype, output.shape, buffers, response);
    if (prepend) tensor->shape.insert(tensor->shape.begin(), 1);
    if (strip && !tensor->shape.empty() && tensor->shape[0] == 1) {
      tensor->shape.erase(tensor->shape.begin());
    }
    branch.tensors[link->tensor] = std::move(tensor);
  }
}

void EnsembleRun::start_waiting() {
  const size_t limit = model_.config().max_inflight_requests > 0
                           ? model_.config().max_inflight_requests
                           : kDefaultInflight;
  while (!failed_ && num_active_ < limit && !waiting_.empty()) {
    BranchPtr branch = std::move(waiting_.front());
    waiting_.pop_front();
    branch->counted = true;
    ++num_active_;
    advance(branch);
  }
}

bool EnsembleRun::flush(Branch& branch, bool is_last) {
  if (branch.fork == nullptr) {
    if (!branch.complete) return false;
    emit(branch, is_last);
    return true;
  }
  while (!branch.children.empty() && !failed_) {
    const BranchPtr child = branch.children.front();
    const bool last = is_last && branch.fork_final && branch.children.size() == 1;
    if (!flush(*child, last)) return false;
    branch.children.pop_front();
  }
  return branch.fork_final;
}

// Each request counts as one execution, with the sums of its steps' stages.
void EnsembleRun::report_success() {
  const RequestTimes times = stage_sums_.as_times(request_->start_ns);
  request_->model->statistics().success(request_->batch_size, times);
  request_->model->statistics().execution(request_->batch_size, times);
  if (request_->stage_sums != nullptr) request_->stage_sums->add(times);
}

void EnsembleRun::flush_all() {
  if (failed_ || final_sent_) return;
  if (!flush(*root_, true) || failed_ || final_sent_) return;
  final_sent_ = true;  // FINAL alone, since no response was left to have it
  report_success();
  (void)context_->send(nullptr, TRITONSERVER_RESPONSE_COMPLETE_FINAL);
}

void EnsembleRun::emit(Branch& branch, bool is_final) {
  auto response = std::make_unique<InferenceResponse>(context_);
  const TensorSpec* const outputs = model_.config().outputs.data();
  for (const TensorSpec* wanted : request_->wanted_outputs) {
    const FlowTensor* tensor = branch.tensors[model_.plan().outputs[wanted - outputs]].get();
    if (tensor == nullptr) continue;
    OutputTensor& output = response->add_output(*wanted, tensor->datatype, tensor->shape);
    size_t size = 0;
    for (const auto& b : tensor->buffers) size += b.byte_size;
    auto buffer = output.allocate_here(size);
    if (!buffer.ok()) return fail(buffer.status());
    char* to = static_cast<char*>(*buffer);
    for (const auto& b : tensor->buffers) {
      copy_bytes(to, b.base, b.byte_size);
      to += b.byte_size;
    }
  }
  if (response->outputs.empty() && !request_->wanted_outputs.empty()) {
    return fail(
        invalid_argument("{}unexpected deadlock, at least one output is not set while no "
                         "more ensemble steps can be made",
                         request_->log_id()));
  }
  response->parameters.reserve(3);
  if (const auto* text = std::get_if<std::string>(&request_->correlation_id)) {
    response->set_parameter({"sequence_id", *text});
  } else {
    response->set_parameter(
        {"sequence_id", static_cast<int64_t>(std::get<uint64_t>(request_->correlation_id))});
  }
  response->set_parameter(
      {"sequence_start", (request_->flags & TRITONSERVER_REQUEST_FLAG_SEQUENCE_START) != 0});
  response->set_parameter(
      {"sequence_end", (request_->flags & TRITONSERVER_REQUEST_FLAG_SEQUENCE_END) != 0});
  // Kept until the client has its response.
  const auto sent = std::exchange(branch.tensors, {});
  if (is_final) {
    final_sent_ = true;
    report_success();
  }
  (void)InferenceResponse::send(std::move(response),
                                is_final ? TRITONSERVER_RESPONSE_COMPLETE_FINAL : 0, ok());
}

void EnsembleRun::cancel_steps() {
  open_room();  // wakes a producer that waits, so that it stops
  for (InferenceRequest* request : running_) request->cancel();
  if (!waiting_.empty()) fail(cancelled("request was cancelled"));
}

void EnsembleRun::fail(const Status& status) {
  if (failed_ || final_sent_) return;
  failed_ = final_sent_ = true;
  open_room();
  waiting_.clear();
  const auto reason = absl::IsCancelled(status) ? FailureReason::kCanceled : FailureReason::kOther;
  request_->model->statistics().failure(reason, request_->start_ns);
  context_->fail(Status(
      status.code(), fmt::format("in ensemble '{}', {}", model_.config().name, message(status))));
  cancel_steps();
}

void EnsembleRun::finish_if_over() {
  if (!final_sent_ || num_open_ > 0 || released_) return;
  released_ = true;
  open_room();
  root_.reset();
  auto context = std::move(context_);
  request_->release(TRITONSERVER_REQUEST_RELEASE_ALL);
}

}  // namespace nereid::server
