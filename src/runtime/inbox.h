// What other threads ask of the engine thread.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "base/queue.h"
#include "base/status.h"
#include "nereid/executor.h"
#include "runtime/adapter.h"
#include "sched/sequence.h"

namespace nereid::runtime {

// The sequences of one request, with neighbouring ids; the first one's is the request's.
struct Submit {
  std::vector<sched::SequenceSpec> group;
  std::shared_ptr<const Adapter> adapter;  // of all of them; null: none
  bool waits_for_guide = false;            // of all of them: GuideMade comes
};
// The guide of a request is filled, or why it is not.
struct GuideMade {
  RequestId id = 0;
  Status status;
};
// The mask that a sequence waits for.
struct MaskMade {
  RequestId id = 0;
};
// A request with all its sequences.
struct Cancel {
  RequestId id = 0;
};
// The outbox found a stop string in the text of one sequence and takes no more of its news.
struct StopStringFound {
  RequestId id = 0;
};
struct CancelAll {};

using Command = std::variant<Submit, Cancel, StopStringFound, CancelAll, GuideMade, MaskMade>;
using Inbox = Queue<Command>;

}  // namespace nereid::runtime
