// Fused calls for steps of few rows: a FusedLinear replaces a Linear and the norm, gated activation
// or rounding next to it, whose launch costs as much as its work.
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
// A multiple of any model's call count. Time and memory of the search are quadratic in it, and an
// engine file may have a million calls.
inline constexpr size_t kMaxCallsToFuse = 4096;

// Memory of a value between fused products, outside the arenas.
struct FusedValue {
  int64_t offset = io::kNone;  // bytes; kNone: where the plan has it
  DType dtype = DType::kF32;
  int64_t cols = 0;

  bool operator==(const FusedValue&) const = default;
};

// The calls of a step.
struct FusedCalls {
  struct Call {
    size_t index = 0;                                 // index in the plan
    std::optional<kernels::ids::FusedLinear> linear;  // replaces the Linear
  };
  std::vector<Call> calls;
  std::vector<FusedValue> values;  // by id; ids beyond the plan's: sums of squares
};

// Calls between products that fused products can replace: RMS norm with residual add, gated
// activation, rounding of rows to f8e4m3. Conditions: the only reader is the product behind it, and
// its only input is the result of the product before it (rounding: of any call). Plans of more than
// kMaxCallsToFuse calls have none.
class FusionSites {
 public:
  explicit FusionSites(const io::Plan& plan);  // must outlive this

  // Memory for kMaxFusedRows rows of all values; 0: no fusable call.
  size_t bytes() const { return bytes_; }

  // Whether the kernel of the plan's Linear can run `linear` with these values.
  using Can = std::function<bool(const kernels::ids::FusedLinear& linear, const std::string& kernel,
                                 const std::vector<FusedValue>& values)>;
  // Replaces as many calls as `can` allows; without calls if none.
  FusedCalls choose(const Can& can) const;

 private:
  // A call that can be fused into the products next to it.
  struct FusionSite {
    size_t call = 0;
    int32_t front = io::kNone;   // the Linear before it
    std::vector<size_t> behind;  // the Linears behind it
    bool rounds = false;         // the Linears behind round their own rows
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
  std::vector<FusionSite> places_;
  std::vector<int32_t> front_, end_;  // by call (Linear): its fusable neighbours
  std::vector<FusedValue> values_;    // with every fusable call replaced
  size_t bytes_ = 0;
};

}  // namespace nereid::exec
