// Arguments of a built-in function by name, with Python's error messages.
#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>

#include "text/jinja/evaluator.h"

namespace nereid::text::jinja {

class ArgReader {
 public:
  // Matches `args` with the parameters `names` of `function`. Throws Error for arguments that are
  // too many, unknown, given twice, or fewer than `required`.
  ArgReader(Evaluator& evaluator, const Args& args, std::string_view function,
            std::initializer_list<std::string_view> names, size_t required = 0);

  // Null when absent.
  const Value* get(size_t i) const { return values_[i]; }
  bool given(size_t i) const { return values_[i] != nullptr; }
  Value value(size_t i, Value fallback = None{}) const {
    return given(i) ? *values_[i] : std::move(fallback);
  }
  bool flag(size_t i, bool fallback) const { return given(i) ? get(i)->truthy() : fallback; }
  int64_t integer(size_t i, int64_t fallback) const;
  // None counts as absent.
  std::string text(size_t i, std::string_view fallback) const;

 private:
  static constexpr size_t kMaxParameters = 8;
  Evaluator& evaluator_;
  std::string_view function_;
  std::array<std::string_view, kMaxParameters> names_;
  std::array<const Value*, kMaxParameters> values_{};
};

}  // namespace nereid::text::jinja
