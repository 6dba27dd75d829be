// Messages on a stream socket between two processes of one host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/shared_memory.h"

namespace nereid::runtime {

// Kinds of messages, and who sends them. Contents: rank_wire.h.
enum class Kind : uint32_t {
  kHello,         // worker: RankDevice
  kLoad,          // leader: RankLoad
  kLoaded,        // worker: Status, RankModel
  kStep,          // leader: exec::StepMessage
  kMasks,         // leader: exec::Masks of the newest step
  kWait,          // leader: the oldest step is waited for
  kResult,        // worker: StepReport
  kFollow,        // leader: accepted drafts of the step that was waited for last
  kOnboards,      // leader: reply wanted when the oldest onboards have ended
  kOnboarded,     // worker: statuses of ended onboards
  kSetRecording,  // leader: uint8_t
  kSetProfiling,  // leader: uint8_t
  kProfile,       // leader: reply wanted
  kProfiled,      // worker: OpTimes
};

struct Message {
  Kind kind = Kind::kHello;
  std::span<const std::byte> bytes;  // valid until the next call
};

// Used by one thread at a time, but for close().
class Channel {
 public:
  explicit Channel(comm::Descriptor socket) : socket_(std::move(socket)) {}

  // Blocks until all is sent. Bytes that come meanwhile are kept for receive(): two processes that
  // send to each other at once do not block each other. Unavailable: the other process has ended,
  // or close() was called.
  Status send(Kind kind, std::span<const std::byte> bytes = {});

  // The oldest message; blocks until there is one. Errors: as send(); DataLoss: no message.
  StatusOr<Message> receive();

  // Ends both directions: calls under way and later ones fail. Any thread.
  void close();

 private:
  Status read_some(bool may_wait);

  const comm::Descriptor socket_;
  std::vector<std::byte> received_;  // [begin_, end_) is not yet taken
  size_t begin_ = 0, end_ = 0;
};

}  // namespace nereid::runtime
