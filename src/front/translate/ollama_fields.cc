// See ollama_fields.h. Source: github.com/ollama/ollama, api/types.go and docs/api.md.
#include "front/translate/ollama_fields.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <string>
#include <utility>

#include "base/json_exact.h"

namespace nereid::front {
namespace {

using Fault = TranslationFault;

enum class Kind { kText, kBool, kInteger, kNumber, kList, kObject };
struct Member {
  std::string_view name;
  Kind kind;
};

constexpr Member kMembers[] = {
    {"model", Kind::kText},          {"name", Kind::kText},     {"stream", Kind::kBool},
    {"options", Kind::kObject},      {"truncate", Kind::kBool}, {"shift", Kind::kBool},
    {"logprobs", Kind::kBool},       {"messages", Kind::kList}, {"tools", Kind::kList},
    {"prompt", Kind::kText},         {"suffix", Kind::kText},   {"system", Kind::kText},
    {"template", Kind::kText},       {"raw", Kind::kBool},      {"context", Kind::kList},
    {"images", Kind::kList},         {"verbose", Kind::kBool},  {"dimensions", Kind::kInteger},
    {"top_logprobs", Kind::kInteger}};

constexpr Member kMessageMembers[] = {{"content", Kind::kText},   {"thinking", Kind::kText},
                                      {"images", Kind::kList},    {"tool_calls", Kind::kList},
                                      {"tool_name", Kind::kText}, {"tool_call_id", Kind::kText}};

constexpr Member kOptionMembers[] = {{"temperature", Kind::kNumber},
                                     {"top_p", Kind::kNumber},
                                     {"top_k", Kind::kInteger},
                                     {"min_p", Kind::kNumber},
                                     {"seed", Kind::kInteger},
                                     {"repeat_penalty", Kind::kNumber},
                                     {"presence_penalty", Kind::kNumber},
                                     {"frequency_penalty", Kind::kNumber},
                                     {"num_predict", Kind::kInteger},
                                     {"num_ctx", Kind::kInteger},
                                     {"repeat_last_n", Kind::kInteger},
                                     {"mirostat", Kind::kInteger},
                                     {"typical_p", Kind::kNumber},
                                     {"tfs_z", Kind::kNumber}};

constexpr Member kIgnoredOptions[] = {{"num_keep", Kind::kInteger},
                                      {"num_batch", Kind::kInteger},
                                      {"num_gpu", Kind::kInteger},
                                      {"main_gpu", Kind::kInteger},
                                      {"num_thread", Kind::kInteger},
                                      {"numa", Kind::kBool},
                                      {"low_vram", Kind::kBool},
                                      {"f16_kv", Kind::kBool},
                                      {"logits_all", Kind::kBool},
                                      {"vocab_only", Kind::kBool},
                                      {"use_mmap", Kind::kBool},
                                      {"use_mlock", Kind::kBool},
                                      {"num_gqa", Kind::kInteger},
                                      {"mirostat_eta", Kind::kNumber},
                                      {"mirostat_tau", Kind::kNumber},
                                      {"rope_frequency_base", Kind::kNumber},
                                      {"rope_frequency_scale", Kind::kNumber},
                                      {"penalize_newline", Kind::kBool},
                                      {"embedding_only", Kind::kBool}};

bool is_of_kind(const json::value& value, Kind kind) {
  switch (kind) {
    case Kind::kText:
      return value.is_string();
    case Kind::kBool:
      return value.is_bool();
    case Kind::kInteger:
      return value.is_int64() || value.is_uint64() ||
             (value.is_double() && std::abs(value.get_double()) < 9e15);
    case Kind::kNumber:
      return value.is_number();
    case Kind::kList:
      return value.is_array();
    default:
      return value.is_object();
  }
}

std::string_view name_of(Kind kind) {
  constexpr std::string_view kTexts[] = {"a string", "a boolean", "an integer",
                                         "a number", "an array",  "an object"};
  return kTexts[static_cast<size_t>(kind)];
}

std::optional<Fault> check_kinds(const json::object& object, std::span<const Member> members,
                                 std::string_view prefix = "") {
  for (const Member& member : members) {
    const json::value* const value = object.if_contains(member.name);
    if (value && !value->is_null() && !is_of_kind(*value, member.kind))
      return Fault{fmt::format("{}{}: expected {}", prefix, member.name, name_of(member.kind))};
  }
  return std::nullopt;
}

std::optional<Fault> check_call(const json::value& call, const std::string& where) {
  const json::object& function = object_member(object_or_empty(call), "function");
  if (text_member(function, "name").empty())
    return Fault{where + ".function.name: expected a string that is not empty"};
  const json::value* const arguments = function.if_contains("arguments");
  if (arguments && !arguments->is_null() && !is_exact_object(*arguments))
    return Fault{where + ".function.arguments: expected an object"};
  return std::nullopt;
}

std::optional<Fault> check_messages(const json::array& messages) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string where = fmt::format("messages[{}]", i);
    const json::object* const message = messages[i].if_object();
    if (!message) return Fault{where + ": expected an object {\"role\", \"content\"}"};
    if (text_member(*message, "role").empty())
      return Fault{where + ".role: expected a string that is not empty"};
    if (auto fault = check_kinds(*message, kMessageMembers, where + ".")) return fault;
    const json::array& calls = array_member(*message, "tool_calls");
    for (size_t j = 0; j < calls.size(); ++j)
      if (auto fault = check_call(calls[j], fmt::format("{}.tool_calls[{}]", where, j)))
        return fault;
  }
  return std::nullopt;
}

std::optional<Fault> check_format(const json::value& format) {
  if (format.is_object() || format == "json" || format == "") return std::nullopt;
  return Fault{"format: expected \"json\" or a JSON schema"};
}

std::optional<Fault> check_think(const json::value& think) {
  const bool is_effort = think == "low" || think == "medium" || think == "high";
  if (think.is_bool() || is_effort) return std::nullopt;
  return Fault{"think: expected true, false, \"low\", \"medium\" or \"high\""};
}

std::optional<Fault> check_keep_alive(const json::value& value) {
  if (keep_alive_seconds(value)) return std::nullopt;
  return Fault{
      "keep_alive: expected a number of seconds, or a duration such as \"5m\" or \"1h30m\" (units: "
      "ns, us, ms, s, m, h); a negative one is for ever"};
}

}  // namespace

std::optional<Fault> check_ollama_members(const json::object& request,
                                          std::span<const std::string_view> known) {
  constexpr std::pair<std::string_view, std::optional<Fault> (*)(const json::value&)> kValues[] = {
      {"format", check_format}, {"think", check_think}, {"keep_alive", check_keep_alive}};
  const auto is_known = [&](std::string_view name) {
    return std::ranges::find(known, name) != known.end();
  };
  for (const Member& member : kMembers)
    if (is_known(member.name))
      if (auto fault = check_kinds(request, std::span(&member, 1))) return fault;
  for (const auto& [name, check] : kValues) {
    const json::value* const value = request.if_contains(name);
    if (!is_known(name) || !value || value->is_null()) continue;
    if (auto fault = check(*value)) return fault;
  }
  if (is_known("messages"))
    if (auto fault = check_messages(array_member(request, "messages"))) return fault;
  return is_known("options") ? check_ollama_options(object_member(request, "options"))
                             : std::nullopt;
}

std::optional<Fault> check_ollama_options(const json::object& options) {
  if (auto fault = check_kinds(options, kOptionMembers, "options.")) return fault;
  if (auto fault = check_kinds(options, kIgnoredOptions, "options.")) return fault;
  const json::value* const stop = options.if_contains("stop");
  const bool is_good =
      !stop || stop->is_null() || stop->is_string() ||
      (stop->is_array() && std::ranges::all_of(stop->get_array(), [](const json::value& one) {
         return one.is_string();
       }));
  return is_good ? std::nullopt
                 : std::optional(Fault{"options.stop: expected a string or an array of them"});
}

bool is_ollama_option_without_effect(std::string_view name) {
  return std::ranges::find(kIgnoredOptions, name, &Member::name) != std::end(kIgnoredOptions);
}

std::optional<double> go_duration(std::string_view text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"ns", 1e-9}, {"us", 1e-6}, {"µs", 1e-6}, {"μs", 1e-6},
      {"ms", 1e-3}, {"s", 1},     {"m", 60},    {"h", 3600}};
  constexpr double kMost = 9223372036.854775807;  // seconds
  constexpr std::string_view kNumber = "0123456789.";
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  if (text == "0") return 0;
  if (text.empty()) return std::nullopt;
  double sum = 0;
  while (!text.empty()) {
    const size_t size = std::min(text.find_first_not_of(kNumber), text.size());
    const std::string number(text.substr(0, size));
    text.remove_prefix(size);
    const std::string_view unit = text.substr(0, text.find_first_of(kNumber));
    text.remove_prefix(unit.size());
    const auto* const found =
        std::ranges::find(kUnits, unit, &std::pair<std::string_view, double>::first);
    const bool has_digit = number.find_first_of("0123456789") != number.npos;
    if (!has_digit || std::ranges::count(number, '.') > 1 || found == std::end(kUnits))
      return std::nullopt;
    sum += std::strtod(number.c_str(), nullptr) * found->second;
  }
  if (sum > kMost) return std::nullopt;
  return is_negative ? -sum : sum;
}

std::optional<double> keep_alive_seconds(const json::value& value) {
  if (const json::string* text = value.if_string()) return go_duration(std::string_view(*text));
  const double number = value.is_number() ? value.to_number<double>() : NAN;
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

}  // namespace nereid::front
