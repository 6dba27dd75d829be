// A Jinja template: parsed once, rendered many times.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "text/jinja/budget.h"

namespace nereid::text::jinja {

// The dialect of Jinja 3.1 that Hugging Face transformers uses for chat templates: trim_blocks,
// lstrip_blocks, loop controls, generation blocks, its tojson, raise_exception and strftime_now;
// without include, extends, import and block. Lists and dicts are immutable. Numbers are 64-bit
// integers and doubles. Immutable; render() is thread safe.
class Template {
 public:
  static constexpr size_t kMaxSourceBytes = size_t{4} << 20;

  // InvalidArgument "line N, column M: <what>".
  static StatusOr<std::shared_ptr<const Template>> parse(std::string_view source);
  ~Template();
  Template(const Template&) = delete;
  Template& operator=(const Template&) = delete;

  const std::string& source() const { return source_; }

  // InvalidArgument for errors of the template and raise_exception, ResourceExhausted beyond
  // `limits`; both begin with "line N: ". Cancelled: `limits.is_unwanted` has returned true.
  StatusOr<std::string> render(const json::object& context, const Limits& limits = {}) const;

 private:
  struct Tree;
  Template();
  std::unique_ptr<Tree> tree_;
  std::string source_;
};

}  // namespace nereid::text::jinja
