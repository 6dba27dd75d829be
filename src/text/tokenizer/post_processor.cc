#include "text/tokenizer/post_processor.h"

#include <algorithm>
#include <iterator>

namespace nereid::text {

namespace {

constexpr int kMaxNestedProcessors = 8;
constexpr size_t kMaxIds = 1024;  // before or after a text

enum class Kind { kSequence, kNothing, kTemplate, kPair };

struct PostProcessorRow {
  std::string_view type;
  Kind kind;
};

constexpr PostProcessorRow kPostProcessors[] = {{"Sequence", Kind::kSequence},
                                                {"ByteLevel", Kind::kNothing},
                                                {"TemplateProcessing", Kind::kTemplate},
                                                {"BertProcessing", Kind::kPair},
                                                {"RobertaProcessing", Kind::kPair}};

}  // namespace

std::string_view token_text(const JsonNode& field) {
  const JsonNode content = field.value().is_object() ? field["content"] : field;
  return content.value().is_string() ? view_of(content.value().get_string()) : std::string_view();
}

StatusOr<PostProcessor> PostProcessor::from_json(const JsonNode& spec) {
  PostProcessor result;
  if (!spec.is_null()) RETURN_IF_ERROR(result.append(spec, 0));
  return result;
}

Status PostProcessor::append(const JsonNode& spec, int depth) {
  if (depth > kMaxNestedProcessors) {
    return invalid_argument("{}: nested more than {} deep", spec.path(), kMaxNestedProcessors);
  }
  ASSIGN_OR_RETURN(const PostProcessorRow* row, spec.row_of_type(kPostProcessors));
  switch (row->kind) {
    case Kind::kNothing:
      return ok();
    case Kind::kTemplate:
      return append_template(spec);
    case Kind::kPair:
      return append_pair(spec);
    case Kind::kSequence:
      break;
  }
  const JsonNode list = spec["processors"];
  ASSIGN_OR_RETURN(const json::array* items, list.array());
  for (size_t i = 0; i < items->size(); ++i) RETURN_IF_ERROR(append(list[i], depth + 1));
  return ok();
}

// {"single": [{"SpecialToken": {"id": NAME}}, {"Sequence": {"id": "A"}}, ...],
//  "special_tokens": {NAME: {"ids": [...]}}}
Status PostProcessor::append_template(const JsonNode& spec) {
  const JsonNode single = spec["single"];
  ASSIGN_OR_RETURN(const json::array* items, single.array());
  std::vector<int32_t> before, after;
  bool seen_text = false;
  for (size_t i = 0; i < items->size(); ++i) {
    const JsonNode item = single[i];
    if (!item["Sequence"].is_null()) {
      if (seen_text) return unsupported("{}: more than one Sequence", single.path());
      seen_text = true;
      continue;
    }
    ASSIGN_OR_RETURN(const std::string_view name, item["SpecialToken"]["id"].string());
    const JsonNode ids = spec["special_tokens"][name]["ids"];
    ASSIGN_OR_RETURN(const json::array* list, ids.array());
    for (size_t k = 0; k < list->size(); ++k) {
      ASSIGN_OR_RETURN(const int32_t id, ids[k].token_id());
      (seen_text ? after : before).push_back(id);
    }
  }
  if (!seen_text) return single.wrong("a list with one Sequence");
  prefix_.insert(prefix_.begin(), before.begin(), before.end());
  suffix_.insert(suffix_.end(), after.begin(), after.end());
  if (std::max(prefix_.size(), suffix_.size()) > kMaxIds) {
    return invalid_argument("{}: adds more than {} tokens", spec.path(), kMaxIds);
  }
  return ok();
}

// {"cls": [NAME, ID], "sep": [NAME, ID]}
Status PostProcessor::append_pair(const JsonNode& spec) {
  ASSIGN_OR_RETURN(const int32_t cls, spec["cls"][1].token_id());
  ASSIGN_OR_RETURN(const int32_t sep, spec["sep"][1].token_id());
  add_prefix(cls);
  add_suffix(sep);
  return ok();
}

Status PostProcessor::apply_config(
    const JsonNode& config,
    const std::function<std::optional<int32_t>(std::string_view)>& token_id) {
  static constexpr std::string_view kClasses[] = {"LlamaTokenizer",         "LlamaTokenizerFast",
                                                  "GemmaTokenizer",         "GemmaTokenizerFast",
                                                  "CodeLlamaTokenizerFast", "CodeLlamaTokenizer"};
  ASSIGN_OR_RETURN(const std::string_view name, config["tokenizer_class"].string(""));
  if (std::find(std::begin(kClasses), std::end(kClasses), name) == std::end(kClasses)) return ok();
  prefix_.clear();
  suffix_.clear();
  ASSIGN_OR_RETURN(const bool add_bos, config["add_bos_token"].boolean(true));
  ASSIGN_OR_RETURN(const bool add_eos, config["add_eos_token"].boolean(false));
  const auto append_token = [&](bool wanted, std::string_view field, std::vector<int32_t>& ids) {
    if (!wanted) return ok();
    const std::string_view token = token_text(config[field]);
    const std::optional<int32_t> id = token_id(token);
    if (!id) {
      return invalid_argument("{} = '{}': {} puts it around every text, so it must be a token",
                              config[field].path(), token, name);
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
