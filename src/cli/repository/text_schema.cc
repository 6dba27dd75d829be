// What fields a configuration may have, read from the .proto file itself; see text_config.h.
#include <algorithm>
#include <cctype>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/nearest.h"
#include "cli/repository/text_config.h"

namespace nereid::cli {
namespace {

constexpr std::string_view kProto =
#include "model_config_proto.inc"
    ;

// Words and symbols of a .proto text, without comments.
std::vector<std::string> proto_tokens(std::string_view text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (text.substr(at).starts_with("//")) {
      at = std::min(text.find('\n', at), text.size());
    } else if (text.substr(at).starts_with("/*")) {
      const size_t end = text.find("*/", at);
      at = end == text.npos ? text.size() : end + 2;
    } else if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
      ++at;
    } else {
      size_t end = at;
      while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) ||
                                   text[end] == '_' || text[end] == '.')) {
        ++end;
      }
      end = std::max(end, at + 1);
      out.emplace_back(text.substr(at, end - at));
      at = end;
    }
  }
  return out;
}

template <class T>
bool is_number(const std::string& text) {
  T value{};
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const auto [stop, error] = std::from_chars(begin, text.data() + text.size(), value);
  return error == std::errc() && stop == text.data() + text.size();
}

const std::set<std::string> kBooleans = {"true", "false", "True", "False", "t", "f", "0", "1"};

}  // namespace

Schema::Schema(std::string_view proto) {
  const auto tokens = proto_tokens(proto);
  std::vector<std::string> scopes;  // full names of messages and enums; a oneof repeats its message
  const auto full_name = [&](const std::string& name) {
    return scopes.empty() ? name : scopes.back() + "." + name;
  };
  for (size_t i = 0; i + 2 < tokens.size(); ++i) {
    const std::string& token = tokens[i];
    const bool is_assigned = tokens[i + 1] == "=" && !scopes.empty();
    if ((token == "message" || token == "enum") && tokens[i + 2] == "{") {
      const std::string name = full_name(tokens[i + 1]);
      if (token == "message") messages_[name];
      if (token == "enum") enums_[name];
      scopes.push_back(name);
      i += 2;
    } else if (token == "oneof") {
      scopes.push_back(scopes.empty() ? "" : scopes.back());
      i += 2;
    } else if (token == "}") {
      if (!scopes.empty()) scopes.pop_back();
    } else if (is_assigned && enums_.contains(scopes.back())) {
      enums_[scopes.back()].insert(token);
    } else if (is_assigned && i >= 2) {
      const bool is_map = tokens[i - 1] == ">";  // map<string, Type>
      messages_[scopes.back()][token] = {is_map ? tokens[i - 2] : tokens[i - 1],
                                         is_map || tokens[i - 2] == "repeated", is_map};
    }
  }
  for (auto& [message, fields] : messages_) {
    for (auto& [_, field] : fields) field.type = resolve(message, field.type);
  }
}

// The full name of `type` as it is meant inside `scope`: the innermost one.
std::string Schema::resolve(std::string scope, const std::string& type) const {
  while (true) {
    const std::string name = scope.empty() ? type : scope + "." + type;
    if (scope.empty() || messages_.contains(name) || enums_.contains(name)) return name;
    scope.resize(scope.rfind('.') == scope.npos ? 0 : scope.rfind('.'));
  }
}

void Schema::check(const TextField& message, const std::string& type, const Report& report) const {
  check_at(message, type, "", report);
}

void Schema::check_at(const TextField& message, const std::string& type, const std::string& path,
                      const Report& report) const {
  const auto& known = messages_.at(type);
  std::set<std::string> names, seen;
  for (const auto& [name, _] : known) names.insert(name);
  for (const auto& field : message.fields) {
    const std::string at = path.empty() ? field.name : path + "." + field.name;
    const auto found = known.find(field.name);
    if (found == known.end()) {
      report(field.line, at,
             fmt::format("{} has no such field.{}", type, did_you_mean(field.name, names)));
      continue;
    }
    const Field& spec = found->second;
    if (!spec.is_repeated && !seen.insert(field.name).second) {
      report(field.line, at, "is given twice");
    }
    if (spec.is_map) {
      check_map(field, at, spec, report);
    } else if (messages_.contains(spec.type)) {
      if (field.is_message) {
        check_at(field, spec.type, at, report);
      } else {
        report(field.line, at, fmt::format("is '{}', expected {{ ... }}", field.value));
      }
    } else {
      check_scalar(field, at, spec.type, report);
    }
  }
}

void Schema::check_map(const TextField& entry, const std::string& path, const Field& field,
                       const Report& report) const {
  if (!entry.is_message) {
    return report(entry.line, path, "expected { key: ... value: ... }");
  }
  for (const auto& part : entry.fields) {
    if (part.name == "key") continue;
    if (part.name != "value") {
      report(part.line, path + "." + part.name, "an entry has only 'key' and 'value'");
    } else if (messages_.contains(field.type)) {
      if (part.is_message) check_at(part, field.type, path, report);
      if (!part.is_message) report(part.line, path, "'value' must be { ... }");
    } else {
      check_scalar(part, path, field.type, report);
    }
  }
}

void Schema::check_scalar(const TextField& field, const std::string& path, const std::string& type,
                          const Report& report) const {
  const auto wrong = [&](const std::string& expected) {
    report(field.line, path,
           field.is_message ? fmt::format("is a message, expected {}", expected)
                            : fmt::format("is '{}', expected {}", field.value, expected));
  };
  // Unfilled placeholders have stand-ins.
  if (!field.is_message && !field.is_string && field.value.starts_with("${")) return;
  if (type == "string" || type == "bytes") {
    if (!field.is_string) wrong("a string in quotes");
  } else if (field.is_string || field.is_message) {
    wrong(type == "bool" ? "true or false" : "a " + type);
  } else if (const auto values = enums_.find(type); values != enums_.end()) {
    if (values->second.contains(field.value) || is_number<int32_t>(field.value)) return;
    wrong(fmt::format("one of {}.{}", fmt::join(values->second, ", "),
                      did_you_mean(field.value, values->second)));
  } else if (type == "bool") {
    if (!kBooleans.contains(field.value)) wrong("true or false");
  } else if (type.starts_with("uint")) {
    if (!is_number<uint64_t>(field.value)) wrong("an integer of at least 0");
  } else if (type.starts_with("int")) {
    if (!is_number<int64_t>(field.value)) wrong("an integer");
  } else if (!is_number<double>(field.value)) {
    wrong("a number");
  }
}

const Schema& model_config_schema() {
  static const Schema schema(kProto);
  return schema;
}

}  // namespace nereid::cli
