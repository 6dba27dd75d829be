// What other threads ask of the engine thread.
#pragma once

#include <variant>

#include "base/queue.h"
#include "nereid/executor.h"
#include "sched/sequence.h"

namespace nereid::runtime {

struct Submit {
  sched::SequenceSpec spec;
};
struct Cancel {
  RequestId id = 0;
};
// The outbox found a stop string in the request's text and has sent its final response.
struct StopStringFound {
  RequestId id = 0;
};
struct CancelAll {};

using Command = std::variant<Submit, Cancel, StopStringFound, CancelAll>;
using Inbox = Queue<Command>;

}  // namespace nereid::runtime
