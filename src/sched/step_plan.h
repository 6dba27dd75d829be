// What one step computes: a small flat message from the scheduler to whoever runs it.
#pragma once

#include <cstdint>
#include <vector>

namespace nereid::sched {

class Sequence;
using BlockId = int32_t;

// One sequence's share of a step: positions [start, start + num_tokens).
struct Row {
  Sequence* sequence =
      nullptr;       // owned by the scheduler; alive until the row is committed or aborted
  int32_t slot = 0;  // device slot in [0, max_batch_size); holds the sequence's last sampled token
  int32_t start = 0;
  int32_t num_tokens = 0;
  bool samples =
      false;  // reaches the sequence's end: one token is drawn, for position start + num_tokens
  bool input_on_device = false;  // the last input token is known only to the device (slot `slot`)

  int32_t end() const { return start + num_tokens; }
};

struct StepPlan {
  std::vector<Row> rows;
  int32_t num_tokens = 0;  // sum over rows

  bool empty() const { return rows.empty(); }
};

}  // namespace nereid::sched
