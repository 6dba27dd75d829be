// Custom batching: a model's additional rule for joining a batch, given by functions of a batching
// library or of the backend itself.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/request/request.h"
#include "triton/core/tritonbackend.h"

namespace nereid::server {

struct BatchFunctions {
  decltype(&TRITONBACKEND_ModelBatcherInitialize) batcher_initialize = nullptr;
  decltype(&TRITONBACKEND_ModelBatcherFinalize) batcher_finalize = nullptr;
  decltype(&TRITONBACKEND_ModelBatchIncludeRequest) include = nullptr;
  decltype(&TRITONBACKEND_ModelBatchInitialize) initialize = nullptr;
  decltype(&TRITONBACKEND_ModelBatchFinalize) finalize = nullptr;

  // The functions of a library opened with dlopen. A library with none of them is no error; one
  // with some of them is InvalidArgument, which names a missing one.
  static StatusOr<BatchFunctions> of_library(void* handle, const std::string& path);
  bool any() const { return include != nullptr; }
};

// Opens the first of `libraries` that exists and never closes it. Without one: `own`,
// the backend's functions.
StatusOr<BatchFunctions> find_batch_functions(const std::vector<std::filesystem::path>& libraries,
                                              const BatchFunctions& own);

class BatchStrategy {
 public:
  // Calls ModelBatcherInitialize; `functions` must be complete.
  static StatusOr<std::unique_ptr<BatchStrategy>> create(const BatchFunctions& functions,
                                                         TRITONBACKEND_Model* model);
  ~BatchStrategy();
  BatchStrategy(const BatchStrategy&) = delete;
  BatchStrategy& operator=(const BatchStrategy&) = delete;

  // One batch while it is formed. Without a strategy every request may join.
  class Batch {
   public:
    explicit Batch(const BatchStrategy* strategy);
    ~Batch();
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;
    // Whether the next request may join the batch; if so it has joined. Requests are tried in the
    // order of the queue; a function that fails excludes its request.
    bool join(const InferenceRequest& request);

   private:
    const BatchStrategy* strategy_;  // null: no rule
    void* state_ = nullptr;
  };

 private:
  explicit BatchStrategy(const BatchFunctions& functions) : functions_(functions) {}
  const BatchFunctions functions_;
  TRITONBACKEND_Batcher* batcher_ = nullptr;
};

}  // namespace nereid::server
