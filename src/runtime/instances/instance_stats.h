// Statistics of the instances of a model as those of one executor.
#pragma once

#include <span>
#include <vector>

#include "nereid/stats.h"

namespace nereid::runtime {

// Adds counts since start, and what is held at the moment. Times of the last step: the longer one.
void add_stats(ExecutorStats& to, const ExecutorStats& from);

// Counts since start of an executor that is closed; it holds nothing.
ExecutorStats counts_of(const ExecutorStats& stats);

// A step of one instance as one of the model: its figures of the moment are added to those of the
// other instances' newest steps.
void add_others(IterationStats& step, std::span<const IterationStats> others);

}  // namespace nereid::runtime
