// Runs steps of one loaded engine on one device. Owned and called by the engine thread alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "exec/cache_group.h"
#include "io/engine_file.h"
#include "kernels/api/registry.h"
#include "tensor/device.h"
#include "tensor/view.h"

namespace nereid::exec {

// One sequence's share of a step, positions [start, start + num_tokens).
struct StepRow {
  int32_t slot = 0;
  int32_t start = 0;
  std::span<const int32_t> tokens;  // num_tokens ids; the last may be kTokenOnDevice
  // Block tables, cover start + num_tokens positions. A block that none of the tokens sees (window,
  // sink) may be kNoBlock.
  PerGroup<std::span<const int32_t>> blocks;
  int32_t num_logits = 0;  // of the last positions: 0, 1 or num_tokens
};
inline constexpr int32_t kTokenOnDevice = -1;  // take the id from the slot's sampled token
inline constexpr int32_t kNoBlock = -1;

// A whole block, all layers of its group. Blocks of the device are [0, num_blocks), those of the
// host pool [num_blocks, num_blocks + num_host_blocks).
struct BlockCopy {
  int32_t from = 0, to = 0;
  int32_t group = 0;
};

// Handed to the post-forward hook, valid during it.
struct Logits {
  View logits;                     // f32 [m, vocab], num_logits rows of each StepRow, in order
  int32_t* slot_tokens = nullptr;  // device [max_rows]: the hook writes what it drew, by slot
};
using PostForward = std::function<Status(const Logits&, Stream&)>;

struct RunnerLimits {
  int32_t max_rows = 0;               // sequences per step; slots are in [0, max_rows)
  int32_t max_tokens = 0;             // tokens per step
  int32_t max_sequence_length = 0;    // positions
  PerGroup<int32_t> num_blocks;       // KV blocks on the device
  int32_t block_tokens = 0;           // positions per block
  PerGroup<int32_t> num_host_blocks;  // KV blocks of the second-level pool in host memory
  DType kv_type = DType::kBF16;       // of cached keys and values: bf16, i8 or f8e4m3
  // No token sees more than this many positions, itself included, and the first `sink` ones; a
  // layer's own window may be shorter. 0 = no such bound.
  int32_t window = 0;
  int32_t sink = 0;
  int32_t max_logits = 0;  // rows of logits per step; smaller than max_rows: as many as that

  int32_t num_logits_rows() const { return std::max(max_logits, max_rows); }
};

// One line of what a runner holds on its device (and, for staging, in host memory).
struct MemoryItem {
  std::string what;  // "weights", "KV cache", ...
  size_t bytes = 0;
};

// Time of all calls of one kind since profiling was switched on.
struct OpTime {
  std::string op;      // "linear"
  std::string kernel;  // "avx512_bf16"
  std::string shape;   // "bf16 [1024, 256]" for ops with a weight matrix
  int64_t num_calls = 0;
  double seconds = 0;
  uint64_t bytes = 0;  // weights and cached keys and values that the calls had to read
};

// A step in flight. Move-only; empty = nothing.
class Ticket {
 public:
  Ticket() = default;
  Ticket(std::unique_ptr<Event> event, int32_t staging)
      : event_(std::move(event)), staging_(staging) {}
  explicit operator bool() const { return event_ != nullptr; }

 private:
  friend class Runner;
  std::unique_ptr<Event> event_;
  int32_t staging_ = 0;  // which of the two staging areas it uses
};

class Runner {
 public:
  virtual ~Runner() = default;

  // Stages the rows (the spans may die on return), submits the copies in their order, then forward
  // and `post`, which may be empty and is not called for a step without logits. A step may have
  // copies and no rows; the logits of a step are at most num_logits_rows(). At most two tickets may
  // be in flight, and each must be waited for. InvalidArgument only for our own misuse; device
  // errors come from wait().
  virtual StatusOr<Ticket> launch(std::span<const StepRow> rows, std::span<const BlockCopy> copies,
                                  PostForward post) = 0;

  // Blocks until the step is done; its status.
  virtual Status wait(Ticket& ticket) = 0;

  virtual const RunnerLimits& limits() const = 0;
  virtual std::span<const CacheGroup> groups() const = 0;  // of the KV cache
  virtual int32_t vocab_size() const = 0;

  virtual std::vector<MemoryItem> memory() const { return {}; }

  // On by default: a step that only decodes, of a shape that was seen before, is issued to devices
  // that can do so as one recording of its calls. The results are the same bits. Call with no step
  // in flight.
  virtual void set_recording(bool) {}

  // Off by default. Switching on forgets earlier times; while on, the device is waited for after
  // every call, so a step is slower than otherwise. Call both with no step in flight.
  virtual void set_profiling(bool) {}
  virtual std::vector<OpTime> profile() const { return {}; }  // slowest first

 protected:
  static std::unique_ptr<Event>& event_of(Ticket& t) { return t.event_; }
  static int32_t staging_of(const Ticket& t) { return t.staging_; }
};

// Loads an engine file, whose weights are taken as they are: whoever opens it says how much of them
// is verified. Checks every operand, resolves the kernels it names, allocates all memory that steps
// will use. `device` and `registry` must outlive the runner.
// DataLoss/NotFound: the file; InvalidArgument: limits out of range (naming field, value and what
// is allowed), an engine for another kind of device or for instructions this one lacks;
// ResourceExhausted: not enough memory.
StatusOr<std::unique_ptr<Runner>> make_runner(io::EngineFile engine, Device& device,
                                              const kernels::Registry& registry,
                                              const RunnerLimits& limits);

// The same for a path, opened with io::Verify::kAuto.
StatusOr<std::unique_ptr<Runner>> make_runner(const std::filesystem::path& engine, Device& device,
                                              const kernels::Registry& registry,
                                              const RunnerLimits& limits);

}  // namespace nereid::exec
