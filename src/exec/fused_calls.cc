#include "exec/fused_calls.h"

#include <algorithm>
#include <ranges>

#include "base/round_up.h"
#include "exec/value_flow.h"

namespace nereid::exec {
namespace {

using io::kNone;
using kernels::ids::Glu;
using kernels::ids::Linear;
using kernels::ids::Norm;
using kernels::ids::Quantize;

constexpr int64_t kAlignment = 256;
// Minimum number of calls between the last reader of a value and the next value in its memory: a
// kernel may start before the previous one has ended.
constexpr size_t kDistance = 2;

// Whether the output must share an input's memory.
bool is_in_place(const io::Op& op, io::ValueId id) {
  bool found = false;
  std::visit(
      [&](const auto& call) {
        kernels::for_fields(call, [&](const auto& field, const auto& operand) {
          if constexpr (std::remove_cvref_t<decltype(field)>::kRole == kernels::Role::kOut)
            found |= operand == id && !field.replaces.empty();
        });
      },
      op);
  return found;
}

}  // namespace

class FusionSites::Finder {
 public:
  explicit Finder(FusionSites& out) : out_(out), plan_(out.plan_), flow_(plan_) {}

  void find() {
    std::vector<size_t> makers;
    for (size_t i = 1; i < plan_.calls.size(); ++i) {
      FusionSite place{.call = i};
      const auto maker =
          std::visit([&](const auto& op) { return look_at(op, place); }, plan_.calls[i].op);
      if (maker == kNone) continue;
      const auto index = static_cast<int32_t>(out_.places_.size());
      for (const size_t behind : place.behind) out_.front_[behind] = index;
      if (place.front != kNone) out_.end_[static_cast<size_t>(place.front)] = index;
      makers.push_back(static_cast<size_t>(maker));
      out_.places_.push_back(std::move(place));
    }
    out_.place_values(makers);
  }

 private:
  const io::Value& value(io::ValueId id) const { return plan_.values[static_cast<size_t>(id)]; }
  bool is_rounded(io::ValueId id) const { return value(id).dtype == DType::kF8E4M3; }

  // Returns the call that writes the fusable call's input; kNone: not fusable.
  template <class Op>
  int32_t look_at(const Op&, FusionSite&) {
    return kNone;
  }
  int32_t look_at(const Norm& norm, FusionSite& place) {
    const io::PlanWeight& weight = plan_.weights[static_cast<size_t>(norm.weight)];
    const bool is_plain = is_given(norm.add) && !is_given(norm.factors) &&
                          !is_given(norm.rounded) && !is_given(norm.bias) && !norm.centered &&
                          weight.k == value(norm.x).cols &&
                          (norm.piece == 0 || norm.piece == weight.k);
    if (!is_plain || !lies_between(norm.add, norm.out, norm.scales, place)) return kNone;
    place.squares = static_cast<io::ValueId>(plan_.values.size() + out_.places_.size());
    return place.front;
  }
  int32_t look_at(const Glu& glu, FusionSite& place) {
    return lies_between(glu.x, glu.out, glu.scales, place) ? place.front : kNone;
  }
  int32_t look_at(const Quantize& quantize, FusionSite& place) {
    const io::ValueId x = quantize.x;
    const int32_t maker = flow_.writer_of(place.call, x);
    if (maker == kNone || !is_rounded(quantize.out) || flow_.num_writes(x) != 1) return kNone;
    const auto call = static_cast<size_t>(maker);
    if (flow_.reads_of(call, x).size() != 1 || is_in_place(plan_.calls[call].op, x)) return kNone;
    place.value = x;
    return feeds_products(quantize.out, quantize.scales, place) ? maker : kNone;
  }

  // Whether a Linear directly before is the only writer of `in` and this call its only reader, and
  // all readers of `out` are Linears.
  bool lies_between(io::ValueId in, io::ValueId out, io::ValueId scales, FusionSite& place) {
    const size_t front = place.call - 1;
    const auto* const linear = std::get_if<Linear>(&plan_.calls[front].op);
    if (!linear || flow_.reads_of(front, in).size() != 1) return false;
    if (flow_.writer_of(place.call, in) != static_cast<int32_t>(front)) return false;
    place.front = static_cast<int32_t>(front);
    place.value = out;
    return feeds_products(out, scales, place);
  }

  // Whether `out` (with its scales) has readers and all are Linears.
  bool feeds_products(io::ValueId out, io::ValueId scales, FusionSite& place) {
    const DType type = value(out).dtype;
    if (flow_.num_writes(out) != 1 || (type != DType::kBF16 && type != DType::kF8E4M3))
      return false;
    place.rounds = is_rounded(out);
    if (is_given(kernels::Id(scales)) != place.rounds) return false;
    for (const ValueFlow::Read& read : flow_.reads_of(place.call, out)) {
      if (!is_of_product(read, out, place.call)) return false;
      const auto& linear = std::get<Linear>(plan_.calls[read.call].op);
      if (linear.x != out || linear.scales != scales) return false;
      place.behind.push_back(read.call);
    }
    if (place.rounds)
      for (const ValueFlow::Read& read : flow_.reads_of(place.call, scales))
        if (!is_of_product(read, scales, place.call) ||
            !std::ranges::count(place.behind, read.call))
          return false;
    return !place.behind.empty();
  }
  bool is_of_product(const ValueFlow::Read& read, io::ValueId id, size_t writer) const {
    return read.id == id && read.call < plan_.calls.size() &&
           std::holds_alternative<Linear>(plan_.calls[read.call].op) &&
           flow_.writer_of(read.call, id) == static_cast<int32_t>(writer);
  }

  FusionSites& out_;
  const io::Plan& plan_;
  const ValueFlow flow_;
};

FusionSites::FusionSites(const io::Plan& plan)
    : plan_(plan), front_(plan.calls.size(), kNone), end_(plan.calls.size(), kNone) {
  if (plan.calls.size() <= kMaxCallsToFuse) Finder(*this).find();
}

// Values of equal size share memory if their lifetimes are kDistance calls apart.
void FusionSites::place_values(const std::vector<size_t>& makers) {
  struct Slot {
    int64_t offset, bytes;
    size_t last_reader;
  };
  std::vector<Slot> slots;
  int64_t end = 0;
  values_.resize(plan_.values.size() + places_.size());
  const auto place = [&](io::ValueId id, DType type, int64_t cols, size_t maker, size_t reader) {
    const int64_t bytes =
        round_up(kMaxFusedRows * cols * static_cast<int64_t>(size_of(type)), kAlignment);
    auto slot = std::ranges::find_if(slots, [&](const Slot& s) {
      return s.bytes == bytes && s.last_reader + kDistance < maker;
    });
    if (slot == slots.end()) {
      slot = slots.insert(slot, {end, bytes, 0});
      end += bytes;
    }
    slot->last_reader = reader;
    values_[static_cast<size_t>(id)] = {slot->offset, type, cols};
  };
  for (size_t i = 0; i < places_.size(); ++i) {
    const FusionSite& p = places_[i];
    const size_t reader = std::ranges::max(p.behind);
    const int64_t cols = plan_.values[static_cast<size_t>(p.value)].cols;
    place(p.value, DType::kBF16, cols, makers[i], reader);
    if (p.squares != kNone)
      place(p.squares, DType::kF32, kernels::kFusedSquares, makers[i], reader);
  }
  bytes_ = static_cast<size_t>(end);
}

std::vector<FusedValue> FusionSites::values_of(const std::vector<bool>& used) const {
  std::vector<FusedValue> values(values_.size());
  for (size_t i = 0; i < places_.size(); ++i) {
    if (!used[i]) continue;
    for (const io::ValueId id : {places_[i].value, places_[i].squares})
      if (id != kNone) values[static_cast<size_t>(id)] = values_[static_cast<size_t>(id)];
  }
  return values;
}

// nullopt: a FusedLinear cannot read its x.
std::optional<kernels::ids::FusedLinear> FusionSites::linear_of(
    size_t call, const std::vector<bool>& used) const {
  const auto place_at = [&](int32_t index) -> const FusionSite* {
    return index != kNone && used[static_cast<size_t>(index)] ? &places_[static_cast<size_t>(index)]
                                                              : nullptr;
  };
  const auto& linear = std::get<Linear>(plan_.calls[call].op);
  kernels::ids::FusedLinear fused{
      .x = linear.x, .weight = linear.weight, .bias = linear.bias, .out = linear.out};
  if (const FusionSite* const front = place_at(front_[call])) {
    fused.x = front->value;
    fused.rounds = front->rounds;
    fused.x_squares = front->squares;
    if (const auto* norm = std::get_if<Norm>(&plan_.calls[front->call].op)) fused.eps = norm->eps;
  } else if (plan_.values[static_cast<size_t>(linear.x)].dtype != DType::kBF16) {
    return std::nullopt;
  }
  const FusionSite* const end = place_at(end_[call]);
  if (!end) return fused;
  fused.out = end->value;
  if (const auto* glu = std::get_if<Glu>(&plan_.calls[end->call].op)) {
    fused.gated = true;
    fused.activation = glu->activation;
    fused.limit = glu->limit;
    fused.up_offset = glu->up_offset;
    return fused;
  }
  const auto& norm = std::get<Norm>(plan_.calls[end->call].op);
  fused.residual = norm.x;
  fused.norm = norm.weight;
  fused.norm_offset = norm.weight_offset;
  fused.sum = norm.sum;
  fused.squares = end->squares;
  return fused;
}

// Clears `used` of one fusable call at each product without a kernel; false: none was cleared.
bool FusionSites::drop_what_cannot(std::vector<bool>& used, const Can& can) const {
  const std::vector<FusedValue> values = values_of(used);
  bool dropped = false;
  const auto check = [&](size_t call, size_t place) {
    const auto linear = linear_of(call, used);
    const std::string& kernel = plan_.calls[call].kernel;
    if (linear && !kernel.empty() && can(*linear, kernel, values)) return;
    used[place] = false;
    dropped = true;
  };
  for (size_t i = 0; i < places_.size(); ++i)
    if (used[i] && places_[i].front != kNone) check(static_cast<size_t>(places_[i].front), i);
  for (size_t i = 0; i < places_.size() && !dropped; ++i)
    if (used[i] && places_[i].must_fuse_behind())
      for (const size_t call : places_[i].behind) check(call, i);
  return dropped;
}

FusedCalls FusionSites::choose(const Can& can) const {
  std::vector<bool> used(places_.size(), true), is_left_out(plan_.calls.size());
  while (drop_what_cannot(used, can)) continue;
  FusedCalls chosen;
  if (!std::ranges::count(used, true)) return chosen;
  chosen.values = values_of(used);
  const auto is_used = [&](int32_t place) {
    return place != kNone && used[static_cast<size_t>(place)];
  };
  for (size_t i = 0; i < places_.size(); ++i)
    if (used[i]) is_left_out[places_[i].call] = true;
  for (size_t i = 0; i < plan_.calls.size(); ++i) {
    if (is_left_out[i]) continue;
    FusedCalls::Call& call = chosen.calls.emplace_back(FusedCalls::Call{.index = i, .linear = {}});
    const bool fuses =
        is_used(end_[i]) ||
        (is_used(front_[i]) && places_[static_cast<size_t>(front_[i])].must_fuse_behind());
    if (fuses) call.linear = linear_of(i, used);
  }
  return chosen;
}

}  // namespace nereid::exec
