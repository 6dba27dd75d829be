// Reads a model directory: config.json to verified graph.
#include <algorithm>
#include <utility>

#include "base/gguf.h"
#include "base/log.h"
#include "models/config.h"
#include "models/expert_tensors.h"
#include "models/family.h"
#include "models/formats/gguf.h"
#include "models/formats/meta.h"
#include "models/formats/openai_whisper.h"
#include "models/formats/trtllm.h"
#include "models/formats/trtllm_halves.h"
#include "models/pictures.h"
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

// Leaves the text part of a model of text and pictures.
Status take_pictures(json::object& object, const std::string& where, Model& model) {
  const StatusOr<std::string> architecture = read_architecture(object, where);
  json::object whole = object;
  ASSIGN_OR_RETURN(model.is_text_part, take_text_part(object, where));
  if (!model.is_text_part) return ok();
  const json::value* const vision = whole.if_contains("vision_config");
  const json::value* const kind =
      vision && vision->is_object() ? vision->get_object().if_contains("model_type") : nullptr;
  for (const PictureFamily& family : picture_families())
    if (!model.pictures && vision && family.architecture == *architecture &&
        (family.kind.empty() || (kind && *kind == json::value(family.kind))))
      model.pictures = &family;
  if (model.pictures)
    model.whole = std::move(whole);
  else
    log_info("{}: a {} is served without pictures", where, *architecture);
  return ok();
}

// config.json (or its equivalent) unchanged; sets the layout.
StatusOr<json::object> read_config(const std::filesystem::path& dir,
                                   const std::filesystem::path& path, Model& model) {
  if (model.layout == Layout::kGguf) return read_gguf_config(path, model.gguf);
  if (model.layout == Layout::kMeta) return read_meta_config(dir, model.meta);
  if (model.layout == Layout::kOpenAi) return read_openai_whisper_config(path);
  ASSIGN_OR_RETURN(json::object object, read_object(path));
  model.in_engines = is_engine_config(object);
  if (model.in_engines) {
    ASSIGN_OR_RETURN(object, config_of_ranks(object, path.string()));
  }
  RETURN_IF_ERROR(take_pictures(object, path.string(), model));
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
  const bool may_be_file = model.layout == Layout::kGguf || model.layout == Layout::kOpenAi;
  const bool is_file = may_be_file && !std::filesystem::is_directory(dir, error);
  if (!model.folders.empty())
    facts.name = absolute.parent_path().filename().string();
  else
    facts.name = (is_file ? absolute.stem() : absolute.filename()).string();
  facts.architecture = architecture;
  facts.vocab_size = t.vocab_size;
  facts.hidden_size = t.embed_size;
  facts.num_layers = t.num_layers - t.num_crosses();
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

// A special token id of config.json, else of generation_config.json.
StatusOr<int32_t> id_of_either(Config& config, const std::filesystem::path& dir,
                               std::string_view key, int32_t vocab_size) {
  const int32_t id = special_id(config, key, vocab_size);
  const std::filesystem::path path = dir / "generation_config.json";
  std::error_code error;
  if (id != io::kNone || config.has(key) || !std::filesystem::exists(path, error)) return id;
  ASSIGN_OR_RETURN(const json::object object, read_object(path));
  Config generation(object, path.string());
  const int32_t other = special_id(generation, key, vocab_size);
  RETURN_IF_ERROR(generation.status());
  return other;
}

// Adds the facts of an encoder-decoder model; `encoder`: the encoder's traits.
Status add_encoder_facts(const std::filesystem::path& dir, const Traits& encoder,
                         int32_t num_cross_layers, Config& config, io::ModelFacts& facts) {
  facts.num_cross_layers = num_cross_layers;
  facts.reads_features = encoder.mel_bins > 0;
  if (facts.is_encoder) {
    facts.num_layers = 1;  // a cache for all layers
    facts.kv_dtype = DType::kBF16;
    return ok();
  }
  facts.encoder_positions = encoder.max_positions;
  ASSIGN_OR_RETURN(facts.decoder_start_id,
                   id_of_either(config, dir, "decoder_start_token_id", facts.vocab_size));
  if (facts.decoder_start_id == io::kNone) facts.decoder_start_id = facts.bos_id;
  ASSIGN_OR_RETURN(facts.forced_bos_id,
                   id_of_either(config, dir, "forced_bos_token_id", facts.vocab_size));
  return ok();
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
  RETURN_IF_ERROR(add_encoder_facts(dir, encoder, decoder.num_layers, decoder_config, facts));
  RETURN_IF_ERROR(decoder_config.status());
  if (is_encoder) {
    ASSIGN_OR_RETURN(model.graph, build_encoder(encoder, *model.family->encoder, decoder, facts));
  } else {
    ASSIGN_OR_RETURN(model.graph, build_decoder(decoder, *model.family->weights, facts));
  }
  return ok();
}

// Reads the encoder's traits of a model of pictures, and what they say of the decoder.
StatusOr<Traits> read_picture_traits(const std::string& where, Model& model) {
  Config config(model.whole, where);
  Traits t = model.pictures->read_traits(config, model.traits);
  RETURN_IF_ERROR(config.status());
  model.traits.deep_layers = t.pictures.deep_layers;
  model.traits.row_end = t.pictures.tiles_in_plane || t.pictures.in_cross;
  model.traits.extra_row_end = t.pictures.in_cross;
  if (t.pictures.in_cross) model.traits.leaves_cross = false;
  return t;
}

// Adds the facts of the encoder of a model of pictures. kEncoder: builds its graph.
Status add_picture_encoder(const Traits& t, const io::ModelFacts& decoder, Model& model) {
  io::ModelFacts& facts = model.graph.model;
  facts = decoder;
  facts.pictures = t.pictures;
  if (model.half == Half::kDecoder) {
    const int32_t frames = t.pictures.grid > 0 && !t.pictures.in_cross ? t.pictures.max_frames : 1;
    facts.encoder_positions = t.max_positions * frames;
    return ok();
  }
  facts.is_encoder = true;
  facts.reads_features = true;
  facts.hidden_size = t.feature_size * (1 + t.pictures.deep_layers);
  facts.num_layers = 1;  // a cache for all layers
  facts.num_heads = t.num_heads, facts.num_kv_heads = t.num_kv_heads;
  facts.head_dim = t.head_dim;
  facts.latent = 0;
  facts.kv_dtype = DType::kBF16;
  facts.max_positions = t.max_positions;
  facts.ropes = rope_tables(t, t.max_positions);
  const Traits text = std::exchange(model.traits, t);
  if (model.pictures->tiles) {
    ASSIGN_OR_RETURN(model.graph, build_tile_encoder(t, *model.pictures->tiles, text, facts));
  } else {
    ASSIGN_OR_RETURN(model.graph, build_picture_encoder(t, *model.pictures->weights, facts));
  }
  return ok();
}

// The folder of a half: `config` is its config.json, completed for a tied head.
StatusOr<RankFolder> read_rank_folder(const std::filesystem::path& dir, json::object& config) {
  const std::string where = (dir / "config.json").string();
  std::error_code error;
  if (!std::filesystem::exists(where, error))
    return not_found("{}: is missing; the folders {} and {} of a model lie side by side", where,
                     kEncoderFolder, kDecoderFolder);
  RankFolder folder{.dir = dir};
  ASSIGN_OR_RETURN(config, read_object(dir / "config.json"));
  folder.in_engines = is_engine_config(config);
  if (folder.in_engines) {
    ASSIGN_OR_RETURN(config, config_of_ranks(config, where));
  }
  if (!is_half_config(config))
    return invalid_argument("{}: is of no half of an encoder-decoder model", where);
  ASSIGN_OR_RETURN(folder.ranks, read_ranks(config, where));
  ASSIGN_OR_RETURN(folder.quantization, read_trtllm_quantization(config, where));
  return folder;
}

// Reads a half of a model in two folders.
StatusOr<Model> read_folders(const std::filesystem::path& dir, Half half) {
  const auto encoder_dir = folder_beside(dir, Half::kEncoder);
  const auto decoder_dir = folder_beside(dir, Half::kDecoder);
  json::object encoder_config, decoder_config;
  ASSIGN_OR_RETURN(RankFolder encoder, read_rank_folder(encoder_dir, encoder_config));
  ASSIGN_OR_RETURN(RankFolder decoder, read_rank_folder(decoder_dir, decoder_config));
  const int32_t last_stage = (decoder.ranks.pp - 1) * decoder.ranks.tp;
  RETURN_IF_ERROR(find_trtllm_head(decoder_config,
                                   decoder_dir / rank_file_name(last_stage, decoder.in_engines)));
  const std::string where = (decoder_dir / "config.json").string();
  ASSIGN_OR_RETURN(const json::object object,
                   config_of_halves(encoder_config, (encoder_dir / "config.json").string(),
                                    decoder_config, where));
  ASSIGN_OR_RETURN(const std::string architecture, read_architecture(object, where));
  const bool is_encoder = half == Half::kEncoder;
  const RankFolder& own = is_encoder ? encoder : decoder;
  Model model{.layout = Layout::kTrtLlm, .ranks = own.ranks, .in_engines = own.in_engines};
  ASSIGN_OR_RETURN(model.family, find_family(architecture));
  model.quantization = own.quantization;
  model.folders.resize(2);
  Model other = model;
  model.half = half;
  other.half = is_encoder ? Half::kDecoder : Half::kEncoder;
  RETURN_IF_ERROR(read_halves(decoder_dir, architecture, object, where, model));
  RETURN_IF_ERROR(read_halves(decoder_dir, architecture, object, where, other));
  Model& first = is_encoder ? model : other;
  Model& second = is_encoder ? other : model;
  RETURN_IF_ERROR(check_half_config(encoder_config, (encoder_dir / "config.json").string(), first));
  RETURN_IF_ERROR(check_half_config(decoder_config, where, second));
  FolderGraphs graphs = folder_graphs(first, second);
  for (const auto& [graph, folder] :
       {std::pair(&graphs.encoder, &encoder), std::pair(&graphs.decoder, &decoder)}) {
    RETURN_IF_ERROR(
        annotate(use_rank_tensors(*graph, folder->ranks), (folder->dir / "config.json").string()));
    folder->graph = *graph;
    const std::string front = folder->dir.filename().string() + "/";
    for (graph::Weight& weight : graph->weights)
      for (graph::WeightPart& part : weight.parts) part.tensor = front + part.tensor;
  }
  for (graph::Weight& weight : model.graph.weights) weight.sources = graph::sources_of(weight);
  RETURN_IF_ERROR(use_folder_tensors(graphs, model));
  decoder.is_tied = second.traits.tied_embedding;
  model.config = is_encoder ? encoder_config : decoder_config;
  model.folders[is_encoder ? 0 : 1] = std::move(encoder);
  model.folders[is_encoder ? 1 : 0] = std::move(decoder);
  return model;
}

// Replaces the weights' parts by the layout's tensors. Adapter names stay Hugging Face's.
Status use_tensors(const json::object& object, const std::string& where, Model& model) {
  if (model.layout != Layout::kHuggingFace)
    for (graph::Weight& weight : model.graph.weights) weight.sources = graph::sources_of(weight);
  switch (model.layout) {
    case Layout::kHuggingFace:
    case Layout::kOpenAi:
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

StatusOr<Model> read_model(const std::filesystem::path& given, Half half) {
  const std::filesystem::path dir = decoder_folder(given);
  Model model;
  model.half = half;
  if (is_gguf_path(dir))
    model.layout = Layout::kGguf;
  else if (is_meta_dir(dir))
    model.layout = Layout::kMeta;
  else if (!openai_whisper_file(dir).empty())
    model.layout = Layout::kOpenAi;
  const std::filesystem::path path =
      model.layout == Layout::kGguf ? dir
      : model.layout == Layout::kOpenAi
          ? openai_whisper_file(dir)
          : dir / (model.layout == Layout::kMeta ? "params.json" : "config.json");
  ASSIGN_OR_RETURN(json::object object, read_config(dir, path, model));
  if (is_half_config(object))
    return read_folders(dir, half_of(object) == Half::kEncoder ? Half::kEncoder : half);
  model.config = object;
  RETURN_IF_ERROR(read_layout(dir, path.string(), object, model));
  ASSIGN_OR_RETURN(const std::string architecture, read_architecture(object, path.string()));
  const bool scores = scores_texts(architecture);
  StatusOr<const Family*> family =
      find_family(scores ? language_model_of(architecture) : architecture);
  if (!family.ok()) return annotate(find_family(architecture).status(), path.string());
  model.family = *family;
  if (model.family->encoder) {
    if (model.layout != Layout::kHuggingFace && model.layout != Layout::kOpenAi)
      return unsupported("{}: an encoder-decoder model in a layout other than Hugging Face's",
                         path.string());
    RETURN_IF_ERROR(read_halves(dir, architecture, object, path.string(), model));
    return model;
  }
  if (half == Half::kEncoder && !model.pictures)
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
  Traits encoder;
  if (model.pictures) {
    ASSIGN_OR_RETURN(encoder, read_picture_traits(path.string(), model));
    if (encoder.pictures.in_cross) facts.num_cross_layers = model.traits.num_crosses();
  }
  if (half == Half::kDecoder) {
    ASSIGN_OR_RETURN(model.graph, build_decoder(model.traits, *model.family->weights, facts));
  }
  if (model.pictures) RETURN_IF_ERROR(add_picture_encoder(encoder, facts, model));
  if (half == Half::kEncoder) return model;
  if (model.quantization.method == "compressed-tensors") set_experts_apart(model.graph);
  RETURN_IF_ERROR(use_tensors(object, path.string(), model));
  return model;
}

Status leave_text_part(Model& model) {
  Traits& t = model.traits;
  if (t.deep_layers == 0 && !t.row_end) return ok();
  t.deep_layers = 0, t.row_end = t.extra_row_end = false;
  if (!t.leaves_cross) {
    t.leaves_cross = true;
    io::ModelFacts& facts = model.graph.model;
    facts.num_cross_layers = facts.encoder_positions = 0;
    facts.pictures = {};
  }
  ASSIGN_OR_RETURN(model.graph,
                   build_decoder(t, *model.family->weights, std::move(model.graph.model)));
  if (model.quantization.method == "compressed-tensors") set_experts_apart(model.graph);
  return ok();
}

Ignores ignores_of(const Model& model) {
  const bool is_pictures = model.half == Half::kEncoder && model.pictures;
  return is_pictures ? picture_encoder_ignores : model.family->ignores;
}

}  // namespace nereid::models
