#include "front/trace/triton_trace.h"

#include <fmt/ranges.h>

#include <map>
#include <mutex>
#include <span>
#include <string>

#include "base/json.h"
#include "front/trace/core_trace.h"
#include "front/trace/tensor_text.h"

namespace nereid::front {
namespace {

std::string json_string(std::string_view text) { return json::serialize(json::string(text)); }

std::string timestamp_record(uint64_t id, std::string_view name, uint64_t ns) {
  return fmt::format(R"({{"id":{},"timestamps":[{{"name":{},"ns":{}}}]}})", id, json_string(name),
                     ns);
}

class TritonTrace final : public CoreTrace {
 public:
  explicit TritonTrace(std::shared_ptr<TraceSetting> setting)
      : CoreTrace(setting->values().level), setting_(std::move(setting)) {}

  // A request refused by the core leaves no records.
  ~TritonTrace() override {
    std::string all;
    for (const auto& [id, records] : records_) {
      if (!all.empty()) all += ',';
      all += records;
    }
    setting_->write(dropped() ? "" : all);
  }

  void report(std::string_view name, uint64_t ns) override {
    if ((setting_->values().level & TRITONSERVER_TRACE_LEVEL_TIMESTAMPS) == 0) return;
    add(root_id(), timestamp_record(root_id(), name, ns));
  }

 protected:
  void on_activity(const CoreActivity& a) override {
    std::string record;
    if (a.activity == TRITONSERVER_TRACE_REQUEST_START) {
      const TracedRequest request = traced_request(a.trace);
      record = fmt::format(R"({{"id":{},"model_name":{},"model_version":{})", a.id,
                           json_string(request.model), request.version);
      if (!request.request_id.empty())
        record += ",\"request_id\":" + json_string(request.request_id);
      if (request.parent_id != 0) record += fmt::format(R"(,"parent_id":{})", request.parent_id);
      record += "},";
    }
    add(a.id, record + timestamp_record(a.id, a.name, a.ns));
  }

  void on_tensor(const CoreActivity& a, const TensorView& tensor) override {
    const std::span shape(tensor.shape, tensor.num_dims);
    add(a.id,
        fmt::format(R"({{"id":{},"activity":"{}","tensor":{{"name":{},"data":{},"shape":"{}",)"
                    R"("dtype":"{}"}}}})",
                    a.id, a.name, json_string(tensor.name),
                    json_string(tensor_text(tensor.type, tensor.base, tensor.byte_size)),
                    fmt::join(shape, ","), TRITONSERVER_DataTypeString(tensor.type)));
  }

 private:
  void add(uint64_t id, const std::string& record) {
    std::lock_guard lock(mutex_);
    std::string& records = records_[id];
    if (!records.empty()) records += ',';
    records += record;
  }

  const std::shared_ptr<TraceSetting> setting_;
  std::mutex mutex_;
  std::map<uint64_t, std::string> records_;  // by trace: parents before their children
};

}  // namespace

RequestTracePtr make_triton_trace(std::shared_ptr<TraceSetting> setting) {
  return std::make_shared<TritonTrace>(std::move(setting));
}

}  // namespace nereid::front
