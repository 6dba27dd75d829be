// Checks common to graph and plan: an op's operands exist and agree with its declaration.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/plan.h"
#include "kernels/api/validate.h"

namespace nereid::io {

class OpChecker {
 public:
  // `weights`: shape, format and layout, without addresses.
  OpChecker(const ModelFacts& model, std::span<const Value> values,
            std::vector<kernels::WeightView> weights)
      : model_(model), values_(values), weights_(std::move(weights)) {}

  // InvalidArgument with the operand.
  template <class Op>
  Status check(const Op& op) const {
    RETURN_IF_ERROR(check_ids(op));
    const std::string wrong = kernels::shape_error(kernels::look_up(op, *this));
    if (!wrong.empty()) return invalid_argument("{}", wrong);
    return check_rows(op);
  }

  // For look_up(): no addresses, one row.
  View value(ValueId id) const {
    const Value& v = values_[static_cast<size_t>(id)];
    return {nullptr, v.dtype, 1, v.cols, std::max(v.stride, v.cols)};
  }
  kernels::WeightView weight(WeightId id) const { return weights_[static_cast<size_t>(id)]; }
  kernels::AnglesView angles(int32_t id) const {
    const RopeTable& rope = model_.ropes[static_cast<size_t>(id)];
    return {nullptr, static_cast<int64_t>(2 * rope.inverse_frequencies.size()),
            !rope.components.empty()};
  }
  template <class Op>
  kernels::CacheView cache(int32_t, const Op&) const {
    return {};
  }

 private:
  template <class Op>
  Status check_ids(const Op& op) const {
    using kernels::Role;
    Status status;
    kernels::for_fields(op, [&](const auto& field, const auto& id) {
      constexpr Role kRole = std::remove_cvref_t<decltype(field)>::kRole;
      if constexpr (kRole != Role::kAttribute && kRole != Role::kStep) {
        if (!status.ok() || (id == kNone && field.optional)) return;
        const auto [size, what] = table_of(kRole, kIsCross<Op>);
        if (id == kNone)
          status = invalid_argument("'{}' is missing", field.name);
        else if (id < 0 || static_cast<size_t>(id) >= size)
          status = invalid_argument("'{}': no {} {}", field.name, what, int32_t{id});
      }
    });
    return status;
  }
  std::pair<size_t, std::string_view> table_of(kernels::Role role, bool is_cross) const {
    using kernels::Role;
    if (role == Role::kMatrix || role == Role::kVector) return {weights_.size(), "weight"};
    if (role == Role::kAngles) return {model_.ropes.size(), "rotary table"};
    if (role == Role::kCache)
      return {static_cast<size_t>(is_cross ? model_.num_cross_layers : model_.num_layers), "layer"};
    return {values_.size(), "value"};
  }

  template <class Op>
  Status check_rows(const Op& op) const {
    using kernels::Role;
    const RowCount common = extent_of(op);
    Status status;
    kernels::for_fields(op, [&](const auto& field, const auto& id) {
      constexpr Role kRole = std::remove_cvref_t<decltype(field)>::kRole;
      if constexpr (kRole == Role::kIn || kRole == Role::kOut) {
        if (!status.ok() || id == kNone) return;
        const RowCount wanted = field.rows == kernels::OutputRows::kTokens    ? RowCount::kTokens
                                : field.rows == kernels::OutputRows::kSampled ? RowCount::kSampled
                                                                              : common;
        const Value& v = values_[static_cast<size_t>(id)];
        if (v.extent != wanted)
          status =
              invalid_argument("'{}': value '{}' has the wrong kind of rows", field.name, v.name);
      }
    });
    return status;
  }

 public:
  // The extent of the op's first output.
  template <class Op>
  RowCount extent_of(const Op& op) const {
    RowCount extent = RowCount::kTokens;
    bool found = false;
    kernels::for_fields(op, [&](const auto& field, const auto& id) {
      if constexpr (std::remove_cvref_t<decltype(field)>::kRole == kernels::Role::kOut) {
        if (!found) extent = values_[static_cast<size_t>(id)].extent;
        found = true;
      }
    });
    return extent;
  }

 private:
  const ModelFacts& model_;
  std::span<const Value> values_;
  std::vector<kernels::WeightView> weights_;
};

}  // namespace nereid::io
