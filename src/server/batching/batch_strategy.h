// A model's own rule for what goes into a batch, beside those of the dynamic batcher: functions of
// a batching library, or of the backend itself.
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

  // The functions of a library opened with dlopen. To have none of them is no error; to have some
  // is InvalidArgument that names one that is missing.
  static StatusOr<BatchFunctions> of_library(void* handle, const std::string& path);
  bool any() const { return include != nullptr; }
};

// Opens the first of `libraries` that exists, for ever. None exists: `own`, the backend's.
StatusOr<BatchFunctions> find_batch_functions(const std::vector<std::filesystem::path>& libraries,
                                              const BatchFunctions& own);

class BatchStrategy {
 public:
  // Calls ModelBatcherInitialize; `functions` must be all there.
  static StatusOr<std::unique_ptr<BatchStrategy>> create(const BatchFunctions& functions,
                                                         TRITONBACKEND_Model* model);
  ~BatchStrategy();
  BatchStrategy(const BatchStrategy&) = delete;
  BatchStrategy& operator=(const BatchStrategy&) = delete;

  // One batch as it is put together. Without a strategy, everything may join.
  class Batch {
   public:
    explicit Batch(const BatchStrategy* strategy);
    ~Batch();
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;
    // Whether the request, the next one, goes with those that joined; it then has joined. Always
    // asked, in the order of the queue; a failing function keeps it out.
    bool join(const InferenceRequest& request);

   private:
    const BatchStrategy* strategy_;  // null: none
    void* state_ = nullptr;
  };

 private:
  explicit BatchStrategy(const BatchFunctions& functions) : functions_(functions) {}
  const BatchFunctions functions_;
  TRITONBACKEND_Batcher* batcher_ = nullptr;
};

}  // namespace nereid::server
