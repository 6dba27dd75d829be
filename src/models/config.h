// Typed, bounded reads of config.json. The file is hostile: each number has a range, each error
// names field, value and what is allowed.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace nereid::models {

// Reads a JSON object of at most 16 MiB; errors begin with its path.
StatusOr<json::object> read_object(const std::filesystem::path& path);

// Reader of one JSON object. Absent or null fields take the default. The first error is kept;
// getters return defaults after it, so readers check status() once, at the end.
class Config {
 public:
  // Field aliases of a format: (name used by readers, name in the file).
  using Names = std::span<const std::pair<std::string_view, std::string_view>>;

  // `where`: prefix of errors, "config.json" or "config.json: rope_scaling".
  Config(const json::object& object, std::string where, Names names = {})
      : object_(object), where_(std::move(where)), names_(names) {}

  bool has(std::string_view key) const { return find(key) != nullptr; }  // present and not null
  bool mentions(std::string_view key) const {                            // present, null included
    return object_.contains(name_of(key));
  }

  int32_t integer(std::string_view key, int64_t min, int64_t max,
                  std::optional<int64_t> fallback = std::nullopt);
  double number(std::string_view key, double min, double max,
                std::optional<double> fallback = std::nullopt);
  bool boolean(std::string_view key, bool fallback);
  std::string string(std::string_view key, std::optional<std::string> fallback = std::nullopt);
  // An integer, or an array of them, each in [min, max]; absent: empty.
  std::vector<int32_t> integers(std::string_view key, int64_t min, int64_t max);
  // An array of at most 1024 pairs of integers, each in [min, max]; absent: empty.
  std::vector<std::array<int32_t, 2>> pairs(std::string_view key, int64_t min, int64_t max);
  // An array of at most 1024 numbers, each in [min, max]; absent: empty.
  std::vector<double> numbers(std::string_view key, double min, double max);
  // An array of strings, at most 1024; absent: empty.
  std::vector<std::string> strings(std::string_view key);
  // nullptr when absent.
  const json::object* object(std::string_view key);
  // Reads a nested object; false: absent. Its errors are kept here.
  bool inside(std::string_view key, const std::function<void(Config&)>& read);

  // Records an error on a field unless there is an earlier one.
  void fail(std::string_view key, std::string_view problem);
  // Fails if the field is present with a value other than `only`; numbers compare by value.
  void require(std::string_view key, const json::value& only);
  // Whether a reader requested the field.
  bool was_read(std::string_view key) const { return read_.contains(key); }
  void add(const Status& status) {
    if (status_.ok()) status_ = status;
  }
  const Status& status() const { return status_; }
  const std::string& where() const { return where_; }

 private:
  std::string_view name_of(std::string_view key) const;
  const json::value* find(std::string_view key) const;
  std::optional<int64_t> to_integer(std::string_view key, const json::value& value, int64_t min,
                                    int64_t max);

  const json::object& object_;
  std::string where_;
  Names names_;
  Status status_;
  mutable std::set<std::string, std::less<>> read_;
};

}  // namespace nereid::models
