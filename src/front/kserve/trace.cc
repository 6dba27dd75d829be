// The trace setting extension; see settings.h.
#include <charconv>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "front/bridge/model_info.h"
#include "front/kserve/json_body.h"
#include "front/kserve/routes.h"
#include "front/kserve/settings.h"

namespace nereid::front {
namespace {

// One set of values; what is not set comes from the level above.
struct TraceValues {
  std::optional<uint32_t> rate, frequency;
  std::optional<int64_t> count;
};

constexpr TraceValues kDefaults = {1000, 0, -1};

template <class T>
const std::optional<T>& first(const std::optional<T>& a, const std::optional<T>& b,
                              const std::optional<T>& c) {
  return a ? a : b ? b : c;
}

// Decimal; -1 for an unsigned value is its largest, as clients of the stock server expect.
StatusOr<int64_t> parse_number(std::string_view key, const std::string& text) {
  int64_t value = 0;
  const auto end = text.data() + text.size();
  if (text.empty() || std::from_chars(text.data(), end, value).ptr != end) {
    return invalid_argument("Unable to parse '{}', got: {}", key, text);
  }
  return value;
}

// Reads a decimal string or null (= back to the level above) into `value`.
template <class T>
Status read_value(const json::value& root, std::string_view key, std::optional<T>& value) {
  const json::value* found = member(root, key);
  if (found == nullptr) return ok();
  if (found->is_null()) {
    value.reset();
    return ok();
  }
  ASSIGN_OR_RETURN(const auto text, string_member(root, key));
  ASSIGN_OR_RETURN(const int64_t number, parse_number(key, *text));
  if (key == "trace_count" && number < -1) {
    return invalid_argument("Unable to parse 'trace_count'. Expecting value >= -1, got:{}", *text);
  }
  value = static_cast<T>(number);
  return ok();
}

class TraceSettings {
 public:
  explicit TraceSettings(TRITONSERVER_Server* server) : server_(server) {}

  // `model` "": the global values. An empty `body` only shows.
  StatusOr<std::string> update(const std::string& model, const std::string* body) {
    if (!model.empty() && !model_info(server_, model, -1).ok()) {
      return invalid_argument("Request for unknown model : {}", model);
    }
    std::lock_guard lock(mutex_);
    if (body != nullptr) {
      ASSIGN_OR_RETURN(const json::value root, parse_json_body(*body));
      if (member(root, "trace_file") != nullptr) {
        return unsupported("trace file location can not be updated through network protocol");
      }
      TraceValues next = model.empty() ? global_ : models_[model];
      RETURN_IF_ERROR(read_value(root, "trace_rate", next.rate));
      RETURN_IF_ERROR(read_value(root, "trace_count", next.count));
      RETURN_IF_ERROR(read_value(root, "log_frequency", next.frequency));
      RETURN_IF_ERROR(check_levels(root, next));
      (model.empty() ? global_ : models_[model]) = next;
    }
    const auto it = models_.find(model);
    return text(it == models_.end() || model.empty() ? TraceValues{} : it->second);
  }

 private:
  Status check_levels(const json::value& root, const TraceValues& next) const {
    const json::value* levels = member(root, "trace_level");
    if (levels == nullptr || levels->is_null()) return ok();
    if (!levels->is_array()) return wrong_member("trace_level", "an array", *levels);
    bool off = false, on = false;
    for (const json::value& level : levels->get_array()) {
      if (!level.is_string()) return wrong_member("trace_level", "strings", level);
      const std::string_view name(level.get_string());
      off = off || name == "OFF";
      on = on || name == "TIMESTAMPS" || name == "TENSORS";
    }
    if (off && levels->get_array().size() > 1) {
      return invalid_argument("Expect only one trace level 'OFF' is specified");
    }
    if (!on) return ok();
    return invalid_argument("Attempting to set invalid trace setting :{}",
                            *first(next.rate, global_.rate, kDefaults.rate) == 0
                                ? "sample rate must be non-zero"
                                : "trace file name is not given");
  }

  std::string text(const TraceValues& model) const {
    return json::serialize(json::object{
        {"trace_level", json::array{"OFF"}},
        {"trace_rate", std::to_string(*first(model.rate, global_.rate, kDefaults.rate))},
        {"trace_count", std::to_string(*first(model.count, global_.count, kDefaults.count))},
        {"log_frequency",
         std::to_string(*first(model.frequency, global_.frequency, kDefaults.frequency))},
        {"trace_file", ""},
        {"trace_mode", "triton"}});
  }

  TRITONSERVER_Server* server_;
  std::mutex mutex_;
  TraceValues global_;
  std::map<std::string, TraceValues> models_;  // of models that exist or did
};

}  // namespace

void add_trace_routes(Router& router, TRITONSERVER_Server* server) {
  auto settings = std::make_shared<TraceSettings>(server);
  const auto answer = [settings](const ExchangePtr& x, bool changes) {
    const Request& request = x->request();
    StatusOr<std::string> text =
        settings->update(std::string(request.param("m")), changes ? &request.body : nullptr);
    x->send(text.ok() ? Response{200, "application/json", {}, *std::move(text)}
                      : kserve_error(text.status()));
  };
  for (const char* path : {"/v2/trace/setting", "/v2/models/{m}/trace/setting"}) {
    router.add("GET", path, [answer](const ExchangePtr& x) { answer(x, false); });
    router.add("POST", path, [answer](const ExchangePtr& x) { answer(x, true); });
  }
}

}  // namespace nereid::front
