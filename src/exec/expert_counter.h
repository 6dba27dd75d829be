// Tokens of each expert of a plan's mixtures.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "exec/runner.h"
#include "io/plan.h"
#include "kernels/api/ops.h"

namespace nereid::exec {

// Counts the results of a plan's Route calls, in host memory. add(): one thread at a time, load():
// any thread at any time.
class ExpertCounter {
 public:
  explicit ExpertCounter(const io::Plan& plan);

  // A Route call that has run; `call`: its index in the plan.
  void add(size_t call, const View& experts);
  std::vector<ExpertLoad> load() const;

 private:
  struct Mixture {
    size_t call = 0;
    int32_t layer = 0;
    size_t num_experts = 0;
    std::unique_ptr<std::atomic<int64_t>[]> tokens;
  };
  std::vector<Mixture> mixtures_;  // in order of calls
};

}  // namespace nereid::exec
