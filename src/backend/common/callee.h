// Configurations of the models that a model calls.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "backend/common/triton.h"

namespace nereid::backend {

struct CalleeInput {
  size_t rank = 0;  // batch dimension included; 0: unknown now
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
};

// Thread safe. A model's configuration is read at its first use: it may load after the caller.
class Callees {
 public:
  explicit Callees(TRITONSERVER_Server* server) : server_(server) {}

  // nullopt: the model has no such input.
  std::optional<CalleeInput> input(const std::string& model, const std::string& name);
  bool has_input(const std::string& model, const std::string& name) {
    return input(model, name).has_value();
  }
  // The model's parameter exclude_input_in_output.
  bool excludes_prompt(const std::string& model);

 private:
  struct Callee {
    std::map<std::string, CalleeInput, std::less<>> inputs;
    bool excludes_prompt = false;
  };

  // Null: the server has no configuration now (logged).
  const Callee* known(const std::string& model);  // under mutex_
  Status read(const std::string& model, Callee& to) const;

  TRITONSERVER_Server* const server_;
  std::mutex mutex_;
  std::map<std::string, Callee> callees_;
};

}  // namespace nereid::backend
