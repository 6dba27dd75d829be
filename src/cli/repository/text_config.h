// Protobuf text read for checking: everything that can be understood, with its place, and every
// problem instead of the first. (The server reads configurations with protobuf's own parser.)
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace nereid::cli {

// One thing that is wrong.
struct Problem {
  std::string file;
  int line = 0;  // 0: of the file as a whole
  std::string field;
  std::string text;
};

// A field as written: a scalar or a message.
struct TextField {
  std::string name;
  int line = 0;
  bool is_message = false;
  bool is_string = false;  // a scalar in quotes
  std::string value;       // of a scalar; "${name}" for an unfilled placeholder
  std::vector<TextField> fields;

  const TextField* find(std::string_view field) const;  // the first of that name
  std::vector<const TextField*> all(std::string_view field) const;
  // The scalar `field`, or "" when absent.
  std::string text(std::string_view field) const;
};

using Report = std::function<void(int line, const std::string& field, const std::string& text)>;

// The message of a whole text. Reports what is no protobuf text and goes on behind it.
TextField parse_text_config(std::string_view text, const Report& report);

// Messages and enums of a .proto file (proto3, one package), as far as checking needs them.
class Schema {
 public:
  explicit Schema(std::string_view proto);

  // Checks names, kinds, repetition and enum values of `message` of type `type`, recursively.
  void check(const TextField& message, const std::string& type, const Report& report) const;

 private:
  struct Field {
    std::string type;  // "int32", "ModelInput" ...; of a map: that of its values
    bool is_repeated = false, is_map = false;
  };
  std::string resolve(std::string scope, const std::string& type) const;
  void check_scalar(const TextField& field, const std::string& path, const std::string& type,
                    const Report& report) const;
  void check_map(const TextField& entry, const std::string& path, const Field& field,
                 const Report& report) const;
  void check_at(const TextField& message, const std::string& type, const std::string& path,
                const Report& report) const;

  std::map<std::string, std::map<std::string, Field>> messages_;
  std::map<std::string, std::set<std::string>> enums_;
};

// The schema of config.pbtxt.
const Schema& model_config_schema();

}  // namespace nereid::cli
