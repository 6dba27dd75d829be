// Which calls of a plan a FusedLinear can take the place of, in steps of few rows: there the ends
// of kernels cost as much as what norms, gated units and rounding do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/plan.h"

namespace nereid::exec {

inline constexpr int32_t kMaxFusedRows = 8;
// Several times what any model has. Time and memory to find the places grow with the square of a
// plan's calls, and engine files may have a million.
inline constexpr size_t kMaxCallsToFuse = 4096;

// Where a value lies that products hand to each other, in memory beside the arenas.
struct FusedValue {
  int64_t offset = io::kNone;  // bytes; kNone: it lies where the plan says
  DType dtype = DType::kF32;
  int64_t cols = 0;

  bool operator==(const FusedValue&) const = default;
};

// A step's calls.
struct FusedCalls {
  struct Call {
    size_t index = 0;                                 // in the plan
    std::optional<kernels::ids::FusedLinear> linear;  // in place of a Linear
  };
  std::vector<Call> calls;
  std::vector<FusedValue> values;  // by id; those behind the plan's are sums of squares
};

// What may be left out between the products of a plan: an RMS norm that adds to the residual
// stream, gated units, the rounding of rows to f8e4m3. What is left out has no reader but the
// product behind it, and reads nothing but the product's result in front of it (rounding: any
// call's). A plan of more than kMaxCallsToFuse calls has no such place.
class FusedPlaces {
 public:
  explicit FusedPlaces(const io::Plan& plan);  // which outlives it

  // Of memory for kMaxFusedRows rows of all values; 0: there is no place.
  size_t bytes() const { return bytes_; }

  // Whether a product can be run that way, its values being where they are said to be, by the
  // kernel that its Linear has in the plan.
  using Can = std::function<bool(const kernels::ids::FusedLinear& linear, const std::string& kernel,
                                 const std::vector<FusedValue>& values)>;
  // With as many places as `can` allows; without calls where that is none.
  FusedCalls choose(const Can& can) const;

 private:
  // A call that may be left out.
  struct Place {
    size_t call = 0;
    int32_t front = io::kNone;   // the Linear in front
    std::vector<size_t> behind;  // the Linears behind
    bool rounds = false;         // these round their rows themselves
    io::ValueId value = io::kNone, squares = io::kNone;
    bool must_fuse_behind() const { return rounds || squares != io::kNone; }
  };
  class Finder;

  std::vector<FusedValue> values_of(const std::vector<bool>& used) const;
  std::optional<kernels::ids::FusedLinear> linear_of(size_t call,
                                                     const std::vector<bool>& used) const;
  bool drop_what_cannot(std::vector<bool>& used, const Can& can) const;
  void place_values(const std::vector<size_t>& makers);

  const io::Plan& plan_;
  std::vector<Place> places_;
  std::vector<int32_t> front_, end_;  // by call: the places in front of a Linear and behind it
  std::vector<FusedValue> values_;    // with every place
  size_t bytes_ = 0;
};

}  // namespace nereid::exec
