#include "convert/trtllm_checkpoint.h"

#include <algorithm>

#include "base/file.h"
#include "convert/draft_folder.h"
#include "convert/new_directory.h"
#include "convert/pretty_json.h"
#include "convert/rank_format.h"
#include "convert/rank_writer.h"
#include "models/formats/trtllm.h"
#include "models/formats/trtllm_halves.h"
#include "models/score_head.h"

namespace nereid::convert {
namespace {

constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "tokenizer.model",
                                           "spiece.model",
                                           "tekken.json",
                                           "tiktoken.model",
                                           "qwen.tiktoken",
                                           "vocab.json",
                                           "merges.txt",
                                           "vocab.txt",
                                           "chat_template.jinja",
                                           "generation_config.json",
                                           "preprocessor_config.json",
                                           "processor_config.json"};

struct Precision {
  const char* name;
  DType type;
};
constexpr Precision kPrecisions[] = {
    {"bfloat16", DType::kBF16}, {"float16", DType::kF16}, {"float32", DType::kF32}};

// Element type from config.json, else from the tensors; float16 in place of float32.
const char* stored_type(const models::Model& model, const io::Checkpoint& checkpoint) {
  for (const char* field : {"torch_dtype", "dtype"}) {
    const json::value* type = model.config.if_contains(field);
    if (!type || !type->is_string()) continue;
    for (const char* name : {"bfloat16", "float16", "float32"})
      if (type->get_string() == name) return name == std::string_view("float32") ? "float16" : name;
  }
  const bool has_bf16 = std::ranges::any_of(
      checkpoint.entries(), [](const auto& entry) { return entry.tensor->type == DType::kBF16; });
  return has_bf16 ? "bfloat16" : "float16";
}

StatusOr<Precision> choose(const ConvertOptions& options, const models::Model& model,
                           const io::Checkpoint& checkpoint) {
  const std::string dtype =
      options.dtype == "auto" ? stored_type(model, checkpoint) : options.dtype;
  for (const Precision& target : kPrecisions)
    if (dtype == target.name) return target;
  return invalid_argument("dtype: '{}' is not one of auto, bfloat16, float16, float32",
                          dtype.substr(0, 40));
}

using RankTensors = std::vector<std::vector<models::RankTensor>>;  // by rank

Status write_ranks(const RankTensors& ranks, RankWriter& writer, const RankFormat& format,
                   const std::filesystem::path& dir, Progress& progress, ConvertReport& report) {
  for (const auto& tensors : ranks)
    for (const models::RankTensor& tensor : tensors) {
      ASSIGN_OR_RETURN(const std::vector<io::TensorInfo> infos, format.infos(tensor));
      for (const io::TensorInfo& info : infos) progress.total_bytes += info.bytes();
    }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    progress.rank = static_cast<int32_t>(rank);
    RETURN_IF_ERROR(
        writer.write(ranks[rank], dir / models::rank_file_name(static_cast<int32_t>(rank))));
    report.num_tensors += ranks[rank].size();
  }
  report.bytes = progress.total_bytes;
  return ok();
}

// Biases of column-split products are stored by the first rank only, if products add them before
// ranks are summed.
void clear_biases(const models::Ranks& by, RankTensors& ranks) {
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    for (models::RankTensor& tensor : ranks[rank])
      if (rank % static_cast<size_t>(by.tp) != 0 &&
          (tensor.name.ends_with("attention.dense.bias") || tensor.name.ends_with("mlp.proj.bias")))
        tensor.blocks.clear();
}

// A folder of the checkpoint, to be written.
struct Folder {
  const graph::Graph* graph = nullptr;
  json::object config;        // without quantization
  std::filesystem::path dir;  // exists
};

Status write_folder(const ConvertOptions& options, Folder folder, const io::Checkpoint& checkpoint,
                    DType type, DType cache, Progress& progress, ConvertReport& report) {
  RankTensors ranks;
  for (int32_t rank = 0; rank < options.ranks.num_files(); ++rank) {
    ASSIGN_OR_RETURN(ranks.emplace_back(),
                     models::rank_tensors(*folder.graph, options.ranks, rank));
    if (options.implicit_positions)
      std::erase_if(ranks.back(), [](const models::RankTensor& tensor) {
        return tensor.name == models::kSharedTableName;
      });
  }
  const RankFormatOptions wanted{options.weights,
                                 type,
                                 options.cache.value_or(cache),
                                 options.smoothing,
                                 &options.magnitudes,
                                 options.rounds,
                                 options.group};
  ASSIGN_OR_RETURN(const RankFormat format,
                   RankFormat::create(wanted, *folder.graph, checkpoint, ranks));
  if (format.adds_biases()) clear_biases(options.ranks, ranks);
  folder.config["quantization"] = format.quantization();
  RankWriter writer(*folder.graph, checkpoint, type, format, progress, options.progress);
  if (!options.config_only)
    RETURN_IF_ERROR(write_ranks(ranks, writer, format, folder.dir, progress, report));
  return write_file_atomic(folder.dir / "config.json", pretty_json(folder.config));
}

// Checks that what was written is read as the same model; names the first difference.
Status check_same_model(const models::Model& encoder, const models::Model& decoder,
                        const std::filesystem::path& output) {
  for (const models::Model* model : {&encoder, &decoder}) {
    ASSIGN_OR_RETURN(const models::Model read, models::read_model(output, model->half));
    RETURN_IF_ERROR(
        models::check_same_traits(model->family->architecture, model->traits, read.traits));
  }
  return ok();
}

// Writes both folders of an encoder-decoder model.
Status write_halves(const ConvertOptions& options, models::Model decoder,
                    const io::Checkpoint& checkpoint, const Precision& target,
                    const std::filesystem::path& output, ConvertReport& report) {
  if (decoder.layout == models::Layout::kTrtLlm)
    return unsupported(
        "model_dir: {} is a checkpoint already; encoder-decoder models are converted from Hugging "
        "Face's folders",
        options.model_dir.string());
  ASSIGN_OR_RETURN(models::Model encoder,
                   models::read_model(options.model_dir, models::Half::kEncoder));
  models::use_stored_formats(encoder.graph, checkpoint);
  const models::FolderGraphs graphs = models::folder_graphs(encoder, decoder);
  Progress progress;
  for (const bool is_encoder : {true, false}) {
    const models::Model& own = is_encoder ? encoder : decoder;
    Folder folder{.graph = is_encoder ? &graphs.encoder : &graphs.decoder,
                  .config = models::half_config(own, is_encoder ? decoder : encoder, target.name,
                                                options.ranks),
                  .dir = output / (is_encoder ? models::kEncoderFolder : models::kDecoderFolder)};
    if (!is_encoder && options.implicit_positions)
      folder.config["use_implicit_relative_attention"] = true;
    std::error_code error;
    std::filesystem::create_directories(folder.dir, error);
    if (error) return unavailable("{}: {}", folder.dir.string(), error.message());
    const auto dir = folder.dir;
    RETURN_IF_ERROR(write_folder(options, std::move(folder), checkpoint, target.type,
                                 own.quantization.cache, progress, report));
    if (!is_encoder) RETURN_IF_ERROR(copy_tokenizer(options.model_dir, dir));
  }
  return check_same_model(encoder, decoder, output);
}

}  // namespace

bool is_checkpoint_file(std::string_view name) {
  return name == "config.json" || name == kDraftFolder || name == models::kEncoderFolder ||
         name == models::kDecoderFolder ||
         (name.starts_with("rank") && name.ends_with(".safetensors")) ||
         std::ranges::find(kTokenizerFiles, name) != std::end(kTokenizerFiles);
}

Status copy_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  if (std::filesystem::equivalent(from, to, error)) return ok();
  for (const char* name : kTokenizerFiles) {
    if (!std::filesystem::is_regular_file(from / name, error)) continue;
    std::filesystem::copy_file(from / name, to / name,
                               std::filesystem::copy_options::overwrite_existing, error);
    if (error) return unavailable("{}: {}", (to / name).string(), error.message());
  }
  return ok();
}

StatusOr<ConvertReport> convert_checkpoint(const ConvertOptions& asked) {
  ConvertOptions options = asked;
  ASSIGN_OR_RETURN(options.ranks, models::check_ranks(asked.ranks));
  std::error_code error;
  if (std::filesystem::equivalent(options.model_dir, options.output_dir, error))
    return invalid_argument("output_dir: {} is also model_dir; name another directory",
                            options.output_dir.string());
  ASSIGN_OR_RETURN(models::Model model, models::read_model(options.model_dir));
  RETURN_IF_ERROR(models::check_storable(model));
  RETURN_IF_ERROR(models::leave_text_part(model));
  ASSIGN_OR_RETURN(const io::Checkpoint checkpoint,
                   models::open_checkpoint(model, options.model_dir));
  RETURN_IF_ERROR(
      models::check_tensors(model.graph, checkpoint, model.traits, models::ignores_of(model)));
  models::use_stored_formats(model.graph, checkpoint);
  ASSIGN_OR_RETURN(const Precision target, choose(options, model, checkpoint));
  ConvertReport report{.dtype = target.name};
  ASSIGN_OR_RETURN(NewDirectory output,
                   NewDirectory::create(options.output_dir, is_checkpoint_file));
  if (model.graph.model.num_cross_layers > 0) {
    RETURN_IF_ERROR(
        write_halves(options, std::move(model), checkpoint, target, output.path(), report));
  } else {
    ASSIGN_OR_RETURN(json::object config, models::trtllm_config(model, target.name, options.ranks));
    Progress progress;
    RETURN_IF_ERROR(write_folder(options, {&model.graph, std::move(config), output.path()},
                                 checkpoint, target.type, model.quantization.cache, progress,
                                 report));
    RETURN_IF_ERROR(copy_tokenizer(options.model_dir, output.path()));
  }
  RETURN_IF_ERROR(output.finish());
  return report;
}

}  // namespace nereid::convert
