// Tensors of a tensorrt_llm request to executor requests.
#pragma once

#include <string>
#include <vector>

#include "backend/common/item.h"
#include "backend/common/triton.h"
#include "nereid/executor.h"

namespace nereid::backend {

struct ReadContext {
  bool decoupled = false;
  bool exclude_input_default = false;
  bool is_v1 = false;            // static batching; does not stream
  bool declares_lengths = true;  // false: the oldest configurations, without output sequence_length
  std::vector<TokenId> default_end_ids;  // from the checkpoint
  int32_t vocab_size = 0;
  int32_t max_sequence_length = 0;
  EncoderFacts encoder;
  std::vector<TokenId> decoder_prompt;  // of requests without one; empty: none
  PictureFacts pictures;
  int32_t max_beam_width = 1;
  bool takes_adapters = false;
  // Root of the folders that requests may name; empty: requests may name none.
  std::string lora_load_dir;
  bool declares_embedding = false;
  int32_t embedding_size = 0;  // width of pooled embeddings; 0: the model has none
};

// One item of a batch.
struct GenerationRequest {
  nereid::Request request;
  bool exclude_input = false;
  bool return_perf_metrics = false;
  bool return_num_input_tokens = false, return_num_output_tokens = false;
  bool usage_parameters = false;  // each response has the engine's counts as parameters
};

// One request for each item of the batch. InvalidArgument, naming tensor, value and range, for a
// bad value; Unimplemented, naming the input, for an unsupported one.
StatusOr<std::vector<GenerationRequest>> read_generation_requests(const Request& request,
                                                                  const ReadContext& context);

}  // namespace nereid::backend
