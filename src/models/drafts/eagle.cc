#include "models/drafts/eagle.h"

#include <algorithm>
#include <utility>

#include "graph/builder.h"
#include "models/all.h"
#include "models/drafts/head_graph.h"
#include "models/families/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

using graph::Builder;
using graph::ValueId;

constexpr std::string_view kFcWeight = "fc.weight";
constexpr std::string_view kEagleScope = "eagle.";  // prefix of the head's own tensors

constexpr WeightRule kEagleNorms[] = {
    norm_rule("mlp.norm", "post_attention_layernorm.weight"),
};
constexpr DecoderWeights kEagleLayer = {.layers = "eagle.layers.{}.",
                                        .layer = {kEagleNorms, kLlamaQkv, kLlamaOut, kLlamaMlp}};

// The target model's tensors, and the copy of its embedding that some heads include.
bool ignores_target(const Traits&, std::string_view tensor) {
  return !tensor.starts_with(kEagleScope) || tensor == "eagle.embed_tokens.weight";
}
const Family kEagleHead{.architecture = "EagleHead", .ignores = ignores_target};

StatusOr<graph::Graph> build_eagle(const Traits& t, bool has_bias, const Model& target,
                                   io::ModelFacts facts) {
  const int64_t width = t.hidden_size;
  Builder b(std::move(facts));
  const auto rounded = [&](const std::string& name, ValueId x) {
    return b.emit(name, graph::Activate{.x = x, .activation = kernels::Activation::kNone}).out;
  };
  const std::string fc = std::string(kEagleScope) + std::string(kFcWeight);
  const ValueId pair = external_rows(b, {{fc, width, 2 * width}});
  const graph::WeightId weight = b.matrix("fc", fc, width, 2 * width);
  const graph::WeightId bias =
      has_bias ? b.vector("fc.bias", "eagle.fc.bias", width) : graph::kNone;
  ValueId x = b.linear("fc", rounded("pair", pair), weight, bias);
  x = add_decoder_layer(b, t, kEagleLayer, 0, x);
  const ValueId hidden = rounded("state", x);
  const ValueId logits = add_logits(b, target.traits, hidden, add_target_weight(b, target, "head"),
                                    add_target_weight(b, target, "head.bias"));
  return std::move(b).finish(b.sampled_rows("logits", logits), hidden);
}

}  // namespace

bool has_eagle_head(const std::filesystem::path& dir) {
  std::error_code error;
  if (!std::filesystem::is_directory(dir, error)) return false;
  const auto checkpoint = io::Checkpoint::open(dir);
  return checkpoint.ok() && checkpoint->find(kFcWeight);
}

StatusOr<Model> read_eagle_head(const std::filesystem::path& dir, const Model& target) {
  const std::filesystem::path path = dir / "config.json";
  ASSIGN_OR_RETURN(const json::object object, read_object(path));
  Config config(object, path.string());
  Model model;
  model.family = &kEagleHead;
  model.config = object;
  model.traits = read_llama_traits(config);
  const bool has_bias = config.boolean("bias", true);
  config.require("num_hidden_layers", 1);
  config.require("hidden_size", target.traits.hidden_size);
  config.require("vocab_size", target.traits.vocab_size);
  refuse_unread(config);
  RETURN_IF_ERROR(config.status());
  ASSIGN_OR_RETURN(model.graph,
                   build_eagle(model.traits, has_bias, target,
                               head_facts(model.traits, kEagleHead.architecture, dir, target)));
  return model;
}

StatusOr<io::Checkpoint> open_eagle_head(const std::filesystem::path& dir, const Model& target,
                                         const std::filesystem::path& target_dir) {
  ASSIGN_OR_RETURN(io::Checkpoint checkpoint, io::Checkpoint::open(dir));
  RETURN_IF_ERROR(
      checkpoint.rename([](const std::string& name) { return std::string(kEagleScope) + name; }));
  ASSIGN_OR_RETURN(io::Checkpoint own, open_checkpoint(target, target_dir));
  RETURN_IF_ERROR(checkpoint.add(std::move(own)));
  return checkpoint;
}

}  // namespace nereid::models
