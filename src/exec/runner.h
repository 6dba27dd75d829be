// Runs the steps of one engine on one device. Called by the engine thread only.
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
#include "exec/exchange.h"
#include "io/engine_file.h"
#include "kernels/api/kernel.h"
#include "kernels/api/ops.h"
#include "kernels/api/registry.h"
#include "kernels/api/sample.h"
#include "nereid/stats.h"
#include "tensor/device.h"
#include "tensor/view.h"

namespace nereid::exec {

inline constexpr int32_t kMaxDepth = 8;
inline constexpr int64_t kAdapterAlignment = 32;  // of each module's matrices, in numbers

struct RunnerLimits {
  int32_t max_rows = 0;               // rows per step; slots are in [0, max_rows)
  int32_t max_tokens = 0;             // tokens per step
  int32_t max_sequence_length = 0;    // positions
  PerGroup<int32_t> num_blocks;       // KV blocks of the device
  int32_t block_tokens = 0;           // positions per block
  PerGroup<int32_t> num_host_blocks;  // KV blocks of the host pool
  DType kv_type = DType::kBF16;       // of the KV cache: bf16, i8 or f8e4m3
  // Sliding window of all layers, the token itself included, and attention sinks; a layer's own
  // window may be smaller. 0 = none.
  int32_t window = 0;
  int32_t sink = 0;
  int32_t max_logits = 0;  // rows of logits per step; values below max_rows stand for max_rows
  int32_t depth = 2;       // steps in flight; each has staging memory of its own
  // Adapter slots; 0: rows have no adapters.
  int32_t num_adapters = 0;
  int32_t max_adapter_rank = 0;      // <= kernels::kMaxAdapterRank
  int32_t num_adapter_pages = 0;     // shared by all adapters
  int64_t adapter_page_numbers = 0;  // bf16 numbers per page, a multiple of kAdapterAlignment
  bool has_trees = false;            // rows may have draft trees, which some kernels do not support
  // Models with an encoder; 0: none.
  int32_t max_encoder_length = 0;  // positions of an encoder's input
  int32_t max_encoder_tokens = 0;  // per step, at least max_encoder_length
  int32_t num_cross_blocks = 0;    // blocks of the keys and values of cross attention
  int32_t max_cross_length = 0;    // positions of a row's cross attention; 0: max_encoder_length
  int32_t cross_length() const {
    return max_cross_length > 0 ? max_cross_length : max_encoder_length;
  }
  // Models of pictures: blocks of block_tokens rows of their encoder's features.
  int32_t num_feature_blocks = 0;
  bool counts_experts = false;  // see Runner::expert_load(); on CPUs
  bool has_components = false;  // a rope table reads components of positions
  bool has_last = false;        // rows may have StepRow::has_last

  int32_t num_logits_rows() const { return std::max(max_logits, max_rows); }
};

// A line of the memory report (device memory; for staging, host memory).
struct MemoryItem {
  std::string what;  // "weights", "KV cache", ...
  size_t bytes = 0;
  int32_t rank = 0;
};

// Figures of a rank since its start.
struct RankFigures {
  int32_t rank = 0;
  std::string device;           // "cpu" | "cuda:0"
  int64_t num_steps = 0;        // done
  double exchange_seconds = 0;  // see Exchange::seconds()
};

// The output of an encoder input that asks for it (EncoderInput::is_returned).
struct EncodedInput {
  int32_t num_tokens = 0;
  std::span<const BF16> values;  // [num_tokens, encoder_width()]
};

// Heads of cross attention whose scores rows may ask for, of each layer.
struct ScoredHeads {
  int32_t num_layers = 0, num_heads = 0;
};

// Accumulated time of one kind of call since profiling was switched on.
struct OpTime {
  std::string op;      // "linear"
  std::string kernel;  // "avx512_bf16"
  std::string shape;   // "bf16 [1024, 256]" for ops with a weight matrix
  int64_t num_calls = 0;
  double seconds = 0;
  uint64_t bytes = 0;  // weights and cached keys and values read
  double flops =
      0;  // of linear and expert_linear, on CPUs of attention; a multiply-add counts as two
  std::vector<double> busy;  // on CPUs: seconds that each compute thread worked
};

// Result of one row.
struct RowResult {
  // Not OK: memory was missing, or the slot has no sampling parameters. The other fields are empty,
  // and the sequence has to end.
  Status status;
  // Empty if the row does not sample, else the accepted drafts and one more token. Only the first
  // token may be -1: a draft after which nothing can be sampled is rejected.
  std::span<const kernels::SampleResult> drawn;
  // Indices of the accepted drafts: 0, 1, ..., in a tree a path. Logits and hidden states are in
  // the order of input tokens.
  std::span<const int32_t> path;
  // With StepRow::wants_likeliest, for each position with logits: the sampled token, or behind a
  // rejected draft the argmax; -1: none.
  std::span<const int32_t> likeliest;
  std::span<const kernels::TopToken> top;  // [drawn, kMaxTopTokens]; empty unless requested
  std::span<const float> logits;           // [num_read, vocab]
  // [num_hidden, num_states, hidden_size]: input of the head, then inputs of selected layers.
  std::span<const BF16> hidden;
  // [num_scored_heads, num_tokens, cross_length]: see kernels::CrossScores.
  std::span<const float> scores;

  // The likeliest tokens at the position of drawn[i], in descending order.
  std::span<const kernels::TopToken> top_of(size_t i) const {
    if (top.empty()) return {};
    const auto list = top.subspan(i * kernels::kMaxTopTokens, kernels::kMaxTopTokens);
    const auto end = std::ranges::find(list, -1, &kernels::TopToken::token);
    return list.first(static_cast<size_t>(end - list.begin()));
  }
};
using StepResult = std::span<const RowResult>;  // one per row of the message

// Called before each Linear (by weight name) on the stream's thread; may replace weight.data in the
// same layout. An expert ("layers.0.mlp.gate[3]") is shown with its routed rows, read-only. False:
// the rest of the step is skipped.
using ProductObserver = std::function<bool(const std::string& weight, kernels::Linear& call)>;

// A step in flight. Move-only; empty: none.
class Ticket {
 public:
  Ticket() = default;
  Ticket(std::unique_ptr<Event> event, int32_t staging)
      : event_(std::move(event)), staging_(staging) {}
  explicit operator bool() const { return event_ != nullptr; }

 private:
  friend class Runner;
  std::unique_ptr<Event> event_;
  int32_t staging_ = 0;  // index of the step's staging area, < RunnerLimits::depth
};

class Runner {
 public:
  virtual ~Runner() = default;

  // Submits the step of a message (step_message.h): copies in order, forward pass, sampling (with
  // masks: see draw()). Host copies run beside the step in flight and must not touch its device
  // blocks; other work keeps its order. No step waits for onboards: see onboarded(). The bytes are
  // read before the return. A step may have copies or adapter loads without rows; its logits are <=
  // num_logits_rows(). At most `depth` tickets are in flight; each must be waited for.
  // InvalidArgument: the message is invalid and nothing has changed. Device errors: see wait().
  virtual StatusOr<Ticket> launch(std::span<const std::byte> message) = 0;

  // Submits the sampling of a step with masks (StepRow::has_mask), whose forward pass was submitted
  // by launch(); required once, before the next launch. `masks`: a message of MaskArrays, read
  // before the return. Errors are returned by wait().
  virtual void draw(Ticket& ticket, std::span<const std::byte> masks) = 0;

  // Announces wait() of the oldest ticket as the next call. RankGroup announces it to all ranks
  // before it waits for one: a runner in another process then sends its result at once.
  virtual void will_wait(Ticket& /*ticket*/) {}

  // Blocks until the step is done; the result is valid until the next launch. The KV of accepted
  // tree paths is moved (StepArrays::parents) before any later work.
  virtual StatusOr<StepResult> wait(Ticket& ticket) = 0;

  // Status of the oldest onboards that have ended and were not yet returned; `may_wait`: blocks
  // until they end. No value: none. Onboards of messages that launch() refused are not reported.
  // Not OK: their device blocks have undefined contents.
  virtual std::optional<Status> onboarded(bool may_wait) = 0;

  virtual const RunnerLimits& limits() const = 0;
  virtual std::span<const CacheGroup> groups() const = 0;  // of the KV cache
  virtual int32_t vocab_size() const = 0;
  virtual int32_t hidden_size() const = 0;  // of a hidden state; 0: none are returned
  virtual int32_t num_states() const { return hidden_size() > 0 ? 1 : 0; }  // per position
  // Whether the device supports draft tests by probability (kernels::weighs_drafts()); slots that
  // request them fail otherwise.
  virtual bool weighs_drafts() const { return false; }
  virtual int32_t embedding_width()
      const = 0;  // width of an external embedding; see kTokenExternal

  // Without layers: no scores, as of a model without cross attention, or on several ranks.
  virtual ScoredHeads scored_heads() const { return {}; }

  // Width of an encoder's output; 0: outputs are not returned, as of a model without cross
  // attention, or with ranks in other processes.
  virtual int32_t encoder_width() const { return 0; }
  // Outputs of the step that was waited for last, in the order of its inputs; valid as its results.
  virtual std::span<const EncodedInput> encoder_outputs() const { return {}; }

  // One per rank; none for a runner without other ranks.
  virtual std::vector<RankFigures> ranks() const { return {}; }

  // Since the start, by layer: of a rank its stage's, and of tensor ranks only the first one has
  // some, since all route alike. None without RunnerLimits::counts_experts. Thread-safe.
  virtual std::vector<ExpertLoad> expert_load() const { return {}; }

  // Memory report, without external embeddings, attention scores and outputs of encoders: their
  // memory (for each step in flight, device and host) is allocated by the first step with some.
  virtual std::vector<MemoryItem> memory() const { return {}; }

  // Default true: decode steps of a known shape are replayed as one recording where the device
  // supports it; same bits. Requires no step in flight.
  virtual void set_recording(bool) {}

  // Default false. Switching on clears the times; while on, each call is waited for, which slows
  // steps. Both calls require no step in flight.
  virtual void set_profiling(bool) {}
  virtual std::vector<OpTime> profile() const { return {}; }  // slowest first

  // Default none. Requires host-readable device memory and no step in flight.
  virtual void set_observer(ProductObserver) {}

  // For RankGroup: launch() calls `accepted` once the message is valid, before work is submitted,
  // which on a GPU may wait for the other ranks (profiling). Runners without support ignore it.
  virtual void on_accepted(std::function<void()> /*accepted*/) {}
  // For RankGroup. A rank that does not draw samples nothing, takes no masks, and returns no rows.
  virtual bool draws() const { return true; }
  // Moves the KV of accepted tree paths, on a rank that does not draw, before any later work;
  // `drawn`: results of the step that was waited for last.
  virtual Status follow(StepResult /*drawn*/) { return ok(); }
  // Ends the exchange with other ranks, whose steps then fail with `reason`. Thread-safe.
  virtual void abort(const Status& /*reason*/) {}

 protected:
  static std::unique_ptr<Event>& event_of(Ticket& t) { return t.event_; }
  static int32_t staging_of(const Ticket& t) { return t.staging_; }
};

// Loads an engine file (verified as the caller opened it): checks operands, resolves kernels,
// allocates the memory of steps. `device` and `registry` must outlive the runner. `forced` applies
// to kernels chosen here: sampling. `comms`: of the rank whose part of a model the engine is
// (io::Plan::mapping); all ranks get the same messages. `choices`: of the device's product library,
// in place of the engine's; read before the return. `encoder`: of a decoder with cross attention;
// of one that takes pictures, which takes none without. DataLoss/NotFound: the file;
// InvalidArgument: limits out of range (field, value, allowed), an engine for another device or
// ISA, communicators of another rank; ResourceExhausted: memory.
StatusOr<std::unique_ptr<Runner>> make_runner(
    io::EngineFile engine, Device& device, const kernels::Registry& registry,
    const RunnerLimits& limits, const kernels::KernelChoices& forced = {}, RankComms comms = {},
    const kernels::AlgorithmChoices* choices = nullptr, std::optional<io::EngineFile> encoder = {});

// The same for a path, opened with io::Verify::kAuto.
StatusOr<std::unique_ptr<Runner>> make_runner(const std::filesystem::path& engine, Device& device,
                                              const kernels::Registry& registry,
                                              const RunnerLimits& limits,
                                              const kernels::KernelChoices& forced = {});

}  // namespace nereid::exec
