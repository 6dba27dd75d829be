#include "models/drafts/eagle3.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "models/all.h"
#include "models/drafts/head_graph.h"
#include "models/families/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

using graph::Builder;
using graph::ValueId;

constexpr int32_t kNumLayersRead = 3;
constexpr std::string_view kEagle3Scope = "eagle3.";  // prefix of the head's own tensors
constexpr std::string_view kHead = "eagle3.lm_head.weight", kTokens = "eagle3.d2t";

constexpr WeightRule kModel[] = {
    {"norm", "eagle3.norm.weight", Dim::kHidden},
};
constexpr WeightRule kLayer[] = {
    {"token.norm", "input_layernorm.weight", Dim::kHidden},
    {"state.norm", "hidden_norm.weight", Dim::kHidden},
};
constexpr WeightRule kNorms[] = {
    {"mlp.norm", "post_attention_layernorm.weight", Dim::kHidden},
};
constexpr WeightRule kQkv[] = {
    with_bias(
        {"attn.q", "self_attn.q_proj.weight", Dim::kQuery, Dim::kTwoHidden, ShardAxis::kHeads},
        qkv_bias),
    with_bias(
        {"attn.k", "self_attn.k_proj.weight", Dim::kKeyValue, Dim::kTwoHidden, ShardAxis::kHeads},
        qkv_bias),
    with_bias(
        {"attn.v", "self_attn.v_proj.weight", Dim::kKeyValue, Dim::kTwoHidden, ShardAxis::kHeads},
        qkv_bias),
};
// The layer has two names in use.
constexpr std::string_view kLayerScopes[] = {"eagle3.midlayer.", "eagle3.layers.0."};

// The target's tensors, vocabulary maps, and the copy of the target's embedding in some heads.
bool ignores_others(const Traits&, std::string_view tensor) {
  return !tensor.starts_with(kEagle3Scope) || tensor == kTokens || tensor == "eagle3.t2d" ||
         tensor == "eagle3.embed_tokens.weight";
}
const Family kEagle3Head{.architecture = "Eagle3Head", .ignores = ignores_others};

struct Kind {
  std::string_view layer;         // tensor prefix
  bool has_head = false;          // a head of its own
  bool has_bias = false;          // of fc
  bool norm_is_residual = false;  // the residual is hidden_norm's result
};

StatusOr<graph::Graph> build(const Traits& t, const Kind& kind, const Model& target,
                             io::ModelFacts facts) {
  const int64_t width = t.hidden_size, three = kNumLayersRead * width;
  Builder b(std::move(facts));
  const auto rounded = [&](const char* name, ValueId x) {
    return b.emit(name, graph::Activate{.x = x, .activation = kernels::Activation::kNone}).out;
  };
  const std::string layer(kind.layer);
  const auto row_of = [&](const char* tensor, int64_t rows, int64_t cols) {
    return RowOf{tensor, rows, cols};
  };
  const std::string query = layer + "self_attn.q_proj.weight";
  const ValueId given =
      external_rows(b, {row_of("eagle3.fc.weight", width, three),
                        row_of(query.c_str(), int64_t{t.num_heads} * t.head_dim, 2 * width)});
  const graph::WeightId fc = b.matrix("fc", "eagle3.fc.weight", width, three);
  const graph::WeightId bias =
      kind.has_bias ? b.vector("fc.bias", "eagle3.fc.bias", width) : graph::kNone;
  const ValueId fused =
      b.linear("fc", rounded("layers", b.slice("layers.given", given, width, three)), fc, bias);
  ValueId x = b.add("state", fused, b.slice("state.given", given, width + three, width));

  const Weights norms(b, t, kLayer, "", layer);
  const Builder::NormKind norm{.eps = t.norm_eps};
  const ValueId token =
      b.norm("token.norm", b.slice("token.given", given, 0, width), norms["token.norm"], norm);
  const ValueId state = b.norm("state.norm", x, norms["state.norm"], norm);
  if (kind.norm_is_residual)
    x = b.norm("state.norm.f32", x, norms["state.norm"], norm, graph::kNone, DType::kF32);
  const DecoderWeights weights = {.layers = kind.layer,
                                  .layer = {kNorms, kQkv, kLlamaOut, kLlamaMlp}};
  x = add_decoder_layer(b, t, weights, 0, x, b.concat("attended", {token, state}));

  const Weights own(b, t, kModel);
  const graph::WeightId head = kind.has_head
                                   ? b.matrix("head", std::string(kHead), t.vocab_size, width)
                                   : add_target_weight(b, target, "head");
  const ValueId logits = b.linear("head", b.norm("norm", x, own["norm"], norm), head);
  return std::move(b).finish(b.sampled_rows("logits", logits), rounded("predicted", x));
}

std::string_view layer_scope(const std::filesystem::path& dir) {
  const auto checkpoint = io::Checkpoint::open(dir);
  const bool is_other = checkpoint.ok() && checkpoint->find("layers.0.hidden_norm.weight");
  return kLayerScopes[is_other ? 1 : 0];
}

}  // namespace

bool has_eagle3_head(const std::filesystem::path& dir) {
  std::error_code error;
  if (!std::filesystem::is_directory(dir, error)) return false;
  const auto object = read_object(dir / "config.json");
  if (!object.ok()) return false;
  Config config(*object, "");
  const std::vector<std::string> names = config.strings("architectures");
  return names.size() == 1 &&
         (names[0] == "LlamaForCausalLMEagle3" || names[0] == "Eagle3LlamaForCausalLM");
}

StatusOr<std::vector<int32_t>> eagle3_layers(const std::filesystem::path& dir, int32_t num_layers) {
  constexpr std::string_view kKey = "eagle_aux_hidden_state_layer_ids";
  const std::filesystem::path path = dir / "config.json";
  ASSIGN_OR_RETURN(const json::object object, read_object(path));
  Config config(object, path.string());
  std::vector<int32_t> layers = config.integers(kKey, 0, num_layers - 1);
  if (const json::object* nested = config.object("eagle_config"); nested && layers.empty()) {
    Config own(*nested, path.string() + ": eagle_config");
    layers = own.integers(kKey, 0, num_layers - 2);
    for (int32_t& layer : layers) ++layer;
    if (!own.boolean("use_aux_hidden_state", true))
      own.fail("use_aux_hidden_state", "false is not supported, only true is");
    config.add(own.status());
  }
  if (layers.empty()) {
    layers = {2, num_layers / 2, num_layers - 3};
    if (num_layers < 5)
      config.fail(kKey, fmt::format("is missing, and a model of {} layers has none by default",
                                    num_layers));
  }
  if (layers.size() != kNumLayersRead)
    config.fail(kKey, fmt::format("has {} layers, wanted are {}", layers.size(), kNumLayersRead));
  RETURN_IF_ERROR(config.status());
  return layers;
}

StatusOr<Model> read_eagle3_head(const std::filesystem::path& dir, const Model& target) {
  const std::filesystem::path path = dir / "config.json";
  ASSIGN_OR_RETURN(const json::object object, read_object(path));
  Config config(object, path.string());
  Model model;
  model.family = &kEagle3Head;
  model.config = object;
  model.traits = read_llama_traits(config);
  Traits& t = model.traits;
  const Kind kind{.layer = layer_scope(dir),
                  .has_head = config.has("draft_vocab_size"),
                  .has_bias = config.boolean("bias", false),
                  .norm_is_residual = config.boolean("norm_before_residual", false)};
  config.require("num_hidden_layers", 1);
  config.require("hidden_size", target.traits.hidden_size);
  config.require("target_hidden_size", target.traits.hidden_size);
  config.require("vocab_size", target.traits.vocab_size);
  if (kind.has_head) t.vocab_size = config.integer("draft_vocab_size", 1, t.vocab_size);
  t.attention_out_bias = false;
  refuse_unread(config);
  RETURN_IF_ERROR(config.status());
  ASSIGN_OR_RETURN(model.graph,
                   build(t, kind, target, head_facts(t, kEagle3Head.architecture, dir, target)));
  return model;
}

StatusOr<io::Checkpoint> open_eagle3_head(const std::filesystem::path& dir, const Model& head,
                                          const Model& target,
                                          const std::filesystem::path& target_dir) {
  ASSIGN_OR_RETURN(io::Checkpoint checkpoint, io::Checkpoint::open(dir));
  RETURN_IF_ERROR(
      checkpoint.rename([](const std::string& name) { return std::string(kEagle3Scope) + name; }));
  if (head.config.contains("draft_vocab_size")) return checkpoint;
  ASSIGN_OR_RETURN(io::Checkpoint own, open_checkpoint(target, target_dir));
  RETURN_IF_ERROR(checkpoint.add(std::move(own)));
  return checkpoint;
}

StatusOr<std::vector<int32_t>> eagle3_tokens(const std::filesystem::path& dir, int32_t num,
                                             int32_t vocab) {
  ASSIGN_OR_RETURN(const io::Checkpoint checkpoint, io::Checkpoint::open(dir));
  const io::Checkpoint::Entry* const entry = checkpoint.find("d2t");
  if (!entry && num == vocab) return std::vector<int32_t>();
  const std::string file = checkpoint.main_file().string();
  if (!entry)
    return invalid_argument("{}: tensor 'd2t' is missing, which draft_vocab_size {} needs", file,
                            num);
  const io::StoredTensor& tensor = *entry->tensor;
  if (tensor.type != DType::kI64 || tensor.shape != std::vector<int64_t>{num})
    return invalid_argument("{}: tensor 'd2t' is {} {}, config.json asks for I64 [{}]", file,
                            tensor.dtype, tensor.shape_text(), num);
  std::vector<int32_t> tokens;
  std::set<int64_t> seen;
  for (int32_t i = 0; i < num; ++i) {
    int64_t distance = 0;
    std::memcpy(&distance, tensor.data.data() + static_cast<size_t>(i) * sizeof(distance),
                sizeof(distance));
    if (distance < -i || distance >= vocab - i || !seen.insert(i + distance).second)
      return invalid_argument(
          "{}: tensor 'd2t' has {} for token {}: outside the model's vocabulary of {}, or a "
          "duplicate",
          file, distance, i, vocab);
    tokens.push_back(static_cast<int32_t>(i + distance));
  }
  return tokens;
}

}  // namespace nereid::models
