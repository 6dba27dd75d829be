#include "models/formats/trtllm_halves.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/ranges.h>

#include "models/formats/trtllm.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr std::string_view kArchitectures[] = {"EncoderModel", "WhisperEncoder", "DecoderModel"};

// `model_type` of families: t5, bart (mBART, too), nmt and whisper of TensorRT-LLM, others of HF.
constexpr std::pair<std::string_view, std::string_view> kFamilyOfType[] = {
    {"t5", "T5ForConditionalGeneration"},           {"blip2", "T5ForConditionalGeneration"},
    {"mt5", "MT5ForConditionalGeneration"},         {"bart", "BartForConditionalGeneration"},
    {"mbart", "MBartForConditionalGeneration"},     {"marian", "MarianMTModel"},
    {"pegasus", "PegasusForConditionalGeneration"}, {"m2m_100", "M2M100ForConditionalGeneration"},
    {"whisper", "WhisperForConditionalGeneration"}, {"nmt", "MarianMTModel"},
};

// A size's name in this layout, and in config.json of T5, of BART and its kin, and of Whisper.
struct SizeField {
  std::string_view theirs, t5, bart, whisper;
};
constexpr SizeField kEncoderSizes[] = {
    {"hidden_size", "d_model", "d_model", "d_model"},
    {"num_hidden_layers", "num_layers", "encoder_layers", "encoder_layers"},
    {"num_attention_heads", "num_heads", "encoder_attention_heads", "encoder_attention_heads"},
    {"intermediate_size", "d_ff", "encoder_ffn_dim", "encoder_ffn_dim"},
    {"max_position_embeddings", "n_positions", "max_position_embeddings", "max_source_positions"}};
constexpr SizeField kDecoderSizes[] = {
    {"hidden_size", "d_model", "d_model", "d_model"},
    {"num_hidden_layers", "num_decoder_layers", "decoder_layers", "decoder_layers"},
    {"num_attention_heads", "num_heads", "decoder_attention_heads", "decoder_attention_heads"},
    {"intermediate_size", "d_ff", "decoder_ffn_dim", "decoder_ffn_dim"},
    {"max_position_embeddings", "n_positions", "max_position_embeddings", "max_target_positions"}};

constexpr std::string_view kTokenIds[] = {"decoder_start_token_id", "eos_token_id", "bos_token_id",
                                          "pad_token_id", "forced_bos_token_id"};

constexpr int32_t kLayerNorm = 0, kRmsNorm = 1;    // layernorm_type
constexpr int32_t kPreNorm = 0, kPostNorm = 1;     // layernorm_position
constexpr int32_t kPlainMlp = 0, kGatedMlp = 1;    // mlp_type
constexpr std::string_view kGeluNew = "gelu_new";  // T5's name of GELU's approximation by tanh

bool is_t5(std::string_view architecture) { return architecture.find("T5") != std::string::npos; }
bool is_whisper(std::string_view architecture) { return architecture.starts_with("Whisper"); }

std::string_view name_of(const SizeField& field, std::string_view architecture) {
  return is_t5(architecture) ? field.t5 : is_whisper(architecture) ? field.whisper : field.bart;
}

std::string_view type_of(std::string_view architecture) {
  for (const auto& [type, name] : kFamilyOfType)
    if (name == architecture) return type;
  return "";
}

std::string_view architecture_of(Config& decoder) {
  const std::string type = decoder.string("model_type");
  const bool is_post = decoder.integer("layernorm_position", kPreNorm, kPostNorm, kPreNorm) > 0;
  if (type == "bart")
    return is_post ? "BartForConditionalGeneration" : "MBartForConditionalGeneration";
  if (type == "nmt" && !is_post) return "PegasusForConditionalGeneration";
  std::string names;
  for (const auto& [known, architecture] : kFamilyOfType) {
    if (known == type) return architecture;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", known);
  }
  decoder.fail("model_type", fmt::format("'{}' is not one of {}", type.substr(0, 40), names));
  return "T5ForConditionalGeneration";
}

// Reads what both folders' files say, into one file of Hugging Face's names.
class HalvesReader {
 public:
  HalvesReader(const json::object& encoder, const std::string& encoder_file,
               const json::object& decoder, const std::string& decoder_file)
      : encoder_object_(encoder),
        decoder_object_(decoder),
        encoder_(encoder, encoder_file),
        decoder_(decoder, decoder_file) {}

  StatusOr<json::object> read() {
    architecture_ = architecture_of(decoder_);
    out_["architectures"] = json::array{json::value(architecture_)};
    read_sizes(encoder_, kEncoderSizes);
    read_sizes(decoder_, kDecoderSizes);
    read_shared(encoder_), read_shared(decoder_);
    out_["tie_word_embeddings"] = decoder_.boolean(
        is_t5(architecture_) ? "rescale_before_lm_head" : "tie_word_embeddings", false);
    out_["has_lm_head_bias"] = decoder_.boolean("has_lm_head_bias", false);
    for (const std::string_view key : kTokenIds)
      if (const json::value* id = decoder_object_.if_contains(key)) out_[key] = *id;
    if (is_whisper(architecture_)) out_["num_mel_bins"] = encoder_.integer("n_mels", 1, 1024);
    decoder_.require("skip_cross_kv", false);
    RETURN_IF_ERROR(encoder_.status());
    RETURN_IF_ERROR(decoder_.status());
    return std::move(out_);
  }

 private:
  // A field of both halves.
  void set(Config& c, std::string_view theirs, std::string_view ours, json::value value) {
    const json::value* there = out_.if_contains(ours);
    if (there && *there != value)
      c.fail(theirs, fmt::format("{} is not the other half's {}", json::serialize(value),
                                 json::serialize(*there)));
    out_[ours] = std::move(value);
  }

  void read_sizes(Config& c, std::span<const SizeField> fields) {
    const int64_t hidden = c.integer("hidden_size", 1, kMaxHidden);
    for (const SizeField& field : fields) {
      std::optional<int64_t> fallback;
      if (field.theirs == "intermediate_size")  // Whisper's converter calls it ffn_hidden_size
        fallback = c.integer("ffn_hidden_size", 1, kMaxIntermediate, 4 * hidden);
      set(c, field.theirs, name_of(field, architecture_),
          c.integer(field.theirs, 1, kMaxPositions, fallback));
    }
    const int64_t heads = c.integer("num_attention_heads", 1, kMaxHeads);
    const int64_t head_size =
        c.integer("head_size", 1, kMaxHeadDim, std::max<int64_t>(hidden / heads, 1));
    if (is_t5(architecture_))
      set(c, "head_size", "d_kv", head_size);
    else if (head_size * heads != hidden)
      c.fail("head_size",
             fmt::format("{} times {} heads is not hidden_size {}", head_size, heads, hidden));
    const double scaling = is_t5(architecture_) ? 1 / std::sqrt(static_cast<double>(head_size)) : 1;
    constexpr double kTolerance = 1e-3;
    const double q_scaling = c.number("q_scaling", 1e-6, 1e6, scaling);
    if (c.status().ok() && std::abs(q_scaling / scaling - 1) > kTolerance)
      c.fail("q_scaling", fmt::format("{} is not supported, only {} is", q_scaling, scaling));
  }

  void read_shared(Config& c) {
    set(c, "vocab_size", "vocab_size", c.integer("vocab_size", 1, kMaxVocab));
    // TensorRT-LLM's converter writes false where Hugging Face's file has no such field.
    constexpr double kUsualEps = 1e-5;
    const bool has_eps = c.has("norm_epsilon") && !is_false(c, "norm_epsilon");
    set(c, "norm_epsilon", is_t5(architecture_) ? "layer_norm_epsilon" : "layer_norm_eps",
        has_eps ? c.number("norm_epsilon", 0, 1) : kUsualEps);
    const std::string activation = c.string("hidden_act", "gelu");
    if (!is_t5(architecture_)) {
      set(c, "hidden_act", "activation_function", json::value(activation));
      if (!is_whisper(architecture_))
        set(c, "has_embedding_scale", "scale_embedding", c.boolean("has_embedding_scale", false));
      return;
    }
    const bool is_gated = c.integer("mlp_type", kPlainMlp, kGatedMlp, kPlainMlp) == kGatedMlp;
    set(c, "hidden_act", "feed_forward_proj", json::value((is_gated ? "gated-" : "") + activation));
    set(c, "num_buckets", "relative_attention_num_buckets", c.integer("num_buckets", 4, 4096, 32));
    set(c, "max_distance", "relative_attention_max_distance",
        c.integer("max_distance", 2, 1 << 16, 128));
  }

  bool is_false(Config& c, std::string_view key) {
    const json::object& object = &c == &decoder_ ? decoder_object_ : encoder_object_;
    return object.at(key) == json::value(false);
  }

  const json::object& encoder_object_;
  const json::object& decoder_object_;
  Config encoder_, decoder_;
  std::string_view architecture_;
  json::object out_;
};

std::string_view name_of(kernels::Activation activation, bool is_t5) {
  switch (activation) {
    case kernels::Activation::kSilu:
      return "silu";
    case kernels::Activation::kRelu:
      return "relu";
    case kernels::Activation::kRelu2:
      return "relu2";
    case kernels::Activation::kGeluTanh:
      return is_t5 ? kGeluNew : "gelu_pytorch_tanh";
    case kernels::Activation::kGelu:
    case kernels::Activation::kGeluSigmoid:  // none of these families has it
    case kernels::Activation::kNone:
      break;
  }
  return "gelu";
}

// "cross.3.k" of an encoder's graph as "layers.3.cross.k" of its decoder's folder.
constexpr std::string_view kCross = "cross.";
std::string cross_name(const std::string& name) {
  const size_t layer = kCross.size(), end = name.find('.', layer);
  return fmt::format("layers.{}.cross.{}", name.substr(layer, end - layer), name.substr(end + 1));
}

// A position bias as the tensor that it is made of, and a convolution as it is stored.
graph::Weight stored_weight(const graph::Weight& weight) {
  graph::Weight out = weight;
  const graph::WeightPart& part = weight.parts[0];
  if (!part.elements.empty()) {
    out.name.replace(out.name.rfind("attn.bias"), std::string::npos, "attn.table");
    out.n = part.total_cols, out.k = part.total, out.is_vector = false;
    out.format = {};
    out.parts = {{.tensor = part.tensor, .size = out.n, .transposed = true}};
  } else if (part.window > 0) {
    out.parts = {{.tensor = part.tensor, .size = out.n}};
  }
  return out;
}

// The parts of a position bias in tables [heads of a rank, buckets]; `old`: in [buckets, heads].
std::vector<graph::WeightPart> bias_parts(const graph::WeightPart& old,
                                          const std::vector<graph::WeightPart>& tables) {
  const int64_t heads = old.total_cols, buckets = old.total;
  const int64_t distances = std::ssize(old.elements) / heads;
  std::vector<graph::WeightPart> parts;
  int64_t head = 0;
  for (const graph::WeightPart& table : tables) {
    graph::WeightPart& part = parts.emplace_back();
    part.tensor = table.tensor;
    part.total = table.size, part.total_cols = buckets;
    part.size = table.size * distances;
    for (int64_t i = 0; i < part.size; ++i) {
      const int64_t bucket = old.elements[static_cast<size_t>(head * distances + i)] / heads;
      part.elements.push_back(static_cast<int32_t>(i / distances * buckets + bucket));
    }
    head += table.size;
  }
  return parts;
}

}  // namespace

std::filesystem::path decoder_folder(const std::filesystem::path& dir) {
  std::error_code error;
  const auto has_config = [&](const std::filesystem::path& folder) {
    return std::filesystem::is_regular_file(folder / "config.json", error);
  };
  const bool is_root =
      !has_config(dir) && (has_config(dir / kEncoderFolder) || has_config(dir / kDecoderFolder));
  return is_root ? dir / kDecoderFolder : dir;
}

std::filesystem::path folder_beside(const std::filesystem::path& dir, Half half) {
  std::error_code error;
  std::filesystem::path absolute = std::filesystem::weakly_canonical(dir, error);
  if (error) absolute = dir;
  if (!absolute.has_filename()) absolute = absolute.parent_path();
  return absolute.parent_path() / (half == Half::kEncoder ? kEncoderFolder : kDecoderFolder);
}

bool is_half_config(const json::object& config) {
  const json::value* pretrained = config.if_contains("pretrained_config");
  if (pretrained && pretrained->is_object()) return is_half_config(pretrained->get_object());
  const json::value* name = config.if_contains("architecture");
  return is_trtllm_config(config) && name->is_string() &&
         std::ranges::find(kArchitectures, std::string_view(name->get_string())) !=
             std::end(kArchitectures);
}

Half half_of(const json::object& config) {
  const json::value* pretrained = config.if_contains("pretrained_config");
  if (pretrained && pretrained->is_object()) return half_of(pretrained->get_object());
  return config.at("architecture") == json::value("DecoderModel") ? Half::kDecoder : Half::kEncoder;
}

StatusOr<json::object> config_of_halves(const json::object& encoder,
                                        const std::string& encoder_file,
                                        const json::object& decoder,
                                        const std::string& decoder_file) {
  return HalvesReader(encoder, encoder_file, decoder, decoder_file).read();
}

json::object half_config(const Model& model, const Model& other, std::string_view dtype,
                         const Ranks& ranks) {
  const Traits& t = model.traits;
  const io::ModelFacts& facts = model.graph.model;
  const bool is_encoder = model.half == Half::kEncoder, t5 = is_t5(facts.architecture);
  const auto has_weight = [&](std::string_view name) {
    return std::ranges::find(model.graph.weights, name, &graph::Weight::name) !=
           model.graph.weights.end();
  };
  const auto number = [](float x) { return std::stod(fmt::format("{}", x)); };
  json::object config = {{"architecture", !is_encoder      ? "DecoderModel"
                                          : t.mel_bins > 0 ? "WhisperEncoder"
                                                           : "EncoderModel"},
                         {"dtype", dtype},
                         {"logits_dtype", "float32"},
                         {"num_hidden_layers", t.num_layers},
                         {"num_attention_heads", t.num_heads},
                         {"hidden_size", t.hidden_size},
                         {"norm_epsilon", number(t.norm_eps)},
                         {"vocab_size", t.vocab_size},
                         {"position_embedding_type", t5 ? "relative" : "learned_absolute"},
                         {"hidden_act", name_of(t.activation, t5)},
                         {"mapping", mapping_of(ranks)},
                         {"use_parallel_embedding", ranks.parallel_embedding},
                         {"embedding_sharding_dim", ranks.embedding_dim},
                         {"max_position_embeddings", t.max_positions},
                         {"num_key_value_heads", t.num_kv_heads},
                         {"head_size", t.head_dim},
                         {"has_position_embedding", !t5},
                         {"layernorm_type", t.layer_norm ? kLayerNorm : kRmsNorm},
                         {"has_attention_qkvo_bias", t.qkv_bias},
                         {"has_mlp_bias", t.mlp_bias},
                         {"has_model_final_layernorm", has_weight("norm")},
                         {"has_embedding_layernorm", has_weight("embed.norm")},
                         {"has_embedding_scale", t.embed_scale != 1},
                         {"intermediate_size", t.intermediate_size},
                         {"q_scaling", t5 ? 1 / std::sqrt(static_cast<double>(t.head_dim)) : 1.0},
                         {"layernorm_position", t.norms_behind ? kPostNorm : kPreNorm},
                         {"mlp_type", t.gated ? kGatedMlp : kPlainMlp},
                         {"relative_attention", t5},
                         {"max_distance", t.bias_distance},
                         {"num_buckets", t.bias_buckets},
                         {"model_type", type_of(facts.architecture)},
                         {"gated_act", t.gated}};
  if (is_encoder) {
    if (t.mel_bins > 0) config["n_mels"] = t.mel_bins;
    return config;
  }
  config["rescale_before_lm_head"] = t5 && t.tied_embedding;
  config["encoder_hidden_size"] = other.traits.hidden_size;
  config["encoder_num_heads"] = other.traits.num_heads;
  config["encoder_head_size"] = other.traits.head_dim;
  config["skip_cross_kv"] = false;
  config["use_implicit_relative_attention"] = false;
  config["has_lm_head_bias"] = t.head_bias;
  config["tie_word_embeddings"] = t.tied_embedding;
  config["decoder_start_token_id"] = id_or_null(facts.decoder_start_id);
  config["bos_token_id"] = id_or_null(facts.bos_id);
  config["pad_token_id"] = id_or_null(facts.pad_id);
  config["eos_token_id"] =
      facts.end_ids.size() == 1 ? json::value(facts.end_ids[0]) : json::value_from(facts.end_ids);
  config["forced_bos_token_id"] = id_or_null(facts.forced_bos_id);
  return config;
}

Status check_half_config(const json::object& config, const std::string& where, const Model& model) {
  Config c(config, where);
  const json::object expected = half_config(model, model, "", {});
  for (const std::string_view field :
       {"position_embedding_type", "has_position_embedding", "layernorm_type",
        "has_attention_qkvo_bias", "has_mlp_bias", "has_model_final_layernorm",
        "has_embedding_layernorm", "has_embedding_scale", "layernorm_position", "mlp_type",
        "relative_attention", "rescale_before_lm_head"})
    if (const json::value* value = expected.if_contains(field)) c.require(field, *value);
  return c.status();
}

FolderGraphs folder_graphs(const Model& encoder, const Model& decoder) {
  FolderGraphs out;
  out.encoder.model = encoder.graph.model;
  out.encoder.model.num_layers = encoder.traits.num_layers;
  out.decoder.model = decoder.graph.model;
  for (const graph::Weight& weight : decoder.graph.weights)
    out.decoder.weights.push_back(stored_weight(weight));
  for (const graph::Weight& weight : encoder.graph.weights) {
    if (weight.name == "features") continue;
    if (!weight.name.starts_with(kCross)) {
      out.encoder.weights.push_back(stored_weight(weight));
      continue;
    }
    out.decoder.weights.push_back(weight);
    out.decoder.weights.back().name = cross_name(weight.name);
  }
  return out;
}

Status use_folder_tensors(const FolderGraphs& folders, Model& model) {
  const auto find = [](const graph::Graph& graph, const std::string& name) {
    return std::ranges::find(graph.weights, name, &graph::Weight::name);
  };
  const graph::Graph& own = model.half == Half::kEncoder ? folders.encoder : folders.decoder;
  for (graph::Weight& weight : model.graph.weights) {
    const bool is_bias = !weight.parts[0].elements.empty();
    const bool is_cross = model.half == Half::kEncoder && weight.name.starts_with(kCross);
    std::string name = is_cross ? cross_name(weight.name) : weight.name;
    if (is_bias) name = "layers.0.attn.table";      // all layers have the same one
    if (weight.name == "features") name = "conv1";  // it names the tensor, and reads no numbers
    const graph::Graph& folder = is_cross ? folders.decoder : own;
    const auto found = find(folder, name);
    if (found == folder.weights.end()) return internal_error("weight '{}' is in no folder", name);
    if (is_bias) {
      weight.parts = bias_parts(graph::WeightPart(weight.parts[0]), found->parts);
    } else if (weight.parts[0].window > 0) {
      for (graph::WeightPart& part : weight.parts) part.tensor = found->parts[0].tensor;
    } else {
      weight.parts = found->parts;
    }
  }
  return ok();
}

}  // namespace nereid::models
