// The functions behind the rows of all.cc, one group per family file.
#pragma once

#include "models/family.h"

namespace nereid::models {

// llama.cc
Traits read_llama_traits(Config& config);
Traits read_mistral_traits(Config& config);
StatusOr<graph::Graph> build_llama(const Traits& traits, io::ModelFacts facts);
bool llama_ignores(const Traits& traits, std::string_view tensor);

// gpt2.cc
Traits read_gpt2_traits(Config& config);
StatusOr<graph::Graph> build_gpt2(const Traits& traits, io::ModelFacts facts);
bool gpt2_ignores(const Traits& traits, std::string_view tensor);

// moe.cc
Traits read_mixtral_traits(Config& config);
Traits read_qwen3_moe_traits(Config& config);
StatusOr<graph::Graph> build_mixtral(const Traits& traits, io::ModelFacts facts);
StatusOr<graph::Graph> build_qwen3_moe(const Traits& traits, io::ModelFacts facts);
bool moe_ignores(const Traits& traits, std::string_view tensor);

// gemma3.cc
Traits read_gemma3_traits(Config& config);
StatusOr<graph::Graph> build_gemma3(const Traits& traits, io::ModelFacts facts);
bool gemma3_ignores(const Traits& traits, std::string_view tensor);

}  // namespace nereid::models
