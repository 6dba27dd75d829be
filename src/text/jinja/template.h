// A Jinja template: parse once, render many times.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "text/jinja/budget.h"

namespace nereid::text::jinja {

// The dialect of Jinja 3.1 that Hugging Face transformers sets up for chat templates: trim_blocks,
// lstrip_blocks, loop controls, generation blocks, its tojson, raise_exception and strftime_now;
// without include, extends, import and block. Lists and dicts cannot be changed. Numbers are 64-bit
// integers and doubles. Immutable; render() is safe from many threads at once.
class Template {
 public:
  static constexpr size_t kMaxSourceBytes = size_t{4} << 20;

  // InvalidArgument "line N, column M: <what>".
  static StatusOr<std::shared_ptr<const Template>> parse(std::string_view source);
  ~Template();
  Template(const Template&) = delete;
  Template& operator=(const Template&) = delete;

  const std::string& source() const { return source_; }

  // InvalidArgument for errors in the template and its raise_exception calls, ResourceExhausted
  // when `limits` are exceeded; both begin with "line N: ". Cancelled when the text is unwanted.
  StatusOr<std::string> render(const json::object& context, const Limits& limits = {}) const;

 private:
  struct Tree;
  Template();
  std::unique_ptr<Tree> tree_;
  std::string source_;
};

}  // namespace nereid::text::jinja
