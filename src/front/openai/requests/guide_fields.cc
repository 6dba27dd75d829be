// Structured output: the fields of OpenAI, vLLM and llama-server that say what the text has to be.
#include "base/json_members.h"
#include "front/openai/requests/request_fields.h"
#include "text/grammar/gbnf.h"

namespace nereid::front {
namespace {

// Takes the first grammar; a second one is a fault.
class GrammarFieldReader {
 public:
  GrammarFieldReader(Fields& fields, std::optional<GrammarField>& guide)
      : fields_(fields), guide_(guide) {}

  void set(std::string_view key, const char* type, std::string text) {
    if (guide_)
      return fields_.fail(
          key,
          fmt::format("not together with '{}': only one field may constrain the output", field_));
    guide_ = GrammarField{type, std::move(text)};
    field_ = key;
  }
  void schema(std::string_view key, const json::value& schema) {
    if (schema.is_string()) return set(key, "json_schema", std::string(schema.get_string()));
    if (schema.is_object()) return set(key, "json_schema", json::serialize(schema));
    fields_.fail(key, "expected a JSON schema, as an object or as text", "invalid_type");
  }
  void text(std::string_view key, const char* type, const json::value& value) {
    if (!value.is_string() || value.get_string().empty())
      return fields_.fail(key, "expected a text that is not empty", "invalid_type");
    set(key, type, std::string(value.get_string()));
  }
  void choices(std::string_view key, const json::value& value) {
    std::vector<std::string> texts;
    if (const json::array* list = value.if_array())
      for (const json::value& one : *list)
        if (one.is_string()) texts.emplace_back(one.get_string());
    if (!value.is_array() || texts.empty() || texts.size() != value.get_array().size())
      return fields_.fail(key, "expected an array of texts, at least one", "invalid_type");
    set(key, "ebnf_grammar", text::choice_gbnf(texts));
  }
  // A structural tag as an object or as text.
  void tag(std::string_view key, const json::value& value) {
    if (!value.is_object()) return text(key, "structural_tag", value);
    set(key, "structural_tag", json::serialize(value));
  }
  void response_format(const json::object& format);
  void structured_outputs(const json::object& outputs);

 private:
  Fields& fields_;
  std::optional<GrammarField>& guide_;
  std::string field_;
};

void GrammarFieldReader::response_format(const json::object& format) {
  constexpr std::string_view kKey = "response_format";
  const std::string name = text_member(format, "type");
  if (name == "text") return;
  if (name == "json_object") return set(kKey, "json", "");
  if (name == "structural_tag") return set(kKey, "structural_tag", json::serialize(format));
  if (name == "json") return schema(kKey, member_or_null(format, "schema"));
  if (name == "regex") return text(kKey, "regex", member_or_null(format, "regex"));
  if (name == "ebnf") return text(kKey, "ebnf_grammar", member_or_null(format, "ebnf"));
  if (name != "json_schema")
    return fields_.fail(kKey,
                        "type: expected \"text\", \"json_object\", \"json_schema\", \"json\", "
                        "\"regex\", \"ebnf\" or \"structural_tag\"");
  const json::value* outer = format.if_contains("json_schema");
  if (!outer || !outer->is_object() || outer->get_object().empty())
    return fields_.fail(kKey, "json_schema.schema: it is missing");
  const json::object& named = outer->get_object();
  if (const json::value* schema = named.if_contains("schema")) return this->schema(kKey, *schema);
  if (named.contains("name") || named.contains("strict"))
    return fields_.fail(kKey, "json_schema.schema: it is missing");
  this->schema(kKey, *outer);  // TensorRT-LLM's form: the schema alone
}

void GrammarFieldReader::structured_outputs(const json::object& outputs) {
  constexpr std::string_view kKey = "structured_outputs";
  for (const auto& [key, value] : outputs) {
    if (value.is_null()) continue;
    if (key == "json")
      schema(kKey, value);
    else if (key == "regex")
      text(kKey, "regex", value);
    else if (key == "choice")
      choices(kKey, value);
    else if (key == "grammar")
      text(kKey, "ebnf_grammar", value);
    else if (key == "structural_tag")
      tag(kKey, value);
    else if (key == "json_object" && value == json::value(true))
      set(kKey, "json", "");
    else if ((key != "json_object" && key != "disable_any_whitespace" &&
              key != "disable_additional_properties") ||
             value != json::value(false))
      fields_.fail(kKey,
                   fmt::format("'{}': {} is not supported; allowed are json, regex, choice, "
                               "grammar, structural_tag and json_object",
                               std::string_view(key), json::serialize(value).substr(0, 60)),
                   "unsupported_parameter");
  }
}

}  // namespace

std::optional<GrammarField> read_guide(Fields& fields) {
  std::optional<GrammarField> guide;
  GrammarFieldReader guides(fields, guide);
  const auto given = [&](std::string_view key) -> const json::value* {
    const json::value* value = fields.get(key);
    return value && !value->is_null() ? value : nullptr;
  };
  if (const json::object* format = fields.object("response_format"))
    guides.response_format(*format);
  if (const json::object* outputs = fields.object("structured_outputs"))
    guides.structured_outputs(*outputs);
  for (const char* key : {"guided_json", "json_schema"})
    if (const json::value* value = given(key)) guides.schema(key, *value);
  if (const json::value* value = given("guided_regex"))
    guides.text("guided_regex", "regex", *value);
  if (const json::value* value = given("structural_tag")) guides.tag("structural_tag", *value);
  if (const json::value* value = given("guided_choice")) guides.choices("guided_choice", *value);
  for (const char* key : {"guided_grammar", "grammar"})
    if (const json::value* value = given(key)) guides.text(key, "ebnf_grammar", *value);
  return guide;
}

}  // namespace nereid::front
