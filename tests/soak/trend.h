// Does a process grow or slow down? Estimates that a few outliers cannot move.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nereid::soak {

struct Sample {
  double seconds = 0;  // since start
  double value = 0;
};

// Median of the slopes of all pairs of samples (Theil 1950, Sen 1968), in values for each second:
// up to 29 % of the samples may be arbitrary. 0 for fewer than two samples.
double robust_slope(std::span<const Sample> samples);

// The samples with low <= seconds < high.
std::vector<Sample> between(std::span<const Sample> samples, double low, double high);

// The smallest sample of each of `count` equal parts of the time they span. Memory that is never
// freed lifts the minimum; temporary memory (fragments of a heap) only moves values above it.
std::vector<Sample> floors(std::span<const Sample> samples, int count);

// Makes malloc give large blocks back when they are freed, for the whole process: by default its
// threshold grows, and they then leave holes in the heap. Call it first.
void steady_malloc();

// Resident bytes of this process, after malloc has returned its free memory to the system: unused
// pages are no leak, and when they go back by themselves is chance.
int64_t resident_bytes();

// Bytes that malloc has handed out and not got back: what a leak is made of, without fragments.
int64_t heap_bytes();

}  // namespace nereid::soak
