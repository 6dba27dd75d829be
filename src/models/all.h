// What the rows of all.cc are made of, one group per family file.
#pragma once

#include "models/family.h"

namespace nereid::models {

// llama.cc
extern const DecoderWeights kLlamaWeights;
Traits read_llama_traits(Config& config);
Traits read_mistral_traits(Config& config);

// qwen.cc
Traits read_qwen2_traits(Config& config);
Traits read_qwen3_traits(Config& config);

// gpt2.cc
extern const DecoderWeights kGpt2Weights;
Traits read_gpt2_traits(Config& config);

// moe.cc
extern const DecoderWeights kMixtralWeights, kQwen3MoeWeights;
Traits read_mixtral_traits(Config& config);
Traits read_qwen3_moe_traits(Config& config);

// gemma.cc
extern const DecoderWeights kGemmaSandwichWeights;
Traits read_gemma_traits(Config& config);
Traits read_gemma2_traits(Config& config);
Traits read_gemma3_traits(Config& config);

}  // namespace nereid::models
