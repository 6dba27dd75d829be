// What GPT-2's checkpoints and those of its kin name alike.
#pragma once

#include "models/weights.h"

namespace nereid::models {

inline constexpr WeightRule kGpt2Model[] = {
    {"embed", "transformer.wte.weight", Dim::kVocab, Dim::kHidden, Shard::kN},
    {"positions", "transformer.wpe.weight", Dim::kPositions, Dim::kHidden},
    {"norm", "transformer.ln_f.weight", Dim::kHidden},
    {"norm.bias", "transformer.ln_f.bias", Dim::kHidden},
    {"head", "transformer.wte.weight", Dim::kVocab, Dim::kHidden, Shard::kN, tied},
    {"head", "lm_head.weight", Dim::kVocab, Dim::kHidden, Shard::kN, untied},
};

}  // namespace nereid::models
