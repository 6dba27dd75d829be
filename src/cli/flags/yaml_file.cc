#include "cli/flags/yaml_file.h"

#include <yaml.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <string>

#include "base/file.h"

namespace nereid::cli {
namespace {

constexpr size_t kMaxYamlBytes = size_t{1} << 20;
constexpr int kMaxYamlDepth = 64;
constexpr int64_t kMaxYamlValues = 100'000;

struct YamlParser {
  yaml_parser_t parser{};
  bool is_ready = yaml_parser_initialize(&parser) != 0;
  ~YamlParser() {
    if (is_ready) yaml_parser_delete(&parser);
  }
};

struct YamlDocument {
  yaml_document_t document{};
  bool is_loaded = false;
  ~YamlDocument() {
    if (is_loaded) yaml_document_delete(&document);
  }
};

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  for (const std::string_view one : words) {
    if (word == one) return true;
  }
  return false;
}

template <class Number>
std::optional<Number> whole_number(std::string_view word) {
  if (word.starts_with('+')) word.remove_prefix(1);
  Number value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

json::value plain_value(std::string_view word) {
  if (is_one_of(word, {"", "~", "null", "Null", "NULL"})) return nullptr;
  if (is_one_of(word, {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})) return true;
  if (is_one_of(word, {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"}))
    return false;
  if (const auto integer = whole_number<int64_t>(word)) return *integer;
  // "inf" and "nan" are strings: YAML writes the numbers ".inf" and ".nan".
  if (word.find_first_of("0123456789") != word.npos) {
    if (const auto number = whole_number<double>(word); number && std::isfinite(*number))
      return *number;
  }
  return json::string(word);
}

class Converter {
 public:
  explicit Converter(yaml_document_t& document) : document_(document) {}

  StatusOr<json::value> convert(int index, int depth) {
    yaml_node_t* const node = yaml_document_get_node(&document_, index);
    const auto line = node->start_mark.line + 1;
    if (depth > kMaxYamlDepth)
      return invalid_argument("line {}: nesting beyond {} levels", line, kMaxYamlDepth);
    if (++num_values_ > kMaxYamlValues)
      return invalid_argument("line {}: more than {} values", line, kMaxYamlValues);
    if (node->type == YAML_SCALAR_NODE) {
      const std::string_view word = text_of(*node);
      if (node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) return plain_value(word);
      return json::value(json::string(word));
    }
    if (node->type == YAML_SEQUENCE_NODE) {
      json::array array;
      const auto& items = node->data.sequence.items;
      for (const yaml_node_item_t* item = items.start; item < items.top; ++item) {
        ASSIGN_OR_RETURN(json::value value, convert(*item, depth + 1));
        array.push_back(std::move(value));
      }
      return json::value(std::move(array));
    }
    json::object object;
    const auto& pairs = node->data.mapping.pairs;
    for (const yaml_node_pair_t* pair = pairs.start; pair < pairs.top; ++pair) {
      const yaml_node_t* const key = yaml_document_get_node(&document_, pair->key);
      if (key->type != YAML_SCALAR_NODE)
        return invalid_argument("line {}: a key must be text", key->start_mark.line + 1);
      ASSIGN_OR_RETURN(json::value value, convert(pair->value, depth + 1));
      if (!object.emplace(text_of(*key), std::move(value)).second)
        return invalid_argument("line {}: '{}' is there twice", key->start_mark.line + 1,
                                text_of(*key).substr(0, 80));
    }
    return json::value(std::move(object));
  }

 private:
  static std::string_view text_of(const yaml_node_t& node) {
    return {reinterpret_cast<const char*>(node.data.scalar.value), node.data.scalar.length};
  }

  yaml_document_t& document_;
  int64_t num_values_ = 0;
};

Status load(YamlParser& parser, YamlDocument& document) {
  document.is_loaded = yaml_parser_load(&parser.parser, &document.document) != 0;
  if (document.is_loaded) return ok();
  return invalid_argument("line {}, column {}: {}", parser.parser.problem_mark.line + 1,
                          parser.parser.problem_mark.column + 1,
                          parser.parser.problem ? parser.parser.problem : "not YAML");
}

}  // namespace

StatusOr<json::value> parse_yaml(std::string_view text) {
  YamlParser parser;
  if (!parser.is_ready) return unavailable("no memory for a YAML parser");
  yaml_parser_set_input_string(&parser.parser, reinterpret_cast<const unsigned char*>(text.data()),
                               text.size());
  YamlDocument document, second;
  RETURN_IF_ERROR(load(parser, document));
  json::value value;
  if (yaml_document_get_root_node(&document.document) != nullptr) {
    ASSIGN_OR_RETURN(value, Converter(document.document).convert(1, 0));
    RETURN_IF_ERROR(load(parser, second));
    if (yaml_document_get_root_node(&second.document) != nullptr)
      return invalid_argument("a second document begins; one is allowed");
  }
  return value;
}

StatusOr<json::value> read_yaml_file(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxYamlBytes));
  auto value = parse_yaml(text);
  if (!value.ok()) return annotate(value.status(), path.string());
  return value;
}

}  // namespace nereid::cli
