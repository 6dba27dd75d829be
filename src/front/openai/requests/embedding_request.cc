// /v1/embeddings bodies; see requests.h.
#include <limits>

#include "front/openai/requests/request_fields.h"

namespace nereid::front {

namespace {

EmbeddingRequest embedding_of(Fields& fields) {
  EmbeddingRequest out;
  fields.refuse_unless("messages", nullptr);
  out.inputs = read_prompts(fields, "input", kMaxEmbeddingInputs);
  out.common = read_request(fields);
  out.add_special_tokens = fields.flag("add_special_tokens").value_or(true);
  out.normalize = fields.flag("normalize").value_or(true);
  out.dimensions = fields.integer("dimensions", 1, std::numeric_limits<int32_t>::max());
  const std::string format = fields.text("encoding_format").value_or("float");
  out.base64 = format == "base64";
  if (!out.base64 && format != "float")
    fields.fail("encoding_format",
                fmt::format("'{}' is not float or base64", format.substr(0, 40)));
  fields.refuse_unless("embed_dtype", "float32");
  return out;
}

}  // namespace

Parsed<EmbeddingRequest> parse_embedding_request(std::string_view body, json::storage_ptr memory) {
  return parse_fields(body, std::move(memory), embedding_of);
}

FieldUses embedding_fields() { return uses_of(embedding_of); }

}  // namespace nereid::front
