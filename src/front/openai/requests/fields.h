// Reads a request object field by field with types, ranges and defaults; keeps the first fault.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "front/openai/error.h"

namespace nereid::front {

// The treatment of a known field.
enum class FieldUse { kHonoured, kWithoutEffect, kRefused };
using FieldUses = std::map<std::string, FieldUse>;

// Codes of faults in a single value, independent of the other fields.
inline constexpr char kInvalidValue[] = "invalid_value";  // out of range, or none of the names

// Explicit null counts as absent. After a fault every reader returns absent, so callers read
// everything and check error() once.
class Fields {
 public:
  explicit Fields(const json::object& object) : object_(object) {}

  // The member, also when null; nullptr when absent. Marks the field as known.
  const json::value* get(std::string_view key);

  std::optional<std::string> text(std::string_view key);
  std::optional<bool> flag(std::string_view key);
  // Integers; 1.0 counts as 1. A value outside of [min, max] is a fault.
  std::optional<int64_t> integer(std::string_view key, int64_t min, int64_t max);
  std::optional<double> number(std::string_view key, double min, double max);
  // A member that is an object or an array.
  const json::object* object(std::string_view key);
  const json::array* array(std::string_view key);

  // For unsupported fields: a fault unless absent, null, or equal to `neutral`.
  void refuse_unless(std::string_view key, const json::value& neutral);
  // Marks a known field without effect.
  void ignore(std::string_view key) { known_[std::string(key)] = FieldUse::kWithoutEffect; }

  void fail(std::string_view key, std::string message, std::string code = "");
  const std::optional<ApiError>& error() const { return error_; }
  // Members that no reader read.
  std::vector<std::string> unknown() const;
  // Known fields with their treatment, those absent from the object included.
  FieldUses uses() const { return {known_.begin(), known_.end()}; }

 private:
  const json::value* present(std::string_view key);
  void wrong_type(std::string_view key, const json::value& v, std::string_view wanted);

  const json::object& object_;
  std::unordered_map<std::string, FieldUse> known_;
  std::optional<ApiError> error_;
};

}  // namespace nereid::front
