// A value inside a JSON document with its path, for errors that name path, value
// and what is allowed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace nereid::text {

// A token id is an integer in [0, kMaxTokenId].
inline constexpr int32_t kMaxTokenId = (1 << 22) - 1;

inline std::string_view view_of(const json::string& s) { return {s.data(), s.size()}; }

// Refers into the document, which must outlive it.
class JsonNode {
 public:
  JsonNode(const json::value& value, std::string path) : value_(&value), path_(std::move(path)) {}

  // A field of an object or an element of an array; a null node when absent.
  JsonNode operator[](std::string_view field) const;
  JsonNode operator[](size_t index) const;

  bool is_null() const { return value_->is_null(); }
  const json::value& value() const { return *value_; }
  const std::string& path() const { return path_; }

  // InvalidArgument when the value is of another type.
  StatusOr<const json::object*> object() const;
  StatusOr<const json::array*> array() const;
  StatusOr<std::string_view> string() const;
  StatusOr<int32_t> token_id() const;
  StatusOr<char32_t> character() const;  // a string of one character
  // As above, with `fallback` for null.
  StatusOr<std::string_view> string(std::string_view fallback) const;
  StatusOr<bool> boolean(bool fallback) const;
  StatusOr<int64_t> integer(int64_t fallback, int64_t low, int64_t high) const;
  // A string of at most `max_bytes`.
  StatusOr<std::string_view> bounded_string(size_t max_bytes) const;

  // "PATH = VALUE: must be ALLOWED".
  Status wrong(std::string_view allowed) const;

  // The row of `table`, a list of {type, ...}, whose type equals the field "type".
  template <class Row, size_t N>
  StatusOr<const Row*> row_of_type(const Row (&table)[N]) const {
    const JsonNode type = (*this)["type"];
    ASSIGN_OR_RETURN(const std::string_view name, type.string());
    for (const Row& row : table) {
      if (row.type == name) return &row;
    }
    std::string allowed = "one of";
    for (const Row& row : table) allowed += fmt::format(" {}", row.type);
    return unsupported("{}", nereid::message(type.wrong(allowed)));
  }

 private:
  const json::value* value_;
  std::string path_;
};

// The value as JSON, cut after some characters, for errors.
std::string brief(const json::value& value);

}  // namespace nereid::text
