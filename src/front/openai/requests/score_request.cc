// /v1/score and /v1/rerank bodies; see requests.h. Sources: vLLM's score API, Jina's and
// Cohere's rerank APIs.
#include <algorithm>
#include <limits>
#include <span>

#include "front/openai/requests/request_fields.h"

namespace nereid::front {
namespace {

// A text or a list of them; {"text": ...} counts as one where `objects` are allowed.
std::vector<std::string> read_texts(Fields& fields, std::string_view key, bool objects) {
  std::vector<std::string> out;
  const json::value* value = fields.get(key);
  if (value == nullptr || value->is_null()) {
    fields.fail(key, "required", "missing_required_parameter");
    return out;
  }
  const std::span<const json::value> list =
      value->is_array() ? std::span<const json::value>(value->get_array()) : std::span(value, 1);
  if (list.empty() || list.size() > kMaxEmbeddingInputs) {
    fields.fail(key, fmt::format("{} given, 1 to {} allowed", list.size(), kMaxEmbeddingInputs));
    return out;
  }
  for (const json::value& item : list) {
    const json::value* text = &item;
    if (const json::object* object = objects ? item.if_object() : nullptr)
      text = object->if_contains("text");
    if (!text || !text->is_string() || text->get_string().empty()) {
      fields.fail(key, "expected a text that is not empty, or an array of them", "invalid_type");
      return {};
    }
    out.emplace_back(std::string_view(text->get_string()));
  }
  return out;
}

// Checks the total length: a text that is paired with all others counts for each.
void check_pairs(Fields& fields, std::string_view first, const ScoreRequest& pairs) {
  if (fields.error()) return;
  if (pairs.first.size() != 1 && pairs.first.size() != pairs.size())
    return fields.fail(first,
                       fmt::format("{} texts for {} others: expected one text, or equally many",
                                   pairs.first.size(), pairs.size()));
  size_t bytes = 0;
  for (const std::string& text : pairs.first)
    bytes += text.size() * (pairs.first.size() == 1 ? pairs.size() : 1);
  for (const std::string& text : pairs.second) bytes += text.size();
  if (bytes > kMaxPairBytes)
    fields.fail(first, fmt::format("the pairs have {} bytes together, at most {} are allowed",
                                   bytes, kMaxPairBytes));
}

void read_activation(Fields& fields, ScoreRequest& out) {
  for (const char* key : {"use_activation", "activation"})
    if (const auto flag = fields.flag(key)) out.activates = *flag;
}

ScoreRequest score_of(Fields& fields) {
  ScoreRequest out;
  const bool has_queries = fields.get("queries") || fields.get("documents");
  out.first = read_texts(fields, has_queries ? "queries" : "text_1", false);
  out.second = read_texts(fields, has_queries ? "documents" : "text_2", false);
  for (const char* key : {"text_1", "text_2"})
    if (has_queries && fields.get(key)) fields.fail(key, "not together with \"queries\"");
  check_pairs(fields, has_queries ? "queries" : "text_1", out);
  out.common = read_request(fields);
  read_activation(fields, out);
  return out;
}

RerankRequest rerank_of(Fields& fields) {
  RerankRequest out;
  const auto query = fields.text("query");
  if (!query || query->empty()) fields.fail("query", "required", "missing_required_parameter");
  out.second = read_texts(fields, "documents", true);
  out.first = {query.value_or("")};
  check_pairs(fields, "query", out);
  const size_t count = out.size();
  const auto wanted = static_cast<size_t>(
      fields.integer("top_n", 0, std::numeric_limits<int32_t>::max()).value_or(0));
  out.num_wanted = wanted == 0 ? count : std::min(wanted, count);
  out.returns_documents = fields.flag("return_documents").value_or(true);
  out.common = read_request(fields);
  read_activation(fields, out);
  return out;
}

}  // namespace

Parsed<ScoreRequest> parse_score_request(std::string_view body, json::storage_ptr memory) {
  return parse_fields(body, std::move(memory), score_of);
}

Parsed<RerankRequest> parse_rerank_request(std::string_view body, json::storage_ptr memory) {
  return parse_fields(body, std::move(memory), rerank_of);
}

FieldUses score_fields() {
  FieldUses uses = uses_of(score_of);
  uses.merge(uses_of(score_of, {{"queries", nullptr}}));
  return uses;
}

FieldUses rerank_fields() { return uses_of(rerank_of); }

}  // namespace nereid::front
