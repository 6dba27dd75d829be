// Checks of a kernel call's operands against the op's declaration.
#pragma once

#include <string>

#include "base/status.h"
#include "kernels/api/keys.h"
#include "kernels/api/ops.h"

namespace nereid::kernels {

inline std::string operand_text(const View& v) {
  return fmt::format("{} [{}, {}]", name_of(v.dtype), v.rows, v.cols);
}
inline std::string operand_text(const WeightView& w) {
  const std::string experts = w.experts > 1 ? fmt::format("{}, ", w.experts) : "";
  return fmt::format("{} [{}{}, {}]", text_of(w.format), experts, w.n, w.k);
}
inline std::string operand_text(const AnglesView& a) { return fmt::format("[{}]", a.cols); }

// "x f32 [4, 64], weight bf16 [32, 64], activation silu, ...": operands, named attributes.
template <class Op>
std::string operands_text(const Op& op) {
  std::string text;
  const auto add = [&](std::string_view name, std::string_view what) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, what);
  };
  for_fields(op, [&](const auto& field, const auto& operand) {
    if constexpr (requires { operand_text(operand); }) {
      if (is_given(operand)) add(field.name, operand_text(operand));
    } else if constexpr (requires { names_of(operand); }) {
      add(field.name, names_of(operand)[static_cast<size_t>(operand)]);
    } else if constexpr (requires { operand.has_trees; }) {
      if (operand.has_trees) add(field.name, "with trees of drafts");
      if (operand.has_last) add(field.name, "with positions behind the query's");
    }
  });
  return text;
}

// Error in presence, types or widths of operands; "": none. Addresses and rows are not read.
template <class Op>
std::string shape_error(const Op& op) {
  std::string wrong;
  for_fields(op, [&](const auto& field, const auto& operand) {
    constexpr Role kRole = std::remove_cvref_t<decltype(field)>::kRole;
    if constexpr (requires { operand_text(operand); }) {
      if (!wrong.empty()) return;
      if (!is_given(operand)) {
        if (!field.optional) wrong = fmt::format("'{}' is missing", field.name);
        return;
      }
      if constexpr (kRole == Role::kIn || kRole == Role::kOut)
        if (!field.types.has(operand.dtype))
          wrong = fmt::format("'{}' is {} [{}], wanted {}", field.name, name_of(operand.dtype),
                              operand.cols, name_of(field.types.types[0]));
      if constexpr (kRole == Role::kMatrix) {
        std::string_view text = operand.format.scheme == Scheme::kFloat32
                                    ? "only a vector is f32"
                                    : format_error(operand.format);
        if (text.empty()) text = layout_error(operand.layout, operand.format, operand.k);
        if (!text.empty())
          wrong = fmt::format("'{}' {}: {}", field.name, operand_text(operand), text);
      }
      if constexpr (kRole == Role::kMatrix || kRole == Role::kVector)
        if (operand.experts < 1 || (operand.experts > 1 && !field.has_experts))
          wrong = fmt::format("'{}' {} has {} experts", field.name, operand_text(operand),
                              operand.experts);
      if constexpr (kRole == Role::kVector)
        if (operand.n != 1 || operand.layout != WeightLayout::kRowMajor ||
            operand.format != (field.is_exact ? kFloat32 : WeightFormat{}))
          wrong = fmt::format("'{}' {} is not a vector of {}", field.name, operand_text(operand),
                              text_of(field.is_exact ? kFloat32 : WeightFormat{}));
    }
  });
  if (!wrong.empty()) return wrong;
  const std::string_view text = Op::check(op);
  return text.empty() ? std::string() : fmt::format("{} ({})", text, operands_text(op));
}

// Whether all planes of the format other than data have addresses.
inline bool has_planes(const WeightView& w) {
  if (w.format.scheme == Scheme::kFloat4) return w.exponents != nullptr;
  return w.format.scheme != Scheme::kInteger ||
         (w.scales != nullptr && w.format.zeros == (w.zeros != nullptr) &&
          w.format.minima == (w.minima != nullptr) && w.format.ordered == (w.index != nullptr));
}

inline std::string_view cache_error(const CacheView& c) {
  if (c.type != DType::kBF16 && !has_kv_scales(c.type)) return "a cache of this type";
  if (c.block_tokens < 1 || c.window < 0 || c.sink < 0) return "sizes of the cache";
  if (c.block_stride < 1 || (has_kv_scales(c.type) && c.scale_stride < 1))
    return "a stride of blocks";
  if (!c.keys || !c.values) return "a cache without address";
  if (has_kv_scales(c.type) && (!c.key_scales || !c.value_scales)) return "a cache without scales";
  return {};
}

// Checks addresses, rows, strides and in-place memory of all operands. Errors: Internal.
template <class Op>
Status validate(const Op& op) {
  std::string wrong = shape_error(op);
  const int64_t rows = rows_of(op);
  if (wrong.empty() && rows < 1) wrong = fmt::format("{} rows", rows);
  for_fields(op, [&](const auto& field, const auto& operand) {
    constexpr Role kRole = std::remove_cvref_t<decltype(field)>::kRole;
    if (!wrong.empty()) return;
    if constexpr (kRole == Role::kCache) {
      wrong = std::string(cache_error(operand));
      if (wrong.empty() && operand.layout == KeyLayout::kPanels &&
          !make_panels(op.heads.dim, operand.block_tokens))
        wrong = fmt::format("blocks of {} tokens and heads of {} do not make panels",
                            operand.block_tokens, op.heads.dim);
    } else if constexpr (requires { operand_text(operand); }) {
      if (!is_given(operand)) return;
      bool good = operand.data != nullptr;
      if constexpr (kRole == Role::kMatrix) good = good && has_planes(operand);
      if constexpr (kRole == Role::kIn || kRole == Role::kOut)
        good = good && operand.stride >= operand.cols &&
               (field.rows == OutputRows::kTokens ? operand.rows >= 1 : operand.rows >= rows);
      if (!good)
        wrong = fmt::format("'{}' {} has no address or too few rows", field.name,
                            operand_text(operand));
      if constexpr (kRole == Role::kOut) {
        for_fields(op, [&](const auto& other, const auto& input) {
          if constexpr (std::remove_cvref_t<decltype(other)>::kRole == Role::kIn)
            if (!field.replaces.empty() && other.name == field.replaces &&
                (input.data != operand.data || input.stride != operand.stride))
              wrong = fmt::format("'{}' does not lie in place of '{}'", field.name, other.name);
        });
      }
    }
  });
  return wrong.empty() ? ok() : internal_error("{}: {}", Op::kName, wrong);
}

// See sample.h.
Status validate(const Sample& args);

}  // namespace nereid::kernels
