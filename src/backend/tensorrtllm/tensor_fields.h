// Readers of tensors into fields of an executor request: values with range checks, lists in tensor
// form. Internal to the tensorrtllm backend.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "backend/common/item.h"
#include "backend/tensorrtllm/request_reader.h"
#include "nereid/request.h"

namespace nereid::backend {

// The allowed values of a number: finite, from `low` (inclusive or exclusive) to `high`.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above_low = false;
};

// "in [0, 1]", "greater than 0", "a finite number", ...
std::string describe(const Range& range);

// InvalidArgument "input 'name' is value, expected ..." when outside of the range.
Status check_value(std::string_view name, double value, const Range& range);

// Reads the scalar `name` into `to`; `to` is unchanged when the client did not send it.
template <class T>
Status read_number(const Item& item, std::string_view name, const Range& range,
                   std::optional<T>& to) {
  if (item.lacks(name)) return ok();
  ASSIGN_OR_RETURN(const std::optional<T> value, item.scalar<T>(name));
  if (!value) return ok();
  RETURN_IF_ERROR(check_value(name, static_cast<double>(*value), range));
  to = value;
  return ok();
}

// Beams, sampling, penalties, bans; in the order of the header.
Status read_sampling(const Item& item, const ReadContext& context, SamplingConfig& sampling);

// Log-probabilities and logits.
Status read_output_config(const Item& item, const SamplingConfig& sampling, bool streaming,
                          OutputConfig& output);

// Word lists of one item in tensor form, [2, N] flattened: row 0 ids, row 1 inclusive cumulative
// ends padded with -1.
StatusOr<std::vector<std::vector<TokenId>>> read_words(const std::vector<int32_t>& flat);

// embedding_bias, and logit_bias_ids with logit_bias_values.
Status read_biases(const Item& item, const ReadContext& context, nereid::Request& out);

// image_patches, image_grids, image_token_spans; all of them or none; image_tiles
// comes with these.
Status read_pictures(const Item& item, const ReadContext& context, nereid::Request& out);

// Leaves out.prompt_table unchanged without a table. `ids`: the item's ids, padding included;
// prompt_embeds replaces them by its rows' ids.
Status read_prompt_table(const Item& item, int32_t vocab_size, std::vector<TokenId>& ids,
                         nereid::Request& out);

// retention_*; nullopt without retention_token_range_starts and a decode priority.
StatusOr<std::optional<KvCacheRetentionConfig>> read_retention(const Item& item);

// lora_task_id, lora_weights, lora_config, lora_path. A task id of 0 without the
// others means no adapter.
Status read_lora(const Item& item, const ReadContext& context, nereid::Request& out);

// Unimplemented, naming the first input that asks for an unsupported feature, or for an adapter
// where the model takes none.
Status refuse_unsupported(const Request& request, const ReadContext& context);
// Whether the parameter nereid_usage asks for counts. Unimplemented for
// an unsupported request_type.
StatusOr<bool> read_request_parameters(const Request& request);

}  // namespace nereid::backend
