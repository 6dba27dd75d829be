#include "backend/parameters/parameters.h"

#include <algorithm>
#include <charconv>

#include "config/option.h"

namespace nereid::backend {
namespace {

// Whether `word` is one of "a|b|c".
bool has_word(std::string_view words, std::string_view word) {
  for (size_t begin = 0; begin <= words.size();) {
    const size_t end = std::min(words.find('|', begin), words.size());
    if (words.substr(begin, end - begin) == word) return true;
    begin = end + 1;
  }
  return false;
}

std::string listed(std::string_view words) {
  std::string out(words);
  for (size_t at = 0; (at = out.find('|', at)) != out.npos; at += 2) out.replace(at, 1, ", ");
  return out;
}

template <class T>
bool parse(std::string_view text, T& value) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && stop == text.data() + text.size();
}

}  // namespace

const Parameter* find_parameter(std::string_view backend, std::string_view key) {
  for (const auto& parameter : parameters_of(backend)) {
    if (key == parameter.key) return &parameter;
  }
  return nullptr;
}

std::set<std::string> parameter_keys(std::string_view backend) {
  std::set<std::string> out;
  for (const auto& parameter : parameters_of(backend)) out.insert(parameter.key);
  return out;
}

bool is_unset(std::string_view value) { return value.empty() || value.starts_with("${"); }

std::string without_effect(
    std::string_view backend,
    const std::function<std::optional<std::string>(const char* key)>& value_of) {
  std::string out;
  for (const auto& parameter : parameters_of(backend)) {
    if (parameter.use != ParameterUse::kNone || *parameter.why_none == '\0') continue;
    const auto value = value_of(parameter.key);
    if (!value || is_unset(*value) || has_word(parameter.words, *value)) continue;
    out += fmt::format("{}'{}' is '{}': {}", out.empty() ? "" : "; ", parameter.key, *value,
                       parameter.why_none);
  }
  return out;
}

Status check_parameter(const Parameter& p, std::string_view value) {
  if (is_unset(value)) return ok();
  if (p.use == ParameterUse::kRefused) {
    if (*p.words != '\0' && has_word(p.words, value)) return ok();
    return *p.words == '\0'
               ? unsupported("parameter '{}' is '{}', which is not supported; leave it empty",
                             p.key, value)
               : unsupported("parameter '{}' is '{}', which is not supported; only {} works", p.key,
                             value, listed(p.words));
  }
  if (p.zero_is_default && value == "0") return ok();
  const auto wrong = [&](std::string_view expected) {
    return invalid_argument("parameter '{}' is '{}', expected {}", p.key, value, expected);
  };
  switch (p.kind) {
    case ParameterKind::kInteger: {
      int64_t number = 0;
      if (parse(value, number) && static_cast<double>(number) >= p.low &&
          static_cast<double>(number) <= p.high) {
        return ok();
      }
      return wrong(fmt::format("an integer from {:.0f} to {:.0f}", p.low, p.high));
    }
    case ParameterKind::kNumber: {
      double number = 0;
      if (parse(value, number) && number >= p.low && number <= p.high) return ok();
      return wrong(fmt::format("a number from {} to {}", p.low, p.high));
    }
    case ParameterKind::kBoolean:
      return config::parse_bool(value) ? ok() : wrong("true or false");
    case ParameterKind::kWord:
      // The wording of the replaced backend, which users and tests search for.
      if (std::string_view(p.key) == "gpt_model_type" && !has_word(p.words, value)) {
        return invalid_argument(
            "Invalid gpt_model_type. Must be v1/inflight_batching/inflight_fused_batching. (It is "
            "'{}')",
            value);
      }
      return has_word(p.words, value) ? ok() : wrong("one of " + listed(p.words));
    case ParameterKind::kText:
    case ParameterKind::kFolder:
      return ok();
  }
  return ok();
}

}  // namespace nereid::backend
