// Prompt table inputs of a tensorrt_llm request: prompt_embedding_table with
// prompt_table_extra_ids, or prompt_embeds. prompt_vocab_size must equal the
// table's number of rows.
#include <algorithm>
#include <limits>
#include <numeric>

#include "backend/common/float_tensors.h"
#include "backend/tensorrtllm/tensor_fields.h"

namespace nereid::backend {
namespace {

// Reads the rows of an item, [1, rows, width].
StatusOr<PromptTable> read_table(std::string_view name, const InputView& view) {
  const Shape& shape = view.shape;
  if (shape.size() != 3 || shape[0] != 1 || shape[2] > std::numeric_limits<int32_t>::max())
    return invalid_argument(
        "input '{}' has the shape [{}], expected [1, rows, width of the model's embeddings]", name,
        fmt::join(shape, ", "));
  PromptTable table;
  table.width = static_cast<int32_t>(shape[2]);
  ASSIGN_OR_RETURN(table.values, read_bf16(name, view));
  return table;
}

// Reads prompt_embeds: a table with a row for each input id; the ids then name the rows.
Status read_prompt_embeds(const InputView& view, int32_t vocab_size, std::vector<TokenId>& ids,
                          nereid::Request& out) {
  constexpr std::string_view kName = "prompt_embeds";
  ASSIGN_OR_RETURN(PromptTable table, read_table(kName, view));
  if (view.shape[1] != std::ssize(ids))
    return invalid_argument("input '{}' has {} rows, expected {}, one for each of input_ids", kName,
                            view.shape[1], ids.size());
  const auto is_infinite = [](uint16_t bits) { return (bits & 0x7f80u) == 0x7f80u; };
  const auto wrong = std::ranges::find_if(table.values, is_infinite);
  if (wrong != table.values.end())
    return invalid_argument("input '{}': number {} is not finite as bf16", kName,
                            wrong - table.values.begin());
  std::iota(ids.begin(), ids.end(), vocab_size);
  out.prompt_table = std::move(table);
  return ok();
}

// Refuses inputs of a prompt table that come without a table, unless they are zero.
Status refuse_without_table(const Item& item) {
  ASSIGN_OR_RETURN(const auto extra_ids, item.values<uint64_t>("prompt_table_extra_ids"));
  const bool has_ids =
      extra_ids && std::ranges::any_of(*extra_ids, [](uint64_t id) { return id != 0; });
  ASSIGN_OR_RETURN(const auto size, item.scalar<int32_t>("prompt_vocab_size"));
  if (!has_ids && size.value_or(0) == 0) return ok();
  return invalid_argument("input '{}' comes without input 'prompt_embedding_table'",
                          has_ids ? "prompt_table_extra_ids" : "prompt_vocab_size");
}

}  // namespace

Status read_prompt_table(const Item& item, int32_t vocab_size, std::vector<TokenId>& ids,
                         nereid::Request& out) {
  ASSIGN_OR_RETURN(const auto embeds, item.input("prompt_embeds"));
  const bool has_embeds = embeds && !embeds->bytes.empty();
  if (has_embeds) RETURN_IF_ERROR(item.request().hold(embeds->bytes.size()));
  if (has_embeds) RETURN_IF_ERROR(read_prompt_embeds(*embeds, vocab_size, ids, out));
  if (item.lacks("prompt_embedding_table") && item.lacks("prompt_table_extra_ids") &&
      item.lacks("prompt_vocab_size"))
    return ok();
  ASSIGN_OR_RETURN(const auto view, item.input("prompt_embedding_table"));
  if (!view || view->bytes.empty()) return refuse_without_table(item);
  if (has_embeds)
    return invalid_argument("input 'prompt_embeds' comes with input 'prompt_embedding_table'");
  RETURN_IF_ERROR(item.request().hold(view->bytes.size()));
  PromptTable& table = out.prompt_table.emplace();
  ASSIGN_OR_RETURN(table, read_table("prompt_embedding_table", *view));
  ASSIGN_OR_RETURN(auto extra_ids, item.values<uint64_t>("prompt_table_extra_ids"));
  if (!extra_ids || extra_ids->empty()) return ok();
  if (extra_ids->size() != ids.size())
    return invalid_argument(
        "inputTokenExtraIds vector size ({}) must be the same as input token vector size ({}). "
        "(input 'prompt_table_extra_ids')",
        extra_ids->size(), ids.size());
  table.extra_ids = *std::move(extra_ids);
  return ok();
}

}  // namespace nereid::backend
