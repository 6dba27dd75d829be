// Reads tokenizer.json.
#include "text/tokenizer/tokenizer_parts.h"

namespace nereid::text {

namespace {

// tokenizer_config.json's "add_prefix_space" overrides the file's when ByteLevel is the only step.
json::value with_prefix_space(const JsonNode& pre_tokenizer, const JsonNode& config) {
  json::value spec = pre_tokenizer.value();
  const bool* wanted = config["add_prefix_space"].value().if_bool();
  const json::value& type = pre_tokenizer["type"].value();
  if (wanted != nullptr && type.is_string() && view_of(type.get_string()) == "ByteLevel") {
    spec.as_object()["add_prefix_space"] = *wanted;
  }
  return spec;
}

}  // namespace

StatusOr<TokenizerPartsPtr> read_tokenizer_json(const json::value& document,
                                                const json::value& config) {
  const JsonNode root(document, "");
  const JsonNode settings(config, "tokenizer_config");
  auto parts = std::make_unique<TokenizerParts>();
  RETURN_IF_ERROR(root.object().status());
  ASSIGN_OR_RETURN(parts->model, Model::from_json(root["model"]));
  ASSIGN_OR_RETURN(parts->normalizer, Normalizer::from_json(root["normalizer"]));
  const json::value cut = with_prefix_space(root["pre_tokenizer"], settings);
  ASSIGN_OR_RETURN(parts->pre_tokenizer, PreTokenizer::from_json(JsonNode(cut, "pre_tokenizer")));
  ASSIGN_OR_RETURN(parts->post_processor, PostProcessor::from_json(root["post_processor"]));
  ASSIGN_OR_RETURN(parts->decoder, Decoder::from_json(root["decoder"]));
  const JsonNode list = root["added_tokens"];
  if (!list.is_null()) {
    ASSIGN_OR_RETURN(const json::array* entries, list.array());
    for (size_t i = 0; i < entries->size(); ++i) {
      ASSIGN_OR_RETURN(const int32_t id, list[i]["id"].token_id());
      ASSIGN_OR_RETURN(AddedToken token, AddedToken::from_json(list[i], id));
      RETURN_IF_ERROR(parts->add(std::move(token)));
    }
  }
  RETURN_IF_ERROR(parts->read_config(settings));
  return parts;
}

}  // namespace nereid::text
