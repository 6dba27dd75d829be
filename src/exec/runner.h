// Runs steps of one loaded engine on one device. Owned and called by the engine thread alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "exec/cache_group.h"
#include "io/engine_file.h"
#include "kernels/api/kernel.h"
#include "kernels/api/ops.h"
#include "kernels/api/registry.h"
#include "kernels/api/sample.h"
#include "tensor/device.h"
#include "tensor/view.h"

namespace nereid::exec {

inline constexpr int32_t kMaxDepth = 8;
inline constexpr int64_t kAdapterAlignment = 32;  // in numbers, of each module's matrices

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
  int32_t depth = 2;       // steps in flight; each has host memory of its own
  // Adapters that the device holds at a time; 0: rows have none.
  int32_t num_adapters = 0;
  int32_t max_adapter_rank = 0;      // of each, at most kernels::kMaxAdapterRank
  int32_t num_adapter_pages = 0;     // for all of them together
  int64_t adapter_page_numbers = 0;  // bf16 numbers of a page, a multiple of kAdapterAlignment
  bool has_trees = false;  // rows may have trees of drafts, for which some kernels are not made

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

// What a step gave for one of its rows.
struct RowResult {
  // Not OK: there was no memory for what the row wants, or its slot holds nothing to draw with.
  // Then there is nothing else, and the sequence has to end.
  Status status;
  // Empty: the row does not sample. Else the tokens of its drafts that hold, and one more. Only the
  // first may be -1: a draft behind which nothing can be drawn does not hold.
  std::span<const kernels::SampleResult> drawn;
  // Which of its drafts hold: 0, 1, ... but in a tree. Logits and hidden states are in the order of
  // tokens, whichever hold.
  std::span<const int32_t> path;
  // If the row wants it (StepRow::wants_likeliest), for each position that it would draw for: the
  // token that was drawn, or, where a draft in front was wrong, the likeliest one; -1: there is
  // none.
  std::span<const int32_t> likeliest;
  std::span<const kernels::TopToken> top;  // [drawn, kMaxTopTokens]; empty unless wanted
  std::span<const float> logits;           // [num_read, vocab]
  // [num_hidden, num_states, hidden_size]: what the head has read, then what some layers have.
  std::span<const BF16> hidden;

  // The likeliest tokens at the position of drawn[i], likeliest first.
  std::span<const kernels::TopToken> top_of(size_t i) const {
    if (top.empty()) return {};
    const auto list = top.subspan(i * kernels::kMaxTopTokens, kernels::kMaxTopTokens);
    const auto end = std::ranges::find(list, -1, &kernels::TopToken::token);
    return list.first(static_cast<size_t>(end - list.begin()));
  }
};
using StepResult = std::span<const RowResult>;  // one for each row of the message

// Sees a `linear` call whose input is there, by its weight's name, on the stream's thread; its
// weight.data may be replaced, in its layout. Of experts it sees each ("layers.0.mlp.gate[3]") with
// the rows routed to it, to replace nothing. False: the rest of the step is not computed.
using ProductObserver = std::function<bool(const std::string& weight, kernels::Linear& call)>;

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
  int32_t staging_ = 0;  // which of the `depth` staging areas it uses
};

class Runner {
 public:
  virtual ~Runner() = default;

  // Executes the step of a message (step_message.h): its copies in their order, the forward pass of
  // its rows, then sampling, or see draw(). Copies to and from the host begin beside the step in
  // flight, so they must not touch device blocks that it does; all other work keeps its order. No
  // step waits for onboards: see onboarded(). The bytes may go on return. A step may have copies
  // or adapters and no rows; its logits are at most num_logits_rows(). At most `depth` tickets may
  // be in flight, and each must be waited for. InvalidArgument: the message is invalid, nothing has
  // changed, and the next may be; device errors come from wait().
  virtual StatusOr<Ticket> launch(std::span<const std::byte> message) = 0;

  // A step that has rows with a mask (StepRow::has_mask) is executed up to its sampling, which
  // waits for this call with the masks (a message of MaskArrays, which may go on return). It has
  // to come once, before the next launch. What is wrong with the message, or with the device, comes
  // from wait().
  virtual void draw(Ticket& ticket, std::span<const std::byte> masks) = 0;

  // Blocks until the step is done; what it gave is valid until the next launch. Of trees of drafts
  // the paths that hold are brought together (StepArrays::parents) before any later launch's work.
  virtual StatusOr<StepResult> wait(Ticket& ticket) = 0;

  // How the onboards of the first message that has some and was not told yet have ended, if they
  // have; `may_wait`: blocks until they have. No value also when there are none. Of messages whose
  // launch was refused nothing is told. Their blocks hold nothing defined when it is not OK.
  virtual std::optional<Status> onboarded(bool may_wait) = 0;

  virtual const RunnerLimits& limits() const = 0;
  virtual std::span<const CacheGroup> groups() const = 0;  // of the KV cache
  virtual int32_t vocab_size() const = 0;
  virtual int32_t hidden_size() const = 0;  // of a hidden state; 0: it gives none
  virtual int32_t num_states() const { return hidden_size() > 0 ? 1 : 0; }  // of each position
  // Whether its device can test drafts by more than the token that is drawn; see
  // kernels::weighs_drafts(). Slots that ask for it fail otherwise.
  virtual bool weighs_drafts() const { return false; }
  virtual int32_t embedding_width() const = 0;  // numbers that stand for a token; see kTokenGiven

  // Without the memory for given embeddings, which is taken when the first step has some: for each
  // step in flight up to max_tokens of them, on the device and in host memory.
  virtual std::vector<MemoryItem> memory() const { return {}; }

  // On by default: a step that only decodes, of a shape that was seen before, is issued to devices
  // that can do so as one recording of its calls. The results are the same bits. Call with no step
  // in flight.
  virtual void set_recording(bool) {}

  // Off by default. Switching on clears earlier times; while on, the device is waited for after
  // every call, so a step is slower than otherwise. Call both with no step in flight.
  virtual void set_profiling(bool) {}
  virtual std::vector<OpTime> profile() const { return {}; }  // slowest first

  // None by default. Of a device whose memory the host can read. Call with no step in flight.
  virtual void set_observer(ProductObserver) {}

 protected:
  static std::unique_ptr<Event>& event_of(Ticket& t) { return t.event_; }
  static int32_t staging_of(const Ticket& t) { return t.staging_; }
};

// Loads an engine file, whose weights are taken as they are: the function that opens it says how
// much is verified. Checks every operand, resolves the kernels it names, allocates all memory that
// steps will use. `device` and `registry` must outlive the runner. `forced`: of the kernels that
// are chosen here, those of sampling. DataLoss/NotFound: the file; InvalidArgument: limits out of
// range (naming field, value and what is allowed), an engine for another kind of device or for
// instructions this one lacks; ResourceExhausted: not enough memory.
StatusOr<std::unique_ptr<Runner>> make_runner(io::EngineFile engine, Device& device,
                                              const kernels::Registry& registry,
                                              const RunnerLimits& limits,
                                              const kernels::Choices& forced = {});

// The same for a path, opened with io::Verify::kAuto.
StatusOr<std::unique_ptr<Runner>> make_runner(const std::filesystem::path& engine, Device& device,
                                              const kernels::Registry& registry,
                                              const RunnerLimits& limits,
                                              const kernels::Choices& forced = {});

}  // namespace nereid::exec
