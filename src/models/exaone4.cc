// EXAONE 4: norms behind attention and MLP instead of before them, and of queries and keys; the
// larger model has windows on most layers and no rotation on the others.
#include "models/all.h"
#include "models/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kExaone4Norms[] = {
    norm_rule("attn.out.norm", "post_attention_layernorm.weight"),
    norm_rule("mlp.out.norm", "post_feedforward_layernorm.weight"),
};

}  // namespace

const DecoderWeights kExaone4Weights = {.model = kLlamaModel,
                                        .layer = {kExaone4Norms, kLlamaQkv, kLlamaOut, kLlamaMlp}};

Traits read_exaone4_traits(Config& c) {
  Traits t = read_decoder(c, {.window = 0, .norm_eps = 1e-5});
  t.ropes = {read_rope(c, t)};
  t.qk_norm = true;
  if (t.sliding_window == 0) return t;
  // Some files write the pattern in letters, beside the list that it stands for.
  const int32_t pattern =
      c.has("layer_types") ? 1 : c.integer("sliding_window_pattern", 1, kMaxLayers, 4);
  read_windows(c, t, [pattern](int32_t layer) { return (layer + 1) % pattern != 0; });
  t.has_rope = t.has_window;
  return t;
}

}  // namespace nereid::models
