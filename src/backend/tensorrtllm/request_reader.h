// From the tensors of a tensorrt_llm request to an executor request.
#pragma once

#include <string>
#include <vector>

#include "backend/common/triton.h"
#include "nereid/executor.h"

namespace nereid::backend {

struct ReadContext {
  bool decoupled = false;
  bool exclude_input_default = false;
  std::vector<TokenId> default_end_ids;  // of the checkpoint
};

struct GenerationRequest {
  nereid::Request request;
  bool exclude_input = false;
  bool return_perf_metrics = false;
  bool return_num_input_tokens = false, return_num_output_tokens = false;
};

// InvalidArgument for wrong values; Unimplemented, naming the input, for what this backend does not
// do.
StatusOr<GenerationRequest> read_generation_request(const Request& request,
                                                    const ReadContext& context);

// Word lists of one item in tensor form, [2, N] flattened: row 0 ids, row 1 inclusive cumulative
// ends padded with -1.
StatusOr<std::vector<std::vector<TokenId>>> read_words(const std::vector<int32_t>& flat);

}  // namespace nereid::backend
