// Reads the members of a JSON object into the fields of a struct; a member that no field
// takes is an error.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace nereid::capi {

template <class Enum>
using EnumNames = std::initializer_list<std::pair<std::string_view, Enum>>;

// A reader of one object. It keeps the first error, which names the member by
// its path ("sampling.top_k").
class ObjectReader {
 public:
  // `value` must outlive the reader.
  ObjectReader(const json::value& value, std::string path)
      : object_(value.if_object()), path_(std::move(path)) {
    if (!object_) refuse(path_, "an object");
  }

  // Leaves `out` unchanged when the member is absent, or null and `out` is optional.
  template <class T>
  void read(std::string_view name, T& out) {
    if (const json::value* v = find(name)) take(*v, member(name), out);
  }

  template <class Enum>
  void read_enum(std::string_view name, EnumNames<Enum> names, Enum& out) {
    std::vector<std::string> words;
    for (const auto& [text, value] : names) words.emplace_back(text);
    size_t index = words.size();
    read_word(name, words, index);
    if (index < words.size()) out = (names.begin() + index)->second;
  }

  // The place of the member's text in `words`.
  void read_word(std::string_view name, const std::vector<std::string>& words, size_t& index) {
    const json::value* v = find(name);
    if (!v) return;
    std::string known;
    for (size_t i = 0; i < words.size(); ++i) {
      if (v->is_string() && std::string_view(v->as_string()) == words[i]) {
        index = i;
        return;
      }
      known += (known.empty() ? "one of '" : ", '") + words[i] + "'";
    }
    refuse(member(name), known);
  }

  // Calls `visit` with a reader of a nested object.
  template <class Visit>
  void read_object(std::string_view name, Visit visit) {
    if (const json::value* v = find(name)) nested(*v, member(name), visit);
  }
  template <class Visit>
  void read_objects(std::string_view name, Visit visit) {
    const json::value* v = find(name);
    if (!v) return;
    if (!v->is_array()) return refuse(member(name), "an array of objects");
    for (size_t i = 0; i < v->get_array().size() && status_.ok(); ++i)
      nested(v->get_array()[i], fmt::format("{}[{}]", member(name), i), visit);
  }

  // To be called after all reads. InvalidArgument: a member of the wrong type or range,
  // or an unknown one.
  Status done() const {
    RETURN_IF_ERROR(status_);
    for (const auto& [key, value] : *object_) {
      bool known = false;
      for (const std::string_view name : names_) known |= std::string_view(key) == name;
      if (known) continue;
      std::string all;
      for (const std::string_view name : names_) all.append(all.empty() ? "" : ", ").append(name);
      return invalid_argument("{}: no such field; there are {}", member(std::string_view(key)),
                              all);
    }
    return ok();
  }

 private:
  const json::value* find(std::string_view name) {
    names_.push_back(name);
    if (!status_.ok()) return nullptr;
    return object_->if_contains(name);
  }

  std::string member(std::string_view name) const {
    return path_.empty() ? std::string(name) : path_ + "." + std::string(name);
  }

  void refuse(const std::string& where, std::string_view wanted) {
    if (status_.ok())
      status_ = invalid_argument("{}: not {}", where.empty() ? "the document" : where, wanted);
  }

  template <class Visit>
  void nested(const json::value& value, std::string path, Visit visit) {
    ObjectReader inner(value, std::move(path));
    if (inner.status_.ok()) visit(inner);
    if (status_.ok()) status_ = inner.done();
  }

  void take(const json::value& v, const std::string& where, bool& out) {
    if (!v.is_bool()) return refuse(where, "true or false");
    out = v.get_bool();
  }

  void take(const json::value& v, const std::string& where, std::string& out) {
    if (!v.is_string()) return refuse(where, "a string");
    out = v.get_string();
  }

  void take(const json::value& v, const std::string& where, std::filesystem::path& out) {
    std::string text = out.string();
    take(v, where, text);
    out = text;
  }

  template <class Number>
  requires std::is_arithmetic_v<Number>
  void take(const json::value& v, const std::string& where, Number& out) {
    boost::system::error_code error;
    if (v.is_number()) out = v.to_number<Number>(error);
    if (v.is_number() && !error) return;
    if constexpr (std::is_integral_v<Number>) {
      refuse(where, fmt::format("an integer in [{}, {}]", std::numeric_limits<Number>::min(),
                                std::numeric_limits<Number>::max()));
    } else {
      refuse(where, "a number");
    }
  }

  void take(const json::value& v, const std::string& where, std::chrono::milliseconds& out) {
    int64_t count = out.count();
    take(v, where, count);
    out = std::chrono::milliseconds(count);
  }

  template <class T>
  void take(const json::value& v, const std::string& where, std::optional<T>& out) {
    if (v.is_null()) return;
    take(v, where, out.emplace());
  }

  template <class T>
  void take(const json::value& v, const std::string& where, std::vector<T>& out) {
    if (!v.is_array()) return refuse(where, "an array");
    out.clear();
    for (size_t i = 0; i < v.get_array().size() && status_.ok(); ++i)
      take(v.get_array()[i], fmt::format("{}[{}]", where, i), out.emplace_back());
  }

  template <class A, class B>
  void take(const json::value& v, const std::string& where, std::pair<A, B>& out) {
    if (!v.is_array() || v.get_array().size() != 2) return refuse(where, "an array of two");
    take(v.get_array()[0], where + "[0]", out.first);
    take(v.get_array()[1], where + "[1]", out.second);
  }

  const json::object* object_;
  const std::string path_;
  std::vector<std::string_view> names_;  // names asked for so far, all literals
  Status status_;
};

}  // namespace nereid::capi
