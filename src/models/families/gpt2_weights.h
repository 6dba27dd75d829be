// Weight names of GPT-2 and related families.
#pragma once

#include "models/decoder_rules.h"

namespace nereid::models {

inline constexpr WeightRule kGpt2Model[] = {
    embed_rule("transformer.wte.weight"),
    positions_rule("transformer.wpe.weight"),
    norm_rule("norm", "transformer.ln_f.weight"),
    head_rule("transformer.wte.weight", tied),
    head_rule("lm_head.weight"),
};

}  // namespace nereid::models
