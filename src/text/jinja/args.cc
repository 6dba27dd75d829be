#include "text/jinja/args.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace nereid::text::jinja {

ArgReader::ArgReader(Evaluator& evaluator, const Args& args, std::string_view function,
                     std::initializer_list<std::string_view> names, size_t required)
    : evaluator_(evaluator), function_(function) {
  NEREID_CHECK(names.size() <= kMaxParameters);
  std::copy(names.begin(), names.end(), names_.begin());
  if (args.positional.size() > names.size()) {
    throw Error{fmt::format("{}() takes at most {} arguments, {} given", function, names.size(),
                            args.positional.size())};
  }
  for (size_t i = 0; i < args.positional.size(); ++i) values_[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto* found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      throw Error{fmt::format("{}() got an unexpected keyword argument '{}'", function, name)};
    }
    const Value*& slot = values_[static_cast<size_t>(found - names.begin())];
    if (slot != nullptr) {
      throw Error{fmt::format("{}() got multiple values for argument '{}'", function, name)};
    }
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (values_[i] == nullptr) {
      throw Error{fmt::format("{}() missing argument '{}'", function, names_[i])};
    }
  }
}

int64_t ArgReader::integer(size_t i, int64_t fallback) const {
  if (!given(i)) return fallback;
  if (!get(i)->is_integral()) {
    throw Error{fmt::format("{}() argument '{}' must be int, not {}", function_, names_[i],
                            get(i)->type_name())};
  }
  return get(i)->integer();
}

std::string ArgReader::text(size_t i, std::string_view fallback) const {
  if (!given(i) || get(i)->is_none()) return std::string(fallback);
  return evaluator_.str(*get(i));
}

}  // namespace nereid::text::jinja
