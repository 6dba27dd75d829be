// Tool calls whose names and arguments are between markers.
#include <algorithm>
#include <string>

#include "base/blanks.h"
#include "front/output/tool_readers.h"
#include "front/output/tool_schema.h"

namespace nereid::front {
namespace {

constexpr size_t kMaxHeadBytes = 256;  // of a name or key with its attributes

// A cursor on a text. After a mismatch, or text that is not complete yet, every further call fails.
class Tags {
 public:
  Tags(std::string_view text, bool final) : text_(text), final_(final) {}

  bool is_good() const { return state_ == State::kGood; }
  bool is_short() const { return state_ == State::kShort; }
  std::string_view rest() const { return text_.substr(at_); }
  size_t at() const { return at_; }

  // The text read is a call only if the model ended its answer itself.
  void needs_end() { needs_end_ = true; }
  // Whether the answer ends here.
  bool is_at_end() const { return is_good() && final_ && rest().empty(); }
  void skip_blanks() {
    if (!is_good()) return;
    at_ = std::min(text_.find_first_not_of(kBlanks, at_), text_.size());
  }
  // Whether `mark` is next; fails when that is not certain.
  bool sees(std::string_view mark) {
    if (!is_good()) return false;
    if (rest().starts_with(mark)) return true;
    if (mark.starts_with(rest())) run_out();
    return false;
  }
  bool may_take(std::string_view mark) {
    if (!sees(mark)) return false;
    at_ += mark.size();
    return true;
  }
  void take(std::string_view mark) {
    if (!may_take(mark)) fail();
  }
  // The text before `mark`, on one line and short; skips both.
  std::string_view head(std::string_view mark) {
    if (!is_good()) return {};
    const std::string_view most = rest().substr(0, kMaxHeadBytes);
    const size_t end = most.find(mark);
    const size_t line = most.find('\n');
    if (end == most.npos || line < end) {
      if (line == most.npos && most.size() < kMaxHeadBytes)
        run_out();
      else
        fail();
      return {};
    }
    at_ += end + mark.size();
    return most.substr(0, end);
  }
  // The text before one of these characters, short.
  std::string_view up_to(std::string_view characters) {
    if (!is_good()) return {};
    const std::string_view most = rest().substr(0, kMaxHeadBytes);
    const size_t end = most.find_first_of(characters);
    if (end == most.npos) {
      if (most.size() < kMaxHeadBytes)
        run_out();
      else
        fail();
      return {};
    }
    at_ += end;
    return most.substr(0, end);
  }
  std::string_view name() {
    constexpr std::string_view kCharacters =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:";
    if (!is_good()) return {};
    const std::string_view name = rest().substr(0, rest().find_first_not_of(kCharacters));
    if (name.size() == rest().size()) return run_out(), std::string_view();
    if (name.empty()) return fail(), std::string_view();
    at_ += name.size();
    return name;
  }
  // Whether JSON may begin here, in a code block or without one.
  bool sees_json() const {
    return is_good() && (rest().starts_with('{') || rest().starts_with('`'));
  }
  bool sees_arguments() const {
    return is_good() && !rest().empty() &&
           std::string_view("{\"n").find(rest().front()) != rest().npos;
  }
  std::string arguments() {
    if (!is_good()) return {};
    LiteralReader in(rest());
    auto value = in.arguments();
    if (!value && in.ran_out()) return run_out(), "";
    at_ += in.at();
    if (!value) return fail(), "";
    return *std::move(value);
  }
  // Arguments in JSON, in a code block or without one, with the blanks around. False: none.
  bool may_take_arguments(std::string& out) {
    constexpr std::string_view kFence = "```";
    skip_blanks();
    const bool is_fenced = may_take(kFence);
    if (is_fenced) may_take("json");
    skip_blanks();
    const bool has_arguments = sees_arguments();
    if (has_arguments) out = arguments();
    skip_blanks();
    if (is_fenced && !is_at_end()) may_take(kFence);
    skip_blanks();
    return has_arguments;
  }

  void fail() {
    if (is_good()) state_ = State::kBad;
  }
  // The text is truncated.
  void run_out() {
    if (is_good()) state_ = State::kShort;
  }
  void go_to(size_t at) { at_ = at; }
  bool final() const { return final_; }
  std::string_view text() const { return text_; }

  CallsRead result(ToolCall call) const {
    if (is_good()) {
      CallsRead read = found_calls(at_, {std::move(call)});
      read.needs_end = needs_end_;
      return read;
    }
    return not_calls(state_ == State::kShort, final_, std::max<size_t>(at_, 1), text_.size());
  }

 private:
  enum class State { kGood, kShort, kBad };

  std::string_view text_;
  bool final_;
  size_t at_ = 0;
  State state_ = State::kGood;
  bool needs_end_ = false;
};

// The markers of a format. `wrapper` encloses one call or several.
struct Dialect {
  std::string_view wrapper, wrapper_end;
  std::string_view call, call_end;  // a name is behind `call`, up to `head_end`
  std::string_view parameter, parameter_end;
  std::string_view head_end = ">";
  bool has_breaks = false;  // values are on lines of their own
};

// Whether a marker is at a position.
enum class Seen { kNo, kYes, kNotYet };

Seen seen(std::string_view text, std::string_view mark, bool final) {
  if (text.starts_with(mark)) return Seen::kYes;
  return !final && mark.starts_with(text) ? Seen::kNotYet : Seen::kNo;
}

// An attribute of a head: `name="f"` or, where the dialect has no attributes, all of it.
std::string_view attribute(std::string_view head, std::string_view name) {
  const size_t at = head.find(name);
  if (at == head.npos) return {};
  head.remove_prefix(at + name.size());
  if (head.empty() || (head.front() != '"' && head.front() != '\'')) return {};
  const char quote = head.front();
  head.remove_prefix(1);
  return head.substr(0, head.find(quote));
}

std::string_view name_in(std::string_view head) {
  head = without_blanks(head);
  const bool is_quoted = head.starts_with('"') || head.starts_with('\'');
  return without_blanks(is_quoted ? attribute(head, "") : head);
}

// Finds the end of a parameter's value, which may itself contain markers, and whose end
// marker may be missing.
class ValueEnd {
 public:
  ValueEnd(const Dialect& marks, Tags& in, const json::array* tools, std::string_view tool,
           const JsonMembers& earlier)
      : marks_(marks), in_(in), tools_(tools), tool_(tool), earlier_(earlier) {}

  std::string_view take() {
    if (!in_.is_good()) return {};
    const std::string_view text = in_.text();
    begin_ = in_.at();
    size_t closed = text.npos;  // the first end marker with unexpected text behind it
    for (size_t at = text.find('<', begin_); at != text.npos; at = text.find('<', at + 1)) {
      const std::string_view rest = text.substr(at);
      Seen end = seen(rest, marks_.parameter_end, in_.final());
      if (end == Seen::kYes) {
        const size_t behind = at + marks_.parameter_end.size();
        const Seen goes_on = is_layout(text.substr(behind));
        if (goes_on == Seen::kYes) return take_to(at, behind);
        if (goes_on == Seen::kNo) closed = std::min(closed, at);
        end = goes_on;
      } else if (end == Seen::kNo) {
        end = is_next_parameter(at);
        if (end == Seen::kNo) end = is_end_of_call(at);
        if (end == Seen::kYes) {
          std::string_view value = take_to(std::min(closed, at), at);
          if (!marks_.has_breaks && value.ends_with('\n')) value.remove_suffix(1);
          return value;
        }
      }
      if (end == Seen::kNotYet) break;
    }
    in_.run_out();
    return {};
  }

 private:
  std::string_view take_to(size_t end, size_t behind) {
    in_.go_to(behind);
    std::string_view value = in_.text().substr(begin_, end - begin_);
    if (marks_.has_breaks && value.starts_with('\n')) value.remove_prefix(1);
    if (marks_.has_breaks && value.ends_with('\n')) value.remove_suffix(1);
    return value;
  }
  bool begins_line(size_t at) const { return at > 0 && in_.text()[at - 1] == '\n'; }

  // Whether blanks and one of the markers after a value follow.
  Seen is_layout(std::string_view text) const {
    text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
    Seen out = Seen::kNo;
    for (const std::string_view mark : {marks_.parameter, marks_.call_end, marks_.wrapper_end}) {
      const Seen one = seen(text, mark, in_.final());
      if (one == Seen::kYes) return one;
      if (one == Seen::kNotYet) out = one;
    }
    return out;
  }

  // For a known tool a parameter of it, else any at the beginning of a line.
  Seen is_next_parameter(size_t at) const {
    const std::string_view rest = in_.text().substr(at);
    const Seen opens = seen(rest, marks_.parameter, in_.final());
    if (opens != Seen::kYes) return opens;
    Tags head(rest.substr(marks_.parameter.size()), in_.final());
    const std::string_view key = head.head(marks_.head_end);
    if (!head.is_good()) return head.is_short() && !in_.final() ? Seen::kNotYet : Seen::kNo;
    const std::string name(name_in(key));
    const Known known = has_parameter(tools_, tool_, name);
    const bool is_next = known == Known::kNotSaid
                             ? begins_line(at)
                             : known == Known::kYes && !earlier_.contains(name);
    return is_next ? Seen::kYes : Seen::kNo;
  }

  // Whether only the layout of calls, or the end, follows.
  Seen is_end_of_call(size_t at) const {
    std::string_view rest = in_.text().substr(at);
    for (const std::string_view mark : {marks_.call_end, marks_.wrapper_end}) {
      const Seen ends = seen(rest, mark, in_.final());
      if (ends == Seen::kNotYet) return ends;
      if (ends == Seen::kNo) continue;
      if (!begins_line(at) && mark != marks_.call_end) return Seen::kNo;
      rest.remove_prefix(mark.size());
      rest.remove_prefix(std::min(rest.find_first_not_of(kBlanks), rest.size()));
      if (rest.empty()) {
        if (!in_.final()) return Seen::kNotYet;
        in_.needs_end();  // a value that is cut may have the mark in it
        return Seen::kYes;
      }
      Seen out = Seen::kNo;
      for (const std::string_view next : {marks_.wrapper_end, marks_.wrapper, marks_.call}) {
        if (!begins_line(at) && next != marks_.wrapper_end) continue;
        const Seen one = seen(rest, next, in_.final());
        if (one == Seen::kYes) return one;
        if (one == Seen::kNotYet) out = one;
      }
      return out;
    }
    return Seen::kNo;
  }

  const Dialect& marks_;
  Tags& in_;
  const json::array* tools_;
  const std::string_view tool_;
  const JsonMembers& earlier_;
  size_t begin_ = 0;
};

// JSON instead of the dialect's own calls, behind its opening marker.
CallsRead read_json_within(const ToolMarker& marker, const Tags& in, const json::array* tools) {
  CallsRead read = read_json(marker, in.rest(), in.final(), tools);
  read.length += in.at();
  return read;
}

CallsRead read_dialect(const Dialect& marks, const ToolMarker& marker, std::string_view text,
                       bool final, const json::array* tools) {
  Tags in(text, final);
  ToolCall call;
  const bool is_wrapped = in.may_take(marks.wrapper);
  in.skip_blanks();
  if (is_wrapped && in.sees_json()) return read_json_within(marker, in, tools);
  in.take(marks.call);
  call.name = name_in(in.head(marks.head_end));
  if (in.is_good() && (call.name.empty() || (!is_wrapped && !may_be_tool(tools, call.name))))
    in.fail();
  JsonMembers arguments;
  std::string object;
  while (in.is_good()) {
    in.skip_blanks();
    if (in.may_take(marks.call_end) || in.sees(marks.wrapper_end)) break;
    if (in.may_take(marks.parameter)) {
      const std::string_view head = in.head(marks.head_end);
      const std::string key(name_in(head));
      arguments.add(key, "null");  // until its value is known
      const std::string_view text_of_value =
          ValueEnd(marks, in, tools, call.name, arguments).take();
      const std::string_view is_text = attribute(head, "string=");
      std::string value = is_text == "true" ? json_string(text_of_value)
                          : is_text == "false"
                              ? json_of(text_of_value).value_or(json_string(text_of_value))
                              : value_json(tools, call.name, key, text_of_value);
      arguments.add(key, std::move(value));
    } else if (in.is_good() && object.empty() && arguments.empty() && in.rest().starts_with('{')) {
      object = in.arguments();
    } else {
      in.fail();
    }
  }
  call.arguments = object.empty() ? arguments.text() : object;
  return in.result(std::move(call));
}

}  // namespace

CallsRead read_qwen_coder(const ToolMarker& marker, std::string_view text, bool final,
                          const json::array* tools) {
  constexpr Dialect kMarks = {"<tool_call>", "</tool_call>", "<function=", "</function>",
                              "<parameter=", "</parameter>", ">",          /*has_breaks=*/true};
  return read_dialect(kMarks, marker, text, final, tools);
}

CallsRead read_seed(const ToolMarker& marker, std::string_view text, bool final,
                    const json::array* tools) {
  constexpr Dialect kMarks = {"<seed:tool_call>", "</seed:tool_call>", "<function=",
                              "</function>",      "<parameter=",       "</parameter>"};
  return read_dialect(kMarks, marker, text, final, tools);
}

CallsRead read_minimax(const ToolMarker& marker, std::string_view text, bool final,
                       const json::array* tools) {
  constexpr Dialect kMarks = {"<minimax:tool_call>", "</minimax:tool_call>", "<invoke name=",
                              "</invoke>",           "<parameter name=",     "</parameter>"};
  return read_dialect(kMarks, marker, text, final, tools);
}

CallsRead read_deepseek_v32(const ToolMarker& marker, std::string_view text, bool final,
                            const json::array* tools) {
  constexpr Dialect kMarks = {"<｜DSML｜function_calls>", "</｜DSML｜function_calls>",
                              "<｜DSML｜invoke name=",    "</｜DSML｜invoke>",
                              "<｜DSML｜parameter name=", "</｜DSML｜parameter>"};
  return read_dialect(kMarks, marker, text, final, tools);
}

CallsRead read_glm(const ToolMarker& marker, std::string_view text, bool final,
                   const json::array* tools) {
  constexpr Dialect kMarks = {"<tool_call>", "</tool_call>", "<tool_call>", "</tool_call>",
                              "<arg_key>",   "</arg_value>", "</arg_key>"};
  Tags in(text, final);
  in.take(kMarks.call);
  in.skip_blanks();
  if (in.sees_json()) return read_json_within(marker, in, tools);
  ToolCall call{std::string(in.name()), ""};
  JsonMembers arguments;
  while (in.is_good()) {
    in.skip_blanks();
    if (in.may_take(kMarks.call_end)) break;
    in.take(kMarks.parameter);
    const std::string key(without_blanks(in.head(kMarks.head_end)));
    in.skip_blanks();
    in.take("<arg_value>");
    arguments.add(key, "null");  // until its value is known
    const std::string_view value = ValueEnd(kMarks, in, tools, call.name, arguments).take();
    arguments.add(key, value_json(tools, call.name, key, value));
  }
  call.arguments = arguments.text();
  return in.result(std::move(call));
}

// Without a marker between them a tool's name precedes the arguments.
CallsRead read_deepseek(const ToolMarker&, std::string_view text, bool final,
                        const json::array* tools) {
  constexpr std::string_view kBegin = "<｜tool▁call▁begin｜>", kEnd = "<｜tool▁call▁end｜>",
                             kAllBegin = "<｜tool▁calls▁begin｜>", kAllEnd = "<｜tool▁calls▁end｜>";
  Tags in(text, final);
  in.may_take(kAllBegin);
  in.skip_blanks();
  in.take(kBegin);
  in.skip_blanks();
  std::string_view name = without_blanks(in.up_to("<{`\n"));
  const bool is_separated = in.may_take("<｜tool▁sep｜>");
  const auto is_over = [&] { return in.sees(kEnd) || in.sees(kAllEnd) || in.sees(kBegin); };
  in.skip_blanks();
  const bool is_v3 = is_separated && in.is_good() && !in.sees("{") && !in.sees("\"") &&
                     !in.sees("null<") && !in.sees("```") && !is_over();
  if (is_v3) name = in.name();  // the text before it was the call's type
  ToolCall call{std::string(name), "{}"};
  const bool has_arguments = in.may_take_arguments(call.arguments);
  const bool ends = has_arguments && in.is_at_end();
  if (name.empty() || (!is_separated && !may_be_tool(tools, name))) in.fail();
  if (in.is_good() && !ends && !in.may_take(kEnd) && !is_over()) in.fail();
  return in.result(std::move(call));
}

CallsRead read_kimi(const ToolMarker&, std::string_view text, bool final, const json::array*) {
  constexpr std::string_view kBegin = "<|tool_call_begin|>", kEnd = "<|tool_call_end|>",
                             kArguments = "<|tool_call_argument_begin|>";
  Tags in(text, final);
  if (!in.may_take("<|tool_calls_section_begin|>")) in.may_take("<|tool_call_section_begin|>");
  in.skip_blanks();
  in.take(kBegin);
  const std::string_view id = without_blanks(in.head("<|"));  // functions.NAME:INDEX
  std::string_view name = id;
  if (name.starts_with("functions.")) name.remove_prefix(10);
  name = name.substr(0, name.rfind(':'));
  ToolCall call{std::string(name), "{}", name.size() < id.size() ? std::string(id) : ""};
  if (in.is_good()) in.go_to(in.at() - 2);
  const bool has_arguments = in.may_take(kArguments) && in.may_take_arguments(call.arguments);
  in.skip_blanks();
  const bool ends = has_arguments && in.is_at_end();
  const auto is_over = [&] {
    return in.sees("<|tool_calls_section_end|>") || in.sees("<|tool_call_section_end|>") ||
           in.sees(kBegin);
  };
  if (name.empty() || (in.is_good() && !ends && !in.may_take(kEnd) && !is_over())) in.fail();
  return in.result(std::move(call));
}

}  // namespace nereid::front
