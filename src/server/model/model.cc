// Admission and draining of a model version.
#include "server/model/model.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "server/log_switches.h"

namespace nereid::server {
namespace {

constexpr auto kResponderGrace = std::chrono::milliseconds(500);

json::array describe(const std::vector<TensorSpec>& specs, const ModelConfig& config) {
  json::array out;
  for (const auto& spec : specs) {
    json::array shape;
    if (config.max_batch_size > 0 && !spec.is_shape_tensor) shape.push_back(-1);
    shape.insert(shape.end(), spec.dims.begin(), spec.dims.end());
    out.push_back(json::object{{"name", spec.name},
                               {"datatype", TRITONSERVER_DataTypeString(spec.datatype)},
                               {"shape", std::move(shape)}});
  }
  return out;
}

}  // namespace

Model::Model(Server* server, ModelConfig config, int64_t version, std::filesystem::path dir,
             std::unique_ptr<ModelStatistics> statistics)
    : server_(server), version_(version), dir_(std::move(dir)), statistics_(std::move(statistics)) {
  set_config(std::move(config));
}

void Model::set_config(ModelConfig config) { config_ = &configs_.emplace_back(std::move(config)); }

Status Model::read_class_names() {
  constexpr size_t kMaxBytes = size_t{64} << 20;
  ClassNames names;
  for (const auto& output : config().outputs) {
    if (output.label_file.empty()) continue;
    // A configuration must not read files outside the model's folder: its author may
    // have no other rights.
    const std::filesystem::path name = std::filesystem::path(output.label_file).lexically_normal();
    if (name.is_absolute() || *name.begin() == "..") {
      return invalid_argument("model '{}': label_filename '{}' must be below the model's folder {}",
                              config().name, output.label_file, dir_.string());
    }
    auto text = read_file(dir_ / name, kMaxBytes);
    if (!text.ok()) return internal_error("unable to open label file: {}", message(text.status()));
    auto& list = names[output.name];
    for (size_t begin = 0; begin < text->size();) {
      const size_t end = std::min(text->find('\n', begin), text->size());
      list.push_back(text->substr(begin, end - begin));
      begin = end + 1;
    }
  }
  set_class_names(std::move(names));
  return ok();
}

void Model::set_class_names(ClassNames names) {
  if (!names.empty()) class_names_ = std::make_shared<const ClassNames>(std::move(names));
}

const Model::MetadataText& Model::metadata_text() {
  std::call_once(metadata_once_, [this] {
    const std::string name = json::serialize(json::string(config().name));
    const json::object members{
        {"platform", config().platform.empty() ? config().backend : config().platform},
        {"inputs", describe(config().inputs, config())},
        {"outputs", describe(config().outputs, config())}};
    metadata_text_.before_versions = "{\"name\":" + name + ",\"versions\":[";
    metadata_text_.after_versions = "]," + json::serialize(members).substr(1);
  });
  return metadata_text_;
}

const std::vector<const TensorSpec*>& Model::sorted_outputs() {
  std::call_once(outputs_once_, [this] {
    for (const auto& output : config().outputs) sorted_outputs_.push_back(&output);
    std::sort(sorted_outputs_.begin(), sorted_outputs_.end(), by_name);
  });
  return sorted_outputs_;
}

Status Model::enqueue(InferenceRequest* request) {
  RETURN_IF_ERROR(request->validate());
  {
    std::unique_lock lock(mutex_);
    bool is_welcome = !is_closed_;
    if (is_closed_) {
      lock.unlock();
      is_welcome = continues(*request);
      lock.lock();
    }
    // A stopped model has no running sequences.
    if (!is_welcome || (is_closed_ && num_running_ == 0)) {
      return unavailable(
          "{}Server is stopping, scheduler for model has stopped accepting new inference requests",
          request->log_id());
    }
    ++num_running_;
  }
  num_responders_.fetch_add(1);
  const auto context = request->arm();
  if (request->trace != nullptr) {
    InferenceTrace& trace = *request->trace->get();
    trace.model_name = config().name;
    trace.model_version = version_;
    trace.request_id = request->id;
    trace.report(TRITONSERVER_TRACE_REQUEST_START, request->start_ns);
  }
  Status status;
  try {
    status = accept(request, context);
  } catch (const std::exception& e) {  // before the request was taken: nothing throws afterwards
    status = internal_error("{}{}", request->log_id(), e.what());
  }
  if (!status.ok()) {
    context->armed = false;
    request->disown();
    context->trace.reset();
    responder_gone();
    request_ended();
  }
  return status;
}

void Model::hold() {
  std::lock_guard lock(mutex_);
  ++num_running_;
}

bool Model::hold_open() {
  std::lock_guard lock(mutex_);
  if (!is_closed_) ++num_running_;
  return !is_closed_;
}

StatusOr<std::string> Model::view(uint32_t) {
  return unsupported("model '{}' has no batch of sequences to watch", config().name);
}

void Model::request_ended() {
  std::lock_guard lock(mutex_);
  if (--num_running_ == 0) idle_.notify_all();
}

int64_t Model::num_running() {
  std::lock_guard lock(mutex_);
  return num_running_;
}

void Model::close() {
  std::lock_guard lock(mutex_);
  is_closed_ = true;
}

bool Model::is_closed() {
  std::lock_guard lock(mutex_);
  return is_closed_;
}

bool Model::drain(Time deadline) {
  std::unique_lock lock(mutex_);
  is_closed_ = true;
  if (idle_.wait_until(lock, deadline, [&] { return num_running_ == 0; })) {
    lock.unlock();
    wait_for_responders(std::min(deadline, now() + kResponderGrace));
    return true;
  }
  log_error("Model '{}' (version {}) has {} in-flight inferences", config().name, version_,
            num_running_);
  return false;
}

// Waits for threads that have sent FINAL and may be about to delete their response factory. A
// factory that is never deleted must not hold up the stop: the Python backend of release 24.10
// may leak some when execute() raises (it reads `is_response_factory_deleted` of a shared record
// that nothing has set).
void Model::wait_for_responders(Time deadline) {
  while (num_responders_.load() > 0) {
    if (now() >= deadline) {
      log_warn(
          "Model '{}' (version {}): {} finished requests have response factories that were "
          "not deleted",
          config().name, version_, num_responders_.load());
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Model::take_down() {
  unload();
  if (std::exchange(is_down_, true) || is_log_terse()) return;
  log_info("successfully unloaded '{}' version {}", config().name, version_);
}

}  // namespace nereid::server
