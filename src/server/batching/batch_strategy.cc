#include "server/batching/batch_strategy.h"

#include <dlfcn.h>

#include "base/log.h"
#include "server/api/error.h"
#include "server/symbols.h"

namespace nereid::server {

StatusOr<BatchFunctions> BatchFunctions::of_library(void* handle, const std::string& path) {
  BatchFunctions out;
  const char* missing = nullptr;
  int num_found = 0;
  const auto find = [&](const char* symbol, auto& function) {
    find_symbol(handle, symbol, function);
    num_found += function != nullptr;
    if (function == nullptr) missing = symbol;
  };
  find("TRITONBACKEND_ModelBatcherInitialize", out.batcher_initialize);
  find("TRITONBACKEND_ModelBatcherFinalize", out.batcher_finalize);
  find("TRITONBACKEND_ModelBatchIncludeRequest", out.include);
  find("TRITONBACKEND_ModelBatchInitialize", out.initialize);
  find("TRITONBACKEND_ModelBatchFinalize", out.finalize);
  if (num_found == 0 || missing == nullptr) return out;
  return invalid_argument("'{}' has some functions of a batching strategy, but no {}", path,
                          missing);
}

StatusOr<BatchFunctions> find_batch_functions(const std::vector<std::filesystem::path>& libraries,
                                              const BatchFunctions& own) {
  for (const auto& path : libraries) {
    std::error_code error;
    if (!std::filesystem::exists(path, error)) continue;
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return not_found("unable to load batching library: {}", dlerror());
    ASSIGN_OR_RETURN(const BatchFunctions found, BatchFunctions::of_library(handle, path.string()));
    if (found.any()) {
      log_info("Loading custom batching strategy library {}", path.string());
      return found;
    }
    return invalid_argument("batching library '{}' has no {}", path.string(),
                            "TRITONBACKEND_ModelBatchIncludeRequest");
  }
  return own;
}

StatusOr<std::unique_ptr<BatchStrategy>> BatchStrategy::create(const BatchFunctions& functions,
                                                               TRITONBACKEND_Model* model) {
  std::unique_ptr<BatchStrategy> out(new BatchStrategy(functions));
  TRITONBACKEND_Batcher* batcher = nullptr;
  RETURN_IF_ERROR(take(functions.batcher_initialize(&batcher, model)));
  out->batcher_ = batcher;
  return out;
}

BatchStrategy::~BatchStrategy() {
  if (batcher_ == nullptr) return;
  if (Status s = take(functions_.batcher_finalize(batcher_)); !s.ok()) {
    log_error("TRITONBACKEND_ModelBatcherFinalize: {}", message(s));
  }
}

BatchStrategy::Batch::Batch(const BatchStrategy* strategy) : strategy_(strategy) {
  if (strategy_ == nullptr) return;
  if (Status s = take(strategy_->functions_.initialize(strategy_->batcher_, &state_)); !s.ok()) {
    log_error("TRITONBACKEND_ModelBatchInitialize: {}", message(s));
    strategy_ = nullptr;
  }
}

BatchStrategy::Batch::~Batch() {
  if (strategy_ == nullptr) return;
  if (Status s = take(strategy_->functions_.finalize(state_)); !s.ok()) {
    log_error("TRITONBACKEND_ModelBatchFinalize: {}", message(s));
  }
}

bool BatchStrategy::Batch::join(const InferenceRequest& request) {
  if (strategy_ == nullptr) return true;
  bool should = false;
  auto* handle = reinterpret_cast<TRITONBACKEND_Request*>(const_cast<InferenceRequest*>(&request));
  if (Status s = take(strategy_->functions_.include(handle, state_, &should)); !s.ok()) {
    log_error("TRITONBACKEND_ModelBatchIncludeRequest: {}", message(s));
    return false;
  }
  return should;
}

}  // namespace nereid::server
