#include "backend/common/callee.h"

#include "base/json.h"
#include "base/log_limit.h"
#include "config/option.h"

namespace nereid::backend {

bool Callees::excludes_prompt(const std::string& model) {
  std::lock_guard lock(mutex_);
  const Callee* const callee = known(model);
  return callee != nullptr && callee->excludes_prompt;
}

std::optional<CalleeInput> Callees::input(const std::string& model, const std::string& name) {
  std::lock_guard lock(mutex_);
  const Callee* const callee = known(model);
  if (callee == nullptr) return CalleeInput();  // the call itself will say what is wrong
  const auto it = callee->inputs.find(name);
  return it == callee->inputs.end() ? std::nullopt : std::optional(it->second);
}

const Callees::Callee* Callees::known(const std::string& model) {
  Callee& callee = callees_[model];
  if (!callee.inputs.empty()) return &callee;
  if (Status s = read(model, callee); !s.ok()) {
    static LogLimit log;
    log.write(log_warning, "model '{}': {}", model, message(s));
    return nullptr;
  }
  return &callee;
}

Status Callees::read(const std::string& model, Callee& to) const {
  TRITONSERVER_Message* config = nullptr;
  RETURN_IF_ERROR(take(TRITONSERVER_ServerModelConfig(server_, model.c_str(), -1, 1, &config)));
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
    for (const auto& value : root.as_object().at("input").as_array()) {
      const json::object& input = value.as_object();
      std::string type(input.at("data_type").as_string());
      if (type.starts_with("TYPE_")) type.erase(0, 5);
      if (type == "STRING") type = "BYTES";
      to.inputs.emplace(input.at("name").as_string(),
                        CalleeInput{input.at("dims").as_array().size() + (has_batch ? 1 : 0),
                                    TRITONSERVER_StringToDataType(type.c_str())});
    }
    return ok();
  });
}

}  // namespace nereid::backend
