// Recursive descent over the formats.
#include "text/grammar/structural_tag.h"

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "text/grammar/free_text.h"
#include "text/grammar/lark.h"
#include "text/grammar/regex_expr.h"
#include "text/grammar/schema/json_schema.h"
#include "text/grammar/schema/json_schema_refs.h"
#include "text/grammar/work_limit.h"

namespace nereid::text {
namespace {

using Texts = std::vector<std::string>;

class StructuralTag {
 public:
  explicit StructuralTag(WorkLimit& work) : work_(work) {}
  StatusOr<Rules> make(const json::value& root);

 private:
  // A tagged part: `body` is the rule of everything behind the begin marker.
  struct Tag {
    std::string begin;
    int32_t body = 0;
  };
  // Texts that end a tag; none: it ends wherever its content may.
  struct Ends {
    Texts texts;
    ExprPtr one;
  };
  struct Options {
    bool at_least_one = false, stop_after_first = false;
  };

  // Texts of the format, followed by `ends`.
  StatusOr<ExprPtr> format(const SchemaAt& at, const Ends& ends);
  StatusOr<ExprPtr> bounded(std::string_view type, const SchemaAt& at);
  StatusOr<ExprPtr> any_text(const SchemaAt& at, const Ends& ends);
  StatusOr<ExprPtr> elements(const SchemaAt& at, bool all, const Ends& ends);
  StatusOr<Tag> tag(const SchemaAt& at);
  StatusOr<Tag> structure(const SchemaAt& at);
  StatusOr<std::vector<Tag>> tags(const SchemaAt& at);
  StatusOr<ExprPtr> triggered_tags(const SchemaAt& at, const Ends& ends);
  StatusOr<ExprPtr> structures(const SchemaAt& at);
  StatusOr<ExprPtr> triggered(const SchemaAt& at, const std::vector<Tag>& tags,
                              const Texts& excludes, Options options, const Ends& ends);
  StatusOr<ExprPtr> tags_with_separator(const SchemaAt& at, const Ends& ends);
  StatusOr<ExprPtr> schema(const SchemaAt& at);
  StatusOr<ExprPtr> free_text(const SchemaAt& at, int32_t root, std::vector<EndWord> words,
                              const Texts& excludes, const Ends& ends);
  static ExprPtr with_ends(ExprPtr expr, const Ends& ends) {
    return ends.one ? sequence({std::move(expr), ends.one}) : expr;
  }
  int32_t add_rule(ExprPtr expr) {
    rules_.push_back(std::move(expr));
    return static_cast<int32_t>(rules_.size()) - 1;
  }

  Rules rules_;
  WorkLimit& work_;
};

Status error(const SchemaAt& at, std::string_view reason) {
  constexpr size_t kLongest = 500;
  return invalid_argument("structural_tag: '{}': {}", at.pointer.substr(0, kLongest), reason);
}

// The error in the inner text, after its position.
Status inner_error(const SchemaAt& at, const Status& status) { return error(at, message(status)); }

// Checks that an object has these members and no others.
Status check_members(const SchemaAt& at, std::initializer_list<std::string_view> needed,
                     std::initializer_list<std::string_view> optional = {}) {
  if (!at.value->is_object()) return error(at, "expected an object");
  for (const std::string_view key : needed)
    if (!at.find(key)) return error(at, fmt::format("'{}' is missing", key));
  for (const auto& [key, value] : at.object())
    if (std::ranges::find(needed, std::string_view(key)) == needed.end() &&
        std::ranges::find(optional, std::string_view(key)) == optional.end())
      return error(at[key],
                   fmt::format("it is not known; there are {}{}{}", fmt::join(needed, ", "),
                               optional.size() > 0 ? ", " : "", fmt::join(optional, ", ")));
  return ok();
}

StatusOr<std::string> text_of(const SchemaAt& at) {
  if (!at.value->is_string()) return error(at, "expected a text");
  return std::string(at.value->get_string());
}

StatusOr<Texts> texts_of(const SchemaAt& at) {
  if (!at.value->is_array()) return error(at, "expected an array of texts");
  Texts texts;
  for (size_t i = 0; i < at.value->get_array().size(); ++i) {
    ASSIGN_OR_RETURN(texts.emplace_back(), text_of(at[i]));
    if (texts.back().empty()) return error(at[i], "expected a text that is not empty");
  }
  return texts;
}

StatusOr<Texts> texts_of(const SchemaAt& at, std::string_view key) {
  return at.find(key) ? texts_of(at[key]) : Texts();
}

StatusOr<bool> flag_of(const SchemaAt& at, std::string_view key) {
  const json::value* value = at.find(key);
  if (!value) return false;
  if (!value->is_bool()) return error(at[key], "expected true or false");
  return value->get_bool();
}

StatusOr<Rules> StructuralTag::make(const json::value& root) {
  const SchemaAt at{&root, ""};
  rules_.emplace_back();
  if (at.value->is_object() && at.find("format")) {
    RETURN_IF_ERROR(check_members(at, {"format"}, {"type"}));
    ASSIGN_OR_RETURN(rules_[0], format(at["format"], {}));
  } else {
    RETURN_IF_ERROR(check_members(at, {"structures", "triggers"}, {"type"}));
    ASSIGN_OR_RETURN(rules_[0], structures(at));
  }
  if (const json::value* type = at.find("type"); type && *type != "structural_tag")
    return error(at["type"], "expected \"structural_tag\"");
  ASSIGN_OR_RETURN(const bool has_end, drop_endless(rules_, work_));
  if (!has_end) return error(at, "there is no text of this form");
  return std::move(rules_);
}

StatusOr<ExprPtr> StructuralTag::format(const SchemaAt& at, const Ends& ends) {
  if (!at.value->is_object() || !at.find("type"))
    return error(at, "expected an object with 'type'");
  ASSIGN_OR_RETURN(const std::string type, text_of(at["type"]));
  if (type == "any_text") return any_text(at, ends);
  if (type == "sequence" || type == "or") return elements(at, type == "sequence", ends);
  if (type == "triggered_tags") return triggered_tags(at, ends);
  if (type == "tags_with_separator") return tags_with_separator(at, ends);
  if (type == "tag") {
    ASSIGN_OR_RETURN(Tag one, tag(at));
    return with_ends(sequence({literal(one.begin), call(one.body)}), ends);
  }
  ASSIGN_OR_RETURN(ExprPtr expr, bounded(type, at));
  return with_ends(std::move(expr), ends);
}

// Formats that determine their own end.
StatusOr<ExprPtr> StructuralTag::bounded(std::string_view type, const SchemaAt& at) {
  if (type == "json_schema") {
    RETURN_IF_ERROR(check_members(at, {"type", "json_schema"}));
    return schema(at["json_schema"]);
  }
  const std::string_view key = type == "const_string" ? "value"
                               : type == "regex"      ? "pattern"
                               : type == "grammar"    ? "grammar"
                                                      : "";
  if (key.empty())
    return error(at["type"],
                 fmt::format("'{}' is not supported; there are const_string, json_schema, regex, "
                             "grammar, any_text, sequence, or, tag, triggered_tags and "
                             "tags_with_separator",
                             type.substr(0, 100)));
  RETURN_IF_ERROR(check_members(at, {"type", key}));
  ASSIGN_OR_RETURN(const std::string text, text_of(at[key]));
  if (type == "const_string") return literal(text);
  if (type == "regex") {
    const auto expr = regex_expr(text);
    return expr.ok() ? expr : inner_error(at[key], expr.status());
  }
  const auto rules = ebnf_rules(text);
  if (!rules.ok()) return inner_error(at[key], rules.status());
  return call(append_rules(rules_, *rules));
}

StatusOr<ExprPtr> StructuralTag::schema(const SchemaAt& at) {
  const auto rules = json_schema_rules(*at.value, work_);
  if (!rules.ok()) return inner_error(at, rules.status());
  return call(append_rules(rules_, *rules));
}

StatusOr<ExprPtr> StructuralTag::any_text(const SchemaAt& at, const Ends& ends) {
  RETURN_IF_ERROR(check_members(at, {"type"}, {"excludes"}));
  ASSIGN_OR_RETURN(const Texts excludes, texts_of(at, "excludes"));
  return free_text(at, add_rule(nullptr), {}, excludes, ends);
}

StatusOr<ExprPtr> StructuralTag::free_text(const SchemaAt& at, int32_t root,
                                           std::vector<EndWord> words, const Texts& excludes,
                                           const Ends& ends) {
  for (const std::string& text : excludes) words.push_back({text});
  const int32_t nothing = add_rule(literal(""));
  for (const std::string& text : ends.texts) words.push_back({text, nothing});
  const bool may_end = ends.texts.empty();
  const Status status = make_free_text(root, words, may_end, rules_, work_);
  return status.ok() ? StatusOr<ExprPtr>(call(root)) : inner_error(at, status);
}

StatusOr<ExprPtr> StructuralTag::elements(const SchemaAt& at, bool all, const Ends& ends) {
  RETURN_IF_ERROR(check_members(at, {"type", "elements"}));
  const SchemaAt list = at["elements"];
  if (!list.value->is_array() || list.value->get_array().empty())
    return error(list, "expected an array of formats, at least one");
  const size_t count = list.value->get_array().size();
  std::vector<ExprPtr> parts;
  for (size_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(parts.emplace_back(), format(list[i], all && i + 1 < count ? Ends() : ends));
  }
  return all ? sequence(std::move(parts)) : choice(std::move(parts));
}

StatusOr<StructuralTag::Tag> StructuralTag::tag(const SchemaAt& at) {
  RETURN_IF_ERROR(check_members(at, {"begin", "content", "end"}, {"type"}));
  if (const json::value* type = at.find("type"); type && *type != "tag")
    return error(at["type"], "expected \"tag\"");
  Tag result;
  ASSIGN_OR_RETURN(result.begin, text_of(at["begin"]));
  Ends ends;
  if (at.find("end")->is_array()) {
    ASSIGN_OR_RETURN(ends.texts, texts_of(at["end"]));
  } else {
    ASSIGN_OR_RETURN(const std::string end, text_of(at["end"]));
    if (!end.empty()) ends.texts = {end};
  }
  std::vector<ExprPtr> ways;
  for (const std::string& end : ends.texts) ways.push_back(literal(end));
  if (!ways.empty()) ends.one = choice(std::move(ways));
  ASSIGN_OR_RETURN(ExprPtr body, format(at["content"], ends));
  result.body = add_rule(std::move(body));
  return result;
}

// A tag in the older form.
StatusOr<StructuralTag::Tag> StructuralTag::structure(const SchemaAt& at) {
  RETURN_IF_ERROR(check_members(at, {"begin", "end"}, {"schema"}));
  Tag result;
  ASSIGN_OR_RETURN(result.begin, text_of(at["begin"]));
  ASSIGN_OR_RETURN(const std::string end, text_of(at["end"]));
  const json::value any = true;
  ASSIGN_OR_RETURN(ExprPtr body,
                   schema(at.find("schema") ? at["schema"] : SchemaAt{&any, at.pointer}));
  result.body = add_rule(sequence({std::move(body), literal(end)}));
  return result;
}

StatusOr<std::vector<StructuralTag::Tag>> StructuralTag::tags(const SchemaAt& at) {
  const bool old = at.find("structures") != nullptr;
  const SchemaAt list = at[old ? "structures" : "tags"];
  if (!list.value->is_array() || list.value->get_array().empty())
    return error(list, "expected an array of objects, at least one");
  std::vector<Tag> result;
  for (size_t i = 0; i < list.value->get_array().size(); ++i) {
    ASSIGN_OR_RETURN(result.emplace_back(), old ? structure(list[i]) : tag(list[i]));
  }
  return result;
}

StatusOr<ExprPtr> StructuralTag::structures(const SchemaAt& at) {
  ASSIGN_OR_RETURN(const std::vector<Tag> all, tags(at));
  return triggered(at, all, {}, {}, {});
}

StatusOr<ExprPtr> StructuralTag::triggered_tags(const SchemaAt& at, const Ends& ends) {
  RETURN_IF_ERROR(check_members(at, {"type", "triggers", "tags"},
                                {"at_least_one", "stop_after_first", "excludes"}));
  ASSIGN_OR_RETURN(const std::vector<Tag> all, tags(at));
  ASSIGN_OR_RETURN(const Texts excludes, texts_of(at, "excludes"));
  Options options;
  ASSIGN_OR_RETURN(options.at_least_one, flag_of(at, "at_least_one"));
  ASSIGN_OR_RETURN(options.stop_after_first, flag_of(at, "stop_after_first"));
  return triggered(at, all, excludes, options, ends);
}

// The only trigger that is a prefix of `begin`.
StatusOr<size_t> trigger_of(const SchemaAt& at, const Texts& triggers, const std::string& begin) {
  std::optional<size_t> found;
  for (size_t i = 0; i < triggers.size(); ++i) {
    if (!begin.starts_with(triggers[i])) continue;
    if (found) return error(at, fmt::format("two of them begin '{}'", begin.substr(0, 100)));
    found = i;
  }
  if (!found) return error(at, fmt::format("none of them begins '{}'", begin.substr(0, 100)));
  return *found;
}

StatusOr<ExprPtr> StructuralTag::triggered(const SchemaAt& at, const std::vector<Tag>& tags,
                                           const Texts& excludes, Options options,
                                           const Ends& ends) {
  const SchemaAt where = at["triggers"];
  ASSIGN_OR_RETURN(const Texts triggers, texts_of(where));
  RETURN_IF_ERROR(work_.spend(static_cast<int64_t>(triggers.size() * tags.size())));
  std::vector<std::vector<ExprPtr>> behind(triggers.size());
  std::vector<ExprPtr> firsts;
  for (const Tag& tag : tags) {
    ASSIGN_OR_RETURN(const size_t trigger, trigger_of(where, triggers, tag.begin));
    behind[trigger].push_back(
        sequence({literal(tag.begin.substr(triggers[trigger].size())), call(tag.body)}));
    firsts.push_back(sequence({literal(tag.begin), call(tag.body)}));
  }
  const int32_t root = add_rule(nullptr);
  const ExprPtr next = options.stop_after_first ? with_ends(literal(""), ends) : call(root);
  std::vector<EndWord> words;
  for (size_t i = 0; i < triggers.size(); ++i) {
    if (behind[i].empty()) return error(where[i], "no 'begin' starts with it");
    words.push_back({triggers[i], add_rule(sequence({choice(std::move(behind[i])), next}))});
  }
  ASSIGN_OR_RETURN(ExprPtr all, free_text(at, root, std::move(words), excludes, ends));
  if (!options.at_least_one) return all;
  return sequence({choice(std::move(firsts)), next});
}

StatusOr<ExprPtr> StructuralTag::tags_with_separator(const SchemaAt& at, const Ends& ends) {
  RETURN_IF_ERROR(
      check_members(at, {"type", "tags", "separator"}, {"at_least_one", "stop_after_first"}));
  ASSIGN_OR_RETURN(const std::vector<Tag> all, tags(at));
  ASSIGN_OR_RETURN(const std::string separator, text_of(at["separator"]));
  ASSIGN_OR_RETURN(const bool at_least_one, flag_of(at, "at_least_one"));
  ASSIGN_OR_RETURN(const bool stop_after_first, flag_of(at, "stop_after_first"));
  std::vector<ExprPtr> ways;
  for (const Tag& tag : all) ways.push_back(sequence({literal(tag.begin), call(tag.body)}));
  const ExprPtr one = choice(std::move(ways));
  ExprPtr list = one;
  if (!stop_after_first)
    list = sequence({one, repeat(sequence({literal(separator), one}), 0, kUnbounded)});
  return with_ends(at_least_one ? list : optional(list), ends);
}

}  // namespace

StatusOr<Rules> structural_tag_rules(const json::value& tag, WorkLimit& work) {
  return StructuralTag(work).make(tag);
}

}  // namespace nereid::text
