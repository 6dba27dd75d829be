// From a model directory to a verified graph.
#include <algorithm>
#include <utility>

#include "base/gguf.h"
#include "models/config.h"
#include "models/family.h"
#include "models/gguf.h"
#include "models/read_fields.h"
#include "models/score_head.h"
#include "models/text_part.h"
#include "models/trtllm.h"

namespace nereid::models {
namespace {

StatusOr<std::string> read_architecture(const json::object& config, const std::string& where) {
  const json::value* list = config.if_contains("architectures");
  if (!list || !list->is_array() || list->get_array().empty() || !list->get_array()[0].is_string())
    return invalid_argument("{}: field 'architectures' is not a list of names", where);
  return std::string(list->get_array()[0].get_string());
}

// Of the same family as a model that scores texts.
std::string language_model_of(std::string_view architecture) {
  return std::string(architecture.substr(0, architecture.rfind("For"))) + "ForCausalLM";
}

// An id of a special token; absent, null and -1 mean that there is none.
int32_t special_id(Config& config, std::string_view key, int32_t vocab_size) {
  const std::vector<int32_t> ids = config.integers(key, -1, vocab_size - 1);
  return ids.empty() ? io::kNone : ids.front();
}

// Every file's end ids count; those of generation_config.json come first.
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

// An engine's config.json: that of the checkpoint which its several ranks hold.
StatusOr<json::object> config_of_ranks(const json::object& config, const std::string& where) {
  const json::value& pretrained = config.at("pretrained_config");
  if (pretrained.is_object() && is_trtllm_config(pretrained.get_object())) {
    ASSIGN_OR_RETURN(const Ranks ranks,
                     read_ranks(pretrained.get_object(), where + ": pretrained_config"));
    if (ranks.num_files() > 1) return pretrained.get_object();
  }
  return invalid_argument(
      "{}: belongs to an engine; a checkpoint or a Hugging Face directory is wanted", where);
}

}  // namespace

StatusOr<Model> read_model(const std::filesystem::path& dir) {
  const bool is_gguf = is_gguf_path(dir);
  const std::filesystem::path path = is_gguf ? dir : dir / "config.json";
  ASSIGN_OR_RETURN(json::object object, is_gguf ? read_gguf_config(path) : read_object(path));
  Model model;
  model.in_engines = is_engine_config(object);
  if (model.in_engines) {
    ASSIGN_OR_RETURN(object, config_of_ranks(object, path.string()));
  }
  ASSIGN_OR_RETURN(model.is_text_part, take_text_part(object, path.string()));
  model.config = object;
  if (is_gguf) model.layout = Layout::kGguf;
  if (is_trtllm_config(object)) {
    model.layout = Layout::kTrtLlm;
    ASSIGN_OR_RETURN(model.ranks, read_ranks(object, path.string()));
    RETURN_IF_ERROR(complete_trtllm_config(object, path.string()));
    ASSIGN_OR_RETURN(model.quantization, read_trtllm_quantization(object, path.string()));
    const int32_t last_stage = (model.ranks.pp - 1) * model.ranks.tp;
    RETURN_IF_ERROR(find_trtllm_head(object, dir / rank_file_name(last_stage, model.in_engines)));
  }
  if (model.layout == Layout::kHuggingFace) {
    ASSIGN_OR_RETURN(model.quantization, read_quantization(object, dir));
  }
  ASSIGN_OR_RETURN(const std::string architecture, read_architecture(object, path.string()));
  const bool scores = scores_texts(architecture);
  StatusOr<const Family*> family =
      find_family(scores ? language_model_of(architecture) : architecture);
  if (!family.ok()) return annotate(find_family(architecture).status(), path.string());
  model.family = *family;

  // There is no language head; the graph's is never asked.
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
  const Traits& t = model.traits;
  io::ModelFacts facts;
  std::error_code error;
  std::filesystem::path absolute = std::filesystem::weakly_canonical(dir, error);
  if (error) absolute = dir;
  facts.source_dir = absolute.string();
  facts.name = (is_gguf ? absolute.stem() : absolute.filename()).string();
  facts.architecture = architecture;
  facts.vocab_size = t.vocab_size;
  facts.hidden_size = t.embed_size;
  facts.num_layers = t.num_layers;
  facts.num_heads = t.num_heads;
  facts.num_kv_heads = t.num_kv_heads;
  facts.head_dim = t.latent > 0 ? t.turning + t.latent : t.head_dim;
  facts.latent = t.latent;
  facts.max_positions = t.max_positions;
  for (const RopeTraits& rope : t.ropes) facts.ropes.push_back(rope_table(rope, t.head_dim));
  RETURN_IF_ERROR(read_special_ids(config, dir, facts));
  ASSIGN_OR_RETURN(model.graph, build_decoder(t, *model.family->weights, std::move(facts)));
  if (is_gguf) RETURN_IF_ERROR(annotate(use_gguf_tensors(model.graph, object), path.string()));
  if (model.layout == Layout::kTrtLlm) {
    RETURN_IF_ERROR(check_trtllm_config(object, path.string(), model));
    RETURN_IF_ERROR(annotate(use_rank_tensors(model.graph, model.ranks), path.string()));
  }
  return model;
}

}  // namespace nereid::models
