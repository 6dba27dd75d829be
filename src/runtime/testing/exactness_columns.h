// Columns of the exactness suite, and the numerics they run with.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/api/weight_format.h"
#include "nereid/executor.h"

namespace nereid::runtime::exactness {

constexpr int32_t kBlock = 16;  // tokens

// Settings that change results by design; each has its own expected outcomes.
struct Numerics {
  const char* name;
  void (*set)(ExecutorConfig&);
  std::vector<int32_t> windows = {};  // window of each layer, repeated; none: the model's own
  std::optional<kernels::WeightFormat> weights = {};  // of products: formats without an option
  bool is_of_cache = false;                           // changes the contents of the KV cache
  bool is_of_ranks = false;                           // for columns on several ranks
};

enum class Way {
  kAlone,          // one row after another
  kBatch,          // all at once, in random order, among other requests
  kTwice,          // each row twice; the second one counts
  kRounds,         // all rows twice; the second round counts
  kPrimed,         // after a request whose prompt diverges in the middle of a block
  kStreamed,       // one row after another, a response per token
  kStreamedWhole,  // one row after another, each response with all tokens so far
};

// Numerics of a column: the usual ones, also those that change the KV cache, or all. Drafts of all
// proposers are verified by the same rows, so one chain (DraftModel) and one tree (SpeculatedTrees)
// run with all weight types.
enum class Breadth { kUsual, kCaches, kAll };

// A way to run the rows.
struct Column {
  std::string name;
  Way way = Way::kAlone;
  void (*set)(ExecutorConfig&, int) = nullptr;
  int argument = 0;
  bool (*happened)(const ExecutorStats&) = nullptr;  // statistics prove that the way was taken
  Breadth breadth = Breadth::kUsual;
  bool in_second_process = false;              // steps are executed by another process
  bool is_speculated = false;                  // rows have drafts, about half of them wrong
  bool is_late = false;                        // onboards take several steps
  bool in_trees = false;                       // drafts are trees
  void (*propose)(ExecutorConfig&) = nullptr;  // selects the proposer; called before `set`
  int tp = 1, pp = 1;                          // ranks
  bool is_on_ranks() const { return tp * pp > 1; }
};

// The first one is the usual one.
std::span<const Numerics> all_numerics();

std::filesystem::path exactness_model();

// Everything optional is off.
ExecutorConfig plain();

// The common configuration.
void usual(ExecutorConfig& c, int);

std::vector<Column> columns();

}  // namespace nereid::runtime::exactness
