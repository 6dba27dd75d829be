// Test only: the payload of a sequence that is being made.
#pragma once

#include <memory>
#include <utility>

#include "runtime/sequence_payload.h"

namespace nereid::runtime {

// Gives the spec a copy of its payload, or an empty one, to be changed.
inline SequencePayload& edit_payload(sched::SequenceSpec& spec) {
  auto payload = std::make_shared<SequencePayload>(payload_of(spec));
  spec.payload = payload;
  return *payload;
}

}  // namespace nereid::runtime
