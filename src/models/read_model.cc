// Reads a model directory: config.json to verified graph.
#include <algorithm>
#include <utility>

#include "base/gguf.h"
#include "models/config.h"
#include "models/expert_tensors.h"
#include "models/family.h"
#include "models/formats/gguf.h"
#include "models/formats/meta.h"
#include "models/formats/trtllm.h"
#include "models/read_fields.h"
#include "models/score_head.h"
#include "models/text_part.h"

namespace nereid::models {
namespace {

StatusOr<std::string> read_architecture(const json::object& config, const std::string& where) {
  const json::value* list = config.if_contains("architectures");
  if (!list || !list->is_array() || list->get_array().empty() || !list->get_array()[0].is_string())
    return invalid_argument("{}: field 'architectures' is not a list of names", where);
  return std::string(list->get_array()[0].get_string());
}

// First published Falcon (RefinedWeb): older names of the same fields.
void rename_refined_web(json::object& config) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"n_layer", "num_hidden_layers"},
      {"n_head", "num_attention_heads"},
      {"n_head_kv", "num_kv_heads"}};
  const json::value* list = config.if_contains("architectures");
  if (!list || *list != json::value(json::array{"RWForCausalLM"})) return;
  for (const auto& [old, name] : kNames)
    if (const json::value* value = config.if_contains(old)) config[name] = json::value(*value);
  const json::value* kind = config.if_contains("model_type");
  config["new_decoder_architecture"] = kind && *kind == json::value("RefinedWeb");
  config["architectures"] = json::array{"FalconForCausalLM"};
}

// transformers 5 writes a window of 0, earlier versions null.
void drop_empty_window(json::object& config) {
  json::value* window = config.if_contains("sliding_window");
  const json::value* kinds = config.if_contains("layer_types");
  const json::array* list = kinds ? kinds->if_array() : nullptr;
  const bool has_windows =
      list && std::ranges::find(*list, json::value("sliding_attention")) != list->end();
  if (window && *window == json::value(0) && !has_windows) *window = nullptr;
}

// The causal language model of a sequence classifier's family.
std::string language_model_of(std::string_view architecture) {
  return std::string(architecture.substr(0, architecture.rfind("For"))) + "ForCausalLM";
}

// A special token id; absent, null or -1: none.
int32_t special_id(Config& config, std::string_view key, int32_t vocab_size) {
  const std::vector<int32_t> ids = config.integers(key, -1, vocab_size - 1);
  return ids.empty() ? io::kNone : ids.front();
}

// End ids of both files, generation_config.json first.
Status read_special_ids(Config& config, const std::filesystem::path& dir, io::ModelFacts& facts) {
  const int64_t last = facts.vocab_size - 1;
  facts.bos_id = special_id(config, "bos_token_id", facts.vocab_size);
  facts.pad_id = special_id(config, "pad_token_id", facts.vocab_size);
  std::vector<int32_t> ends = config.integers("eos_token_id", -1, last);
  const std::filesystem::path path = dir / "generation_config.json";
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    ASSIGN_OR_RETURN(const json::object object, read_object(path));
    Config generation(object, path.string());
    const std::vector<int32_t> first = generation.integers("eos_token_id", -1, last);
    ends.insert(ends.begin(), first.begin(), first.end());
    if (facts.bos_id == io::kNone)
      facts.bos_id = special_id(generation, "bos_token_id", facts.vocab_size);
    if (facts.pad_id == io::kNone)
      facts.pad_id = special_id(generation, "pad_token_id", facts.vocab_size);
    RETURN_IF_ERROR(generation.status());
  }
  for (const int32_t id : ends)
    if (id != io::kNone && std::ranges::find(facts.end_ids, id) == facts.end_ids.end())
      facts.end_ids.push_back(id);
  return config.status();
}

bool is_engine_config(const json::object& config) {
  return config.contains("pretrained_config") && config.contains("build_config");
}

// config.json of a multi-rank engine: that of its checkpoint.
StatusOr<json::object> config_of_ranks(const json::object& config, const std::string& where) {
  const json::value& pretrained = config.at("pretrained_config");
  if (pretrained.is_object() && is_trtllm_config(pretrained.get_object())) {
    ASSIGN_OR_RETURN(const Ranks ranks,
                     read_ranks(pretrained.get_object(), where + ": pretrained_config"));
    if (ranks.num_files() > 1) return pretrained.get_object();
  }
  return invalid_argument(
      "{}: belongs to an engine; a checkpoint or a Hugging Face directory is required", where);
}

// config.json (or its equivalent) unchanged; sets the layout.
StatusOr<json::object> read_config(const std::filesystem::path& dir,
                                   const std::filesystem::path& path, Model& model) {
  if (model.layout == Layout::kGguf) return read_gguf_config(path, model.gguf);
  if (model.layout == Layout::kMeta) return read_meta_config(dir, model.meta);
  ASSIGN_OR_RETURN(json::object object, read_object(path));
  model.in_engines = is_engine_config(object);
  if (model.in_engines) {
    ASSIGN_OR_RETURN(object, config_of_ranks(object, path.string()));
  }
  ASSIGN_OR_RETURN(model.is_text_part, take_text_part(object, path.string()));
  rename_refined_web(object);
  drop_empty_window(object);
  if (is_trtllm_config(object)) model.layout = Layout::kTrtLlm;
  return object;
}

// Reads what one layout has only (ranks, quantisation); completes `object` for the family's reader.
Status read_layout(const std::filesystem::path& dir, const std::string& where, json::object& object,
                   Model& model) {
  if (model.layout == Layout::kHuggingFace) {
    ASSIGN_OR_RETURN(model.quantization, read_quantization(object, dir));
  }
  if (model.layout != Layout::kTrtLlm) return ok();
  ASSIGN_OR_RETURN(model.ranks, read_ranks(object, where));
  RETURN_IF_ERROR(complete_trtllm_config(object, where));
  ASSIGN_OR_RETURN(model.quantization, read_trtllm_quantization(object, where));
  const int32_t last_stage = (model.ranks.pp - 1) * model.ranks.tp;
  return find_trtllm_head(object, dir / rank_file_name(last_stage, model.in_engines));
}

StatusOr<io::ModelFacts> facts_of(const Model& model, const std::filesystem::path& dir,
                                  const std::string& architecture, Config& config) {
  const Traits& t = model.traits;
  io::ModelFacts facts;
  std::error_code error;
  std::filesystem::path absolute = std::filesystem::weakly_canonical(dir, error);
  if (error) absolute = dir;
  facts.source_dir = absolute.string();
  const bool is_file = model.layout == Layout::kGguf && !std::filesystem::is_directory(dir, error);
  facts.name = (is_file ? absolute.stem() : absolute.filename()).string();
  facts.architecture = architecture;
  facts.vocab_size = t.vocab_size;
  facts.hidden_size = t.embed_size;
  facts.num_layers = t.num_layers;
  facts.num_heads = t.num_heads;
  facts.num_kv_heads = t.num_kv_heads;
  facts.head_dim = t.latent > 0 ? t.rotary_dims + t.latent : t.head_dim;
  facts.latent = t.latent;
  facts.max_positions = t.max_positions;
  facts.kv_dtype = model.quantization.cache;
  facts.ropes = rope_tables(t, t.max_positions);
  RETURN_IF_ERROR(read_special_ids(config, dir, facts));
  return facts;
}

// Adds the facts of an encoder-decoder model; `encoder`: the encoder's traits.
void add_encoder_facts(const Traits& encoder, int32_t num_cross_layers, Config& config,
                       io::ModelFacts& facts) {
  facts.num_cross_layers = num_cross_layers;
  facts.reads_features = encoder.mel_bins > 0;
  if (facts.is_encoder) {
    facts.num_layers = 1;  // a cache for all layers
    facts.kv_dtype = DType::kBF16;
    return;
  }
  facts.encoder_positions = encoder.max_positions;
  facts.decoder_start_id = special_id(config, "decoder_start_token_id", facts.vocab_size);
  if (facts.decoder_start_id == io::kNone) facts.decoder_start_id = facts.bos_id;
}

// Reads the traits of one half, and builds its graph.
Status read_halves(const std::filesystem::path& dir, const std::string& architecture,
                   const json::object& object, const std::string& where, Model& model) {
  Config decoder_config(object, where), encoder_config(object, where);
  const Traits decoder = model.family->read_traits(decoder_config);
  refuse_unread(decoder_config);
  RETURN_IF_ERROR(decoder_config.status());
  const Traits encoder = model.family->read_encoder_traits(encoder_config);
  RETURN_IF_ERROR(encoder_config.status());
  const bool is_encoder = model.half == Half::kEncoder;
  model.traits = is_encoder ? encoder : decoder;
  ASSIGN_OR_RETURN(io::ModelFacts facts, facts_of(model, dir, architecture, decoder_config));
  facts.is_encoder = is_encoder;
  add_encoder_facts(encoder, decoder.num_layers, decoder_config, facts);
  RETURN_IF_ERROR(decoder_config.status());
  if (is_encoder) {
    ASSIGN_OR_RETURN(model.graph, build_encoder(encoder, *model.family->encoder, decoder, facts));
  } else {
    ASSIGN_OR_RETURN(model.graph, build_decoder(decoder, *model.family->weights, facts));
  }
  return ok();
}

// Replaces the weights' parts by the layout's tensors. Adapter names stay Hugging Face's.
Status use_tensors(const json::object& object, const std::string& where, Model& model) {
  if (model.layout != Layout::kHuggingFace)
    for (graph::Weight& weight : model.graph.weights) weight.sources = graph::sources_of(weight);
  switch (model.layout) {
    case Layout::kHuggingFace:
      return ok();
    case Layout::kGguf:
      return annotate(use_gguf_tensors(model.graph, model.traits, model.gguf), where);
    case Layout::kMeta:
      return annotate(use_meta_tensors(model.graph, model.meta, model.traits.tied_embedding),
                      where);
    case Layout::kTrtLlm:
      RETURN_IF_ERROR(check_trtllm_config(object, where, model));
      return annotate(use_rank_tensors(model.graph, model.ranks), where);
  }
  return ok();
}

}  // namespace

StatusOr<Model> read_model(const std::filesystem::path& dir, Half half) {
  Model model;
  model.half = half;
  if (is_gguf_path(dir))
    model.layout = Layout::kGguf;
  else if (is_meta_dir(dir))
    model.layout = Layout::kMeta;
  const std::filesystem::path path =
      model.layout == Layout::kGguf
          ? dir
          : dir / (model.layout == Layout::kMeta ? "params.json" : "config.json");
  ASSIGN_OR_RETURN(json::object object, read_config(dir, path, model));
  model.config = object;
  RETURN_IF_ERROR(read_layout(dir, path.string(), object, model));
  ASSIGN_OR_RETURN(const std::string architecture, read_architecture(object, path.string()));
  const bool scores = scores_texts(architecture);
  StatusOr<const Family*> family =
      find_family(scores ? language_model_of(architecture) : architecture);
  if (!family.ok()) return annotate(find_family(architecture).status(), path.string());
  model.family = *family;
  if (model.family->encoder) {
    if (model.layout != Layout::kHuggingFace)
      return unsupported("{}: an encoder-decoder model in a layout other than Hugging Face's",
                         path.string());
    RETURN_IF_ERROR(read_halves(dir, architecture, object, path.string(), model));
    return model;
  }
  if (half == Half::kEncoder)
    return invalid_argument("{}: architecture '{}' has no encoder", path.string(), architecture);

  // No language head: the graph's is unused.
  if (scores) object["tie_word_embeddings"] = true;
  Config config(object, path.string());
  if (model.layout == Layout::kTrtLlm) {
    ASSIGN_OR_RETURN(model.traits, read_trtllm_traits(object, path.string(), *model.family));
  } else {
    model.traits = model.family->read_traits(config);
    refuse_unread(config);
    RETURN_IF_ERROR(config.status());
  }
  model.traits.scores = scores;
  ASSIGN_OR_RETURN(io::ModelFacts facts, facts_of(model, dir, architecture, config));
  ASSIGN_OR_RETURN(model.graph,
                   build_decoder(model.traits, *model.family->weights, std::move(facts)));
  if (model.quantization.method == "compressed-tensors") set_experts_apart(model.graph);
  RETURN_IF_ERROR(use_tensors(object, path.string(), model));
  return model;
}

}  // namespace nereid::models
