// Backend "tensorrt_llm_bls": preprocessing, the generating model and postprocessing, called from
// code instead of an ensemble.
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "backend/bls/bls_run.h"
#include "backend/common/backend_model.h"
#include "backend/parameters/parameters.h"
#include "base/contained.h"
#include "base/log_limit.h"
#include "config/option.h"

namespace nereid::backend {
namespace {

constexpr auto kCancelPeriod = std::chrono::milliseconds(50);

class BlsModel {
 public:
  static constexpr uint64_t kQuickBytes = 64 << 10;  // inputs are only passed on

  static StatusOr<std::unique_ptr<BlsModel>> create(TRITONBACKEND_Model* model) {
    auto m = std::make_unique<BlsModel>();
    ASSIGN_OR_RETURN(const ModelSettings config, ModelSettings::read(model));
    if (const char* key = "multimodal_encoders_name"; config.parameter(key)) {
      return unsupported("model '{}': parameter '{}' is not supported", config.name, key);
    }
    BlsSettings& s = m->settings_;
    RETURN_IF_ERROR(take(TRITONBACKEND_ModelServer(model, &s.server)));
    s.decoupled = config.decoupled;
    s.llm_model = config.parameter("tensorrt_llm_model_name").value_or(s.llm_model);
    s.draft_model = config.parameter("tensorrt_llm_draft_model_name").value_or("");
    ASSIGN_OR_RETURN(s.accumulate_tokens, config.boolean("accumulate_tokens", false));
    s.input_rank = [self = m.get()](const std::string& model, const std::string& name) {
      return self->input_rank(model, name);
    };
    s.excludes_prompt = [self = m.get()](const std::string& model) {
      std::lock_guard lock(self->callees_mutex_);
      const Callee* callee = self->callee(model);
      return callee != nullptr && callee->excludes_prompt;
    };
    m->watch_ = std::thread([self = m.get()] {
      run_contained("watch for cancelled requests", [self] { self->watch(); });
    });
    return m;
  }

  ~BlsModel() {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wake_.notify_all();
    if (watch_.joinable()) watch_.join();
  }

  void execute(std::unique_ptr<Request> request) {
    const uint64_t number = ++num_runs_;
    auto run = std::make_shared<BlsRun>(settings_, std::move(request),
                                        fmt::format("bls-{}", number), [this, number] {
                                          std::lock_guard lock(mutex_);
                                          runs_.erase(number);
                                        });
    {
      std::lock_guard lock(mutex_);
      runs_[number] = run;
    }
    run->start();
  }

 private:
  // Facts from the configuration of a called model.
  struct Callee {
    std::map<std::string, size_t, std::less<>> ranks;  // of inputs
    bool excludes_prompt = false;
  };

  void watch() {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, kCancelPeriod, [&] { return closing_; })) {
      std::vector<std::shared_ptr<BlsRun>> runs;
      for (const auto& [_, run] : runs_) runs.push_back(run);
      lock.unlock();
      for (const auto& run : runs) run->check_cancelled();
      runs.clear();
      lock.lock();
    }
  }

  // Asked of the server once: the other models may load after this one. Null: it cannot be asked
  // now. Under `callees_mutex_`.
  const Callee* callee(const std::string& model) {
    Callee& known = callees_[model];
    if (!known.ranks.empty()) return &known;
    if (Status s = read_callee(model, known); !s.ok()) {
      static LogLimit log;
      log.write(log_warning, "model '{}': {}", model, message(s));
      return nullptr;
    }
    return &known;
  }

  std::optional<size_t> input_rank(const std::string& model, const std::string& name) {
    std::lock_guard lock(callees_mutex_);
    const Callee* known = callee(model);
    if (known == nullptr) return 0;  // the call itself will say what is wrong
    const auto it = known->ranks.find(name);
    return it == known->ranks.end() ? std::nullopt : std::optional(it->second);
  }

  Status read_callee(const std::string& model, Callee& to) {
    TRITONSERVER_Message* config = nullptr;
    RETURN_IF_ERROR(
        take(TRITONSERVER_ServerModelConfig(settings_.server, model.c_str(), -1, 1, &config)));
    const char* text = nullptr;
    size_t size = 0;
    Status status = take(TRITONSERVER_MessageSerializeToJson(config, &text, &size));
    const std::string copy = status.ok() ? std::string(text, size) : "";
    TRITONSERVER_ErrorDelete(TRITONSERVER_MessageDelete(config));
    RETURN_IF_ERROR(status);
    return guarded([&]() -> Status {
      ASSIGN_OR_RETURN(const json::value root, parse_json(copy));
      const bool has_batch = root.as_object().at("max_batch_size").to_number<int64_t>() > 0;
      boost::system::error_code error;
      const json::value* excludes =
          root.find_pointer("/parameters/exclude_input_in_output/string_value", error);
      if (excludes != nullptr && excludes->is_string())
        to.excludes_prompt = config::parse_bool(excludes->get_string()).value_or(false);
      for (const auto& input : root.as_object().at("input").as_array()) {
        const size_t num_dims = input.as_object().at("dims").as_array().size();
        to.ranks.emplace(input.as_object().at("name").as_string(), num_dims + (has_batch ? 1 : 0));
      }
      return ok();
    });
  }

  BlsSettings settings_;
  std::atomic<uint64_t> num_runs_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<uint64_t, std::shared_ptr<BlsRun>> runs_;
  bool closing_ = false;
  std::thread watch_;
  std::mutex callees_mutex_;
  std::map<std::string, Callee> callees_;  // by model
};

}  // namespace
}  // namespace nereid::backend

NEREID_DEFINE_BACKEND(nereid::backend::BlsModel)
