// Repository routes; see repository.h.
#include "front/kserve/repository.h"

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "front/bridge/model_info.h"
#include "front/kserve/json_body.h"
#include "front/kserve/routes.h"

namespace nereid::front {
namespace {

StatusOr<std::string> index(TRITONSERVER_Server* server, const Request& request) {
  uint32_t flags = 0;
  if (!request.body.empty()) {
    ASSIGN_OR_RETURN(const json::value body, parse_json_body(request.body));
    ASSIGN_OR_RETURN(const auto ready, bool_member(body, "ready"));
    if (ready.value_or(false)) flags = TRITONSERVER_INDEX_FLAG_READY;
  }
  TRITONSERVER_Message* message = nullptr;
  RETURN_IF_ERROR(take_error(TRITONSERVER_ServerModelIndex(server, flags, &message)));
  return take_message(message);
}

// Loads or unloads side by side; more of them wait. Threads are there while there is work.
class ControlQueue : public std::enable_shared_from_this<ControlQueue> {
 public:
  // Throws when no thread can be started.
  void push(std::function<void()> job) {
    std::lock_guard lock(mutex_);
    if (num_threads_ < kMostThreads) {
      std::thread([self = shared_from_this()] { self->run(); }).detach();
      ++num_threads_;
    }
    jobs_.push_back(std::move(job));
  }

 private:
  static constexpr int kMostThreads = 16;

  void run() {
    std::unique_lock lock(mutex_);
    while (!jobs_.empty()) {
      auto job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      job = nullptr;
      lock.lock();
    }
    --num_threads_;
  }

  std::mutex mutex_;
  std::deque<std::function<void()>> jobs_;
  int num_threads_ = 0;
};

// Runs `work` on a thread of `queue` and sends what it says.
void answer_later(ControlQueue& queue, const ExchangePtr& exchange, std::function<Status()> work) {
  queue.push([exchange, work = std::move(work)]() mutable {
    const Status status = work();
    work = nullptr;
    exchange->post([exchange, status] {
      exchange->send(status.ok() ? Response{200, "application/json", {}, ""}
                                 : kserve_error(status));
    });
  });
}

void start_load(TRITONSERVER_Server* server, ControlQueue& queue, const ExchangePtr& exchange,
                bool allow_code) {
  auto parameters = std::make_shared<LoadParameters>();
  const Status read = read_load_parameters(exchange->request().body, allow_code, *parameters);
  if (!read.ok()) {
    exchange->send(kserve_error(read));
    return;
  }
  answer_later(queue, exchange,
               [server, parameters, model = std::string(exchange->request().param("m"))] {
                 return parameters->load(server, model);
               });
}

void start_unload(TRITONSERVER_Server* server, ControlQueue& queue, const ExchangePtr& exchange) {
  bool dependents = false;
  // As the stock server does, a body that says nothing useful unloads the model alone.
  if (const auto body = parse_json(exchange->request().body); body.ok()) {
    const json::value* parameters = member(*body, "parameters");
    const json::value* flag =
        parameters == nullptr ? nullptr : member(*parameters, "unload_dependents");
    dependents = flag != nullptr && flag->is_bool() && flag->get_bool();
  }
  answer_later(
      queue, exchange, [server, dependents, model = std::string(exchange->request().param("m"))] {
        return take_error(dependents
                              ? TRITONSERVER_ServerUnloadModelAndDependents(server, model.c_str())
                              : TRITONSERVER_ServerUnloadModel(server, model.c_str()));
      });
}

}  // namespace

Status read_load_parameters(const std::string& body, bool allow_code, LoadParameters& out) {
  if (body.empty()) return ok();
  ASSIGN_OR_RETURN(const json::value root, parse_json_body(body));
  const json::value* parameters = member(root, "parameters");
  if (parameters == nullptr) return ok();
  if (!parameters->is_object()) return wrong_member("parameters", "an object", *parameters);
  for (const auto& entry : parameters->get_object()) {
    const std::string key(entry.key());
    if (!entry.value().is_string()) return wrong_member(key, "a string", entry.value());
    const std::string_view text(entry.value().get_string());
    if (key == "config") {
      out.add_config(std::string(text));
    } else if (key.starts_with("file:")) {
      ASSIGN_OR_RETURN(std::string content, decode_base64(text));
      RETURN_IF_ERROR(out.add_file(key, std::move(content), allow_code));
    } else {
      return invalid_argument("unknown load parameter '{}': 'config' and 'file:<path>' are allowed",
                              key);
    }
  }
  return ok();
}

void LoadParameters::add_config(const std::string& json) {
  owned_.emplace_back(
      TRITONSERVER_ParameterNew("config", TRITONSERVER_PARAMETER_STRING, json.c_str()));
}

Status LoadParameters::add_file(const std::string& key, std::string content, bool allow_code) {
  const bool is_code = key.ends_with(".so") || key.find(".so.") != std::string::npos ||
                       content.starts_with(
                           "\x7f"
                           "ELF");
  if (is_code && !allow_code) {
    return unsupported(
        "load parameter '{}' is a shared object, which a load may bring only to a server started "
        "with '--allow-code-upload=true'",
        key);
  }
  files_.push_back(std::move(content));
  owned_.emplace_back(
      TRITONSERVER_ParameterBytesNew(key.c_str(), files_.back().data(), files_.back().size()));
  return ok();
}

Status LoadParameters::load(TRITONSERVER_Server* server, const std::string& model) const {
  std::vector<const TRITONSERVER_Parameter*> parameters;
  for (const auto& p : owned_) parameters.push_back(p.get());
  return take_error(TRITONSERVER_ServerLoadModelWithParameters(
      server, model.c_str(), parameters.data(), parameters.size()));
}

void add_repository_routes(Router& router, TRITONSERVER_Server* server, bool allow_code_upload) {
  for (const char* path : {"/v2/repository/index", "/v2/repository/{repo}/index"}) {
    router.add("POST", path, [server](const ExchangePtr& x) {
      StatusOr<std::string> text = index(server, x->request());
      x->send(text.ok() ? Response{200, "application/json", {}, *std::move(text)}
                        : kserve_error(text.status()));
    });
  }
  // A load may take minutes; an unload need not wait for it.
  const auto loads = std::make_shared<ControlQueue>(), unloads = std::make_shared<ControlQueue>();
  router.add("POST", "/v2/repository/models/{m}/load",
             [=](const ExchangePtr& x) { start_load(server, *loads, x, allow_code_upload); });
  router.add("POST", "/v2/repository/models/{m}/unload",
             [=](const ExchangePtr& x) { start_unload(server, *unloads, x); });
  for (const char* path :
       {"/v2/repository/{repo}/models/{m}/load", "/v2/repository/{repo}/models/{m}/unload"}) {
    router.add("POST", path, [](const ExchangePtr& x) {
      x->send(kserve_error(501, "'repository_name' specification is not supported"));
    });
  }
}

}  // namespace nereid::front
