// Runs steps of one loaded engine on one device. Owned and called by the engine thread alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/api/registry.h"
#include "tensor/device.h"
#include "tensor/view.h"

namespace nereid::exec {

// One sequence's share of a step, positions [start, start + num_tokens).
struct StepRow {
  int32_t slot = 0;
  int32_t start = 0;
  std::span<const int32_t> tokens;  // num_tokens ids; the last may be kTokenOnDevice
  std::span<const int32_t> blocks;  // block table, covers start + num_tokens positions
  bool samples = false;             // the last position's logits are wanted
};
inline constexpr int32_t kTokenOnDevice = -1;  // take the id from the slot's sampled token

// Handed to the post-forward hook, valid during it.
struct Logits {
  View logits;                     // f32 [m, vocab], one row per sampling StepRow, in order
  int32_t* tokens = nullptr;       // device [m]: the hook writes what it drew
  int32_t* slot_tokens = nullptr;  // device [max_slots]: and here, by slot
};
using PostForward = std::function<Status(const Logits&, Stream&)>;

struct RunnerLimits {
  int32_t max_rows = 0;             // sequences per step
  int32_t max_tokens = 0;           // tokens per step
  int32_t max_sequence_length = 0;  // positions
  int32_t num_blocks = 0;           // KV blocks
  int32_t block_tokens = 0;         // positions per block
};

// A step in flight. Move-only; empty = nothing.
class Ticket {
 public:
  Ticket() = default;
  Ticket(std::unique_ptr<Event> event, int32_t staging, int32_t num_sampled)
      : event_(std::move(event)), staging_(staging), num_sampled_(num_sampled) {}
  explicit operator bool() const { return event_ != nullptr; }

 private:
  friend class Runner;
  std::unique_ptr<Event> event_;
  int32_t staging_ = 0;  // which of the two staging areas it uses
  int32_t num_sampled_ = 0;
};

class Runner {
 public:
  virtual ~Runner() = default;

  // Stages the rows (the spans may die on return), submits forward + `post` + read-back of the
  // sampled ids. At most two tickets may be in flight. InvalidArgument only for our own misuse;
  // device errors come from wait().
  virtual StatusOr<Ticket> launch(std::span<const StepRow> rows, PostForward post) = 0;

  // Blocks until the step is done. Sampled token ids, one per sampling row, in row order.
  virtual StatusOr<std::vector<int32_t>> wait(Ticket& ticket) = 0;

  virtual const RunnerLimits& limits() const = 0;
  virtual int32_t vocab_size() const = 0;

 protected:
  static std::unique_ptr<Event>& event_of(Ticket& t) { return t.event_; }
  static int32_t staging_of(const Ticket& t) { return t.staging_; }
  static int32_t num_sampled_of(const Ticket& t) { return t.num_sampled_; }
};

}  // namespace nereid::exec
