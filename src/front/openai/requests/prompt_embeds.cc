// The field prompt_embeds, as in vLLM: tensors [tokens, width] as torch.save writes them, in
// base64, each replacing a prompt's tokens.
#include <span>

#include "base/base64.h"
#include "front/openai/requests/request_fields.h"
#include "front/protection/budget_memory.h"
#include "io/numbers.h"
#include "io/torch_file.h"

namespace nereid::front {
namespace {

// Throws BudgetIsFull.
void reserve(BudgetShare& share, size_t num_bytes) {
  if (const Status status = share.reserve(num_bytes); !status.ok()) throw BudgetIsFull(status);
}

StatusOr<PromptRowsPtr> rows_of_text(const json::string& base64) {
  PromptRows rows{.width = 0, .values = {}, .held = BudgetMemory::share_beside(base64.storage())};
  reserve(rows.held, base64.size() / 4 * 3);
  ASSIGN_OR_RETURN(const std::string file, decode_base64(base64));
  ASSIGN_OR_RETURN(const auto tensors, io::parse_torch_file(std::as_bytes(std::span(file))));
  if (tensors.size() != 1) return invalid_argument("{} tensors, expected one", tensors.size());
  const io::StoredTensor& tensor = tensors[0];
  std::vector<int64_t> shape = tensor.shape;
  if (shape.size() == 3 && shape[0] == 1) shape.erase(shape.begin());
  if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1)
    return invalid_argument("the shape {} is not [tokens, width]", tensor.shape_text());
  const size_t value_bytes = static_cast<size_t>(shape[0] * shape[1]) * sizeof(BF16);
  reserve(rows.held, file.size() + 3 * value_bytes);  // as float and as BF16
  ASSIGN_OR_RETURN(const std::vector<float> numbers, io::numbers_of(tensor));
  rows.width = shape[1];
  rows.values.reserve(numbers.size());
  for (const float x : numbers) rows.values.push_back(to_bf16(x));
  reserve(rows.held, 2 * value_bytes);
  return std::make_shared<const PromptRows>(std::move(rows));
}

}  // namespace

std::vector<Prompt> read_prompt_embeds(Fields& fields, size_t max_prompts) {
  constexpr char kKey[] = "prompt_embeds";
  std::vector<Prompt> out;
  const json::value* const given = fields.get(kKey);
  if (!given || given->is_null()) return out;
  const std::span<const json::value> list = given->is_array()
                                                ? std::span<const json::value>(given->get_array())
                                                : std::span<const json::value>(given, 1);
  if (list.size() > max_prompts)
    fields.fail(kKey, fmt::format("{} given, at most {} allowed", list.size(), max_prompts));
  for (const json::value& item : list) {
    if (fields.error()) break;
    if (!item.is_string()) {
      fields.fail(kKey, "expected a tensor of torch.save in base64, or an array of them",
                  "invalid_type");
      break;
    }
    auto rows = rows_of_text(item.get_string());
    if (rows.ok())
      out.emplace_back(*std::move(rows));
    else
      fields.fail(kKey, std::string(message(rows.status())));
  }
  return out;
}

}  // namespace nereid::front
