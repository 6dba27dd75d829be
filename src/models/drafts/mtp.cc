#include "models/drafts/mtp.h"

#include <utility>

#include "models/drafts/head_graph.h"

namespace nereid::models {
namespace {

using graph::Builder;
using graph::ValueId;

constexpr WeightRule kRules[] = {
    {"token.norm", "enorm.weight", Dim::kHidden},
    {"state.norm", "hnorm.weight", Dim::kHidden},
    {"pair", "eh_proj.weight", Dim::kHidden, Dim::kTwoHidden},
    {"norm", "shared_head.norm.weight", Dim::kHidden},
};

// The target model's tensors are in the same files.
bool ignores_all(const Traits&, std::string_view) { return true; }
const Family kMtpLayer{.architecture = "MtpLayer", .ignores = ignores_all};

StatusOr<graph::Graph> build(const Traits& t, const std::string& scope, const Model& target,
                             io::ModelFacts facts) {
  const int64_t width = t.hidden_size;
  Builder b(std::move(facts));
  const ValueId given = external_rows(b, {{scope + "eh_proj.weight", width, 2 * width}});
  const Weights own(b, t, kRules, "", scope);
  const Builder::NormKind norm{.eps = t.norm_eps};
  const ValueId token =
      b.norm("token.norm", b.slice("token.given", given, 0, width), own["token.norm"], norm);
  const ValueId state =
      b.norm("state.norm", b.slice("state.given", given, width, width), own["state.norm"], norm);
  ValueId x = b.linear("pair", b.concat("pair.in", {token, state}), own["pair"]);
  DecoderWeights weights = *target.family->weights;
  weights.layers = scope;
  x = add_decoder_layer(b, t, weights, 0, x);
  const ValueId hidden = b.norm("norm", x, own["norm"], norm);
  const ValueId logits = add_logits(b, t, hidden, add_target_weight(b, target, "head"),
                                    add_target_weight(b, target, "head.bias"));
  return std::move(b).finish(b.sampled_rows("logits", logits), hidden);
}

}  // namespace

bool has_mtp_layer(const std::filesystem::path& dir) {
  std::error_code error;
  if (!std::filesystem::is_directory(dir, error)) return false;
  const auto object = read_object(dir / "config.json");
  if (!object.ok() || !object->contains("architectures")) return false;
  Config config(*object, "");
  return config.has("num_nextn_predict_layers") &&
         config.integer("num_nextn_predict_layers", 0, 1 << 20) == 1 && config.status().ok();
}

StatusOr<Model> mtp_layer(const std::filesystem::path& dir, const Model& target) {
  const std::string file = (dir / "config.json").string();
  if (target.layout != Layout::kHuggingFace)
    return invalid_argument(
        "'{}': MTP layers are read from checkpoints in Hugging Face's layout only", dir.string());
  if (target.traits.num_mtp_layers != 1)
    return invalid_argument("{}: field 'num_nextn_predict_layers': {} is not 1", file,
                            target.traits.num_mtp_layers);
  Model model;
  model.family = &kMtpLayer;
  model.config = target.config;
  model.quantization = target.quantization;
  model.traits = target.traits;
  Traits& t = model.traits;
  const std::string scope = fmt::format("model.layers.{}.", t.num_layers);
  t.num_layers = 1, t.num_mtp_layers = 0;
  t.has_experts.clear();  // the MTP layer has experts
  ASSIGN_OR_RETURN(model.graph,
                   build(t, scope, target, head_facts(t, kMtpLayer.architecture, dir, target)));
  return model;
}

}  // namespace nereid::models
