// Commands from other threads to the engine thread.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "base/queue.h"
#include "base/status.h"
#include "nereid/executor.h"
#include "runtime/adapters/adapter.h"
#include "sched/sequence.h"

namespace nereid::runtime {

// The sequences of one request, consecutive ids; the first id is the request's.
struct Submit {
  std::vector<sched::SequenceSpec> group;
  std::shared_ptr<const Adapter> adapter;  // of all sequences; null: none
  bool waits_for_guide = false;            // held until GrammarReady
};
// The request's guide is filled, or its error.
struct GrammarReady {
  RequestId id = 0;
  Status status;
};
// A late mask of a sequence is ready.
struct MaskMade {
  RequestId id = 0;
};
// Ends a request with all its sequences.
struct Cancel {
  RequestId id = 0;
};
// Stop string in the output of one sequence; the outbox ignores its further updates.
struct StopStringFound {
  RequestId id = 0;
};
struct CancelAll {};
// A turn for the modules, also of an engine that sleeps.
struct WakeUp {};

using Command =
    std::variant<Submit, Cancel, StopStringFound, CancelAll, GrammarReady, MaskMade, WakeUp>;
using Inbox = Queue<Command>;

}  // namespace nereid::runtime
