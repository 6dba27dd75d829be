#include "text/post_processor.h"

#include <algorithm>
#include <string>

#include "text/json_fields.h"

namespace nereid::text {

namespace {

constexpr int kMaxNestedProcessors = 8;
constexpr size_t kMaxIds = 1024;  // before or after one text

std::string_view token_text(const json::object& config, std::string_view name) {
  const json::value* value = &field_or_null(config, name);
  if (value->is_object()) value = &field_or_null(value->get_object(), "content");
  if (!value->is_string()) return {};
  return {value->get_string().data(), value->get_string().size()};
}

}  // namespace

StatusOr<PostProcessor> PostProcessor::from_json(const json::value& spec) {
  PostProcessor result;
  if (!spec.is_null()) RETURN_IF_ERROR(result.append(spec, 0));
  return result;
}

Status PostProcessor::append(const json::value& spec, int depth) {
  if (depth > kMaxNestedProcessors) {
    return invalid_argument("post_processor: nested more than {} deep", kMaxNestedProcessors);
  }
  ASSIGN_OR_RETURN(const json::object* object, as_object(spec, "post_processor"));
  ASSIGN_OR_RETURN(const std::string_view type, string_field(*object, "type"));
  if (type == "ByteLevel") return ok();
  if (type == "TemplateProcessing") return append_template(*object);
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const json::array* list, array_field(*object, "processors"));
    for (const json::value& item : *list) RETURN_IF_ERROR(append(item, depth + 1));
    return ok();
  }
  return unsupported(
      "post_processor type '{}': allowed are ByteLevel, TemplateProcessing and Sequence", type);
}

// {"single": [{"SpecialToken": {"id": NAME}}, {"Sequence": {"id": "A"}}, ...],
//  "special_tokens": {NAME: {"ids": [...]}}}
Status PostProcessor::append_template(const json::object& spec) {
  ASSIGN_OR_RETURN(const json::array* single, array_field(spec, "single"));
  std::vector<int32_t> before, after;
  bool seen_text = false;
  for (const json::value& item : *single) {
    ASSIGN_OR_RETURN(const json::object* object, as_object(item, "TemplateProcessing.single"));
    if (object->contains("Sequence")) {
      if (seen_text) return unsupported("TemplateProcessing.single: more than one Sequence");
      seen_text = true;
      continue;
    }
    ASSIGN_OR_RETURN(const json::object* special, object_field(*object, "SpecialToken"));
    ASSIGN_OR_RETURN(const std::string_view name, string_field(*special, "id"));
    ASSIGN_OR_RETURN(const json::object* table, object_field(spec, "special_tokens"));
    ASSIGN_OR_RETURN(const json::object* entry, object_field(*table, name));
    ASSIGN_OR_RETURN(const json::array* ids, array_field(*entry, "ids"));
    for (const json::value& value : *ids) {
      ASSIGN_OR_RETURN(const int32_t id, as_token_id(value, name));
      (seen_text ? after : before).push_back(id);
    }
  }
  if (!seen_text) return invalid_argument("TemplateProcessing.single has no Sequence");
  prefix_.insert(prefix_.begin(), before.begin(), before.end());
  suffix_.insert(suffix_.end(), after.begin(), after.end());
  if (std::max(prefix_.size(), suffix_.size()) > kMaxIds) {
    return invalid_argument("post_processor adds more than {} tokens", kMaxIds);
  }
  return ok();
}

Status PostProcessor::apply_config(
    const json::object& config,
    const std::function<std::optional<int32_t>(std::string_view)>& token_id) {
  static constexpr std::string_view kClasses[] = {"LlamaTokenizer",         "LlamaTokenizerFast",
                                                  "GemmaTokenizer",         "GemmaTokenizerFast",
                                                  "CodeLlamaTokenizerFast", "CodeLlamaTokenizer"};
  ASSIGN_OR_RETURN(const std::string_view name, string_field(config, "tokenizer_class", ""));
  if (std::find(std::begin(kClasses), std::end(kClasses), name) == std::end(kClasses)) return ok();
  prefix_.clear();
  suffix_.clear();
  ASSIGN_OR_RETURN(const bool add_bos, bool_field(config, "add_bos_token", true));
  ASSIGN_OR_RETURN(const bool add_eos, bool_field(config, "add_eos_token", false));
  const auto append_token = [&](bool wanted, std::string_view field, std::vector<int32_t>& ids) {
    if (!wanted) return ok();
    const std::string_view token = token_text(config, field);
    const std::optional<int32_t> id = token_id(token);
    if (!id) {
      return invalid_argument("{} asks for '{}' around every text, which is not in the vocabulary",
                              name, token);
    }
    ids.push_back(*id);
    return ok();
  };
  RETURN_IF_ERROR(append_token(add_bos, "bos_token", prefix_));
  return append_token(add_eos, "eos_token", suffix_);
}

Status PostProcessor::check(int32_t max_id) const {
  for (const auto* ids : {&prefix_, &suffix_}) {
    for (const int32_t id : *ids) {
      if (id > max_id) {
        return invalid_argument("post_processor adds token id {}, but the largest id is {}", id,
                                max_id);
      }
    }
  }
  return ok();
}

}  // namespace nereid::text
