// The ways in which the rows of exactness_rows.cc are run, and the numerics they are run with.
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

// What changes the results by right, so that each has expectations of its own.
struct Numerics {
  const char* name;
  void (*set)(ExecutorConfig&);
  std::vector<int32_t> windows = {};  // of the layers in turn; none: the model as it is
  std::optional<kernels::WeightFormat> weights = {};  // of products, one that no option asks for
  bool is_of_cache = false;                           // it changes what the cache holds
};

enum class Way {
  kAlone,          // one row after the other
  kBatch,          // all at once, in random order, among others
  kTwice,          // each row twice, the second one counts
  kRounds,         // all rows twice, so that others come between; the second round counts
  kPrimed,         // after a request whose prompt parts from the row's in the middle of a block
  kStreamed,       // one after the other, a response for each token
  kStreamedWhole,  // the same, each response with all tokens so far
};

// Which numerics a column is run with: the usual ones, those that change what the cache holds too,
// or all. Drafts are verified by the same rows of a step whatever proposed them, so one chain
// (DraftModel) and one tree (SpeculatedTrees) are run with all types of weights.
enum class Breadth { kUsual, kCaches, kAll };

// One way to run the rows.
struct Column {
  std::string name;
  Way way = Way::kAlone;
  void (*set)(ExecutorConfig&, int) = nullptr;
  int argument = 0;
  bool (*happened)(const ExecutorStats&) = nullptr;  // the way was really gone
  Breadth breadth = Breadth::kUsual;
  bool in_second_process = false;              // where the steps are executed
  bool is_speculated = false;                  // rows have drafts, about half of them wrong
  bool is_late = false;                        // copies from the host take several steps
  bool in_trees = false;                       // the drafts
  void (*propose)(ExecutorConfig&) = nullptr;  // names what proposes drafts; before `set`
};

// The first has the usual ones.
std::span<const Numerics> all_numerics();

std::filesystem::path exactness_model();

// Everything that could disturb is off.
ExecutorConfig plain();

// What people run.
void usual(ExecutorConfig& c, int);

std::vector<Column> columns();

}  // namespace nereid::runtime::exactness
