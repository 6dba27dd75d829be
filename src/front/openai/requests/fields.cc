#include "front/openai/requests/fields.h"

#include <cmath>

#include "front/http/json_text.h"

namespace nereid::front {
namespace {

// Equal as JSON numbers, so 1 and 1.0 agree.
bool same_value(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) return a.to_number<double>() == b.to_number<double>();
  return a == b;
}

}  // namespace

const json::value* Fields::get(std::string_view key) {
  known_.try_emplace(std::string(key), FieldUse::kHonoured);
  return object_.if_contains(key);
}

const json::value* Fields::present(std::string_view key) {
  const json::value* v = get(key);
  return error_ || v == nullptr || v->is_null() ? nullptr : v;
}

void Fields::fail(std::string_view key, std::string message, std::string code) {
  if (error_) return;
  error_ = ApiError{400, fmt::format("'{}': {}", key, message), std::string(key), std::move(code)};
}

void Fields::wrong_type(std::string_view key, const json::value& v, std::string_view wanted) {
  fail(key, fmt::format("expected {}, got {}", wanted, json_kind_name(v)), "invalid_type");
}

std::optional<std::string> Fields::text(std::string_view key) {
  const json::value* v = present(key);
  if (v == nullptr) return std::nullopt;
  if (v->is_string()) return std::string(std::string_view(v->get_string()));
  wrong_type(key, *v, "a string");
  return std::nullopt;
}

std::optional<bool> Fields::flag(std::string_view key) {
  const json::value* v = present(key);
  if (v == nullptr) return std::nullopt;
  if (v->is_bool()) return v->get_bool();
  wrong_type(key, *v, "a boolean");
  return std::nullopt;
}

std::optional<int64_t> Fields::integer(std::string_view key, int64_t min, int64_t max) {
  const json::value* v = present(key);
  if (v == nullptr) return std::nullopt;
  std::optional<int64_t> out;
  if (v->is_int64()) {
    out = v->get_int64();
  } else if (v->is_double() && std::trunc(v->get_double()) == v->get_double() &&
             std::abs(v->get_double()) < 9e15) {
    out = static_cast<int64_t>(v->get_double());
  } else if (!v->is_uint64()) {
    wrong_type(key, *v, "an integer");
    return std::nullopt;
  }
  if (!out || *out < min || *out > max) {
    fail(key, fmt::format("{} is not in [{}, {}]", json::serialize(*v), min, max), kInvalidValue);
    return std::nullopt;
  }
  return out;
}

std::optional<double> Fields::number(std::string_view key, double min, double max) {
  const json::value* v = present(key);
  if (v == nullptr) return std::nullopt;
  if (!v->is_number()) {
    wrong_type(key, *v, "a number");
    return std::nullopt;
  }
  const double out = v->to_number<double>();
  if (!(out >= min && out <= max)) {
    fail(key, fmt::format("{} is not in [{}, {}]", out, min, max), kInvalidValue);
    return std::nullopt;
  }
  return out;
}

const json::object* Fields::object(std::string_view key) {
  const json::value* v = present(key);
  if (v != nullptr && !v->is_object()) wrong_type(key, *v, "an object");
  return v == nullptr ? nullptr : v->if_object();
}

const json::array* Fields::array(std::string_view key) {
  const json::value* v = present(key);
  if (v != nullptr && !v->is_array()) wrong_type(key, *v, "an array");
  return v == nullptr ? nullptr : v->if_array();
}

void Fields::refuse_unless(std::string_view key, const json::value& neutral) {
  known_.try_emplace(std::string(key), FieldUse::kRefused);
  const json::value* v = present(key);
  if (v == nullptr || same_value(*v, neutral)) return;
  fail(key,
       fmt::format("{} is not supported by this server; leave it out or set it to {}",
                   json::serialize(*v).substr(0, 100), json::serialize(neutral)),
       "unsupported_parameter");
}

std::vector<std::string> Fields::unknown() const {
  std::vector<std::string> out;
  for (const auto& member : object_) {
    std::string key(std::string_view(member.key()));
    if (!known_.contains(key)) out.push_back(std::move(key));
  }
  return out;
}

}  // namespace nereid::front
