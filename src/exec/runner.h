// Runs steps of one loaded engine on one device. Owned and called by the engine thread alone.
#pragma once

#include <cstdint>
#include <filesystem>
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
  int32_t max_rows = 0;             // sequences per step; slots are in [0, max_rows)
  int32_t max_tokens = 0;           // tokens per step
  int32_t max_sequence_length = 0;  // positions
  int32_t num_blocks = 0;           // KV blocks
  int32_t block_tokens = 0;         // positions per block
};

// One line of what a runner holds on its device (and, for staging, in host memory).
struct MemoryItem {
  std::string what;  // "weights" | "KV cache" | "activations" | "step data" | "rope table"
  size_t bytes = 0;
};

// Time of all calls of one kind since profiling was switched on.
struct OpTime {
  std::string op;      // "linear"
  std::string kernel;  // "avx512_bf16"
  std::string shape;   // "[1024, 256]" for ops with a weight matrix
  int64_t num_calls = 0;
  double seconds = 0;
  uint64_t bytes = 0;  // weights and cached keys and values that the calls had to read
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
  // sampled ids. `post` is not called for a step without sampling rows; without
  // one nothing is read back. At most two tickets may be
  // in flight, and each must be waited for. InvalidArgument only for our own misuse; device errors
  // come from wait().
  virtual StatusOr<Ticket> launch(std::span<const StepRow> rows, PostForward post) = 0;

  // Blocks until the step is done. Sampled token ids, one per sampling row, in row order.
  virtual StatusOr<std::vector<int32_t>> wait(Ticket& ticket) = 0;

  virtual const RunnerLimits& limits() const = 0;
  virtual int32_t vocab_size() const = 0;

  virtual std::vector<MemoryItem> memory() const { return {}; }

  // Off by default. Switching on forgets earlier times; while on, the device is waited for after
  // every call, so a step is slower than otherwise. Call both with no step in flight.
  virtual void set_profiling(bool) {}
  virtual std::vector<OpTime> profile() const { return {}; }  // slowest first

 protected:
  static std::unique_ptr<Event>& event_of(Ticket& t) { return t.event_; }
  static int32_t staging_of(const Ticket& t) { return t.staging_; }
  static int32_t num_sampled_of(const Ticket& t) { return t.num_sampled_; }
};

// Loads an engine file: opens and verifies it, checks every operand, resolves the kernels it names,
// allocates all memory that steps will use. `device` and `registry` must outlive the runner.
// DataLoss/NotFound: the file; InvalidArgument: limits out of range (naming field, value and what
// is allowed), an engine for another kind of device or for instructions this one lacks;
// ResourceExhausted: not enough memory.
StatusOr<std::unique_ptr<Runner>> make_runner(const std::filesystem::path& engine, Device& device,
                                              const kernels::Registry& registry,
                                              const RunnerLimits& limits);

}  // namespace nereid::exec
