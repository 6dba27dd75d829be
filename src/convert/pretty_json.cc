#include "convert/pretty_json.h"

namespace nereid::convert {
namespace {

constexpr size_t kIndent = 4;

void new_line(size_t depth, std::string& out) {
  out += '\n';
  out.append(depth * kIndent, ' ');
}

void print(const json::value& value, size_t depth, std::string& out) {
  if (const json::object* object = value.if_object(); object && !object->empty()) {
    bool first = true;
    out += '{';
    for (const auto& [key, member] : *object) {
      if (!std::exchange(first, false)) out += ',';
      new_line(depth + 1, out);
      out += json::serialize(json::string(key)) + ": ";
      print(member, depth + 1, out);
    }
    new_line(depth, out);
    out += '}';
  } else if (const json::array* array = value.if_array(); array && !array->empty()) {
    bool first = true;
    out += '[';
    for (const json::value& item : *array) {
      if (!std::exchange(first, false)) out += ',';
      new_line(depth + 1, out);
      print(item, depth + 1, out);
    }
    new_line(depth, out);
    out += ']';
  } else {
    out += json::serialize(value);
  }
}

}  // namespace

std::string pretty_json(const json::value& value) {
  std::string out;
  print(value, 0, out);
  return out + "\n";
}

}  // namespace nereid::convert
