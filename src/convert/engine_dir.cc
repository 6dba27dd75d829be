#include "convert/engine_dir.h"

#include <algorithm>
#include <chrono>

#include "base/file.h"
#include "base/log.h"
#include "convert/draft_folder.h"
#include "convert/engine_key.h"
#include "convert/measure_kernels.h"
#include "convert/pretty_json.h"
#include "convert/trtllm_checkpoint.h"
#include "io/engine_file.h"
#include "io/engine_writer.h"
#include "kernels/api/op.h"
#include "models/config.h"
#include "models/encoder.h"
#include "models/formats/trtllm.h"
#include "models/formats/trtllm_halves.h"
#include "models/score_head.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::convert {
namespace {

constexpr int64_t kMaxLimit = int64_t{1} << 30;

StatusOr<json::object> pretrained_config(const models::Model& model, const models::Ranks& ranks) {
  if (!model.folders.empty()) return model.config;
  if (model.layout != models::Layout::kTrtLlm)
    return models::trtllm_config(model, "bfloat16", ranks);
  const std::string_view dtype = model.config.at("dtype").as_string();
  ASSIGN_OR_RETURN(json::object config, models::trtllm_config(model, dtype, ranks));
  if (const json::value* quantization = model.config.if_contains("quantization"))
    config["quantization"] = *quantization;
  return config;
}

// Removes engines of an earlier build with more ranks.
void remove_engines_from(const std::filesystem::path& dir, int32_t rank) {
  std::error_code error;
  while (std::filesystem::remove(dir / models::rank_file_name(rank, true), error)) ++rank;
}

Status write_plans(const std::filesystem::path& dir, const std::string& key,
                   const Compiled& compiled, int32_t ranks,
                   const std::filesystem::path& checkpoint_dir) {
  std::error_code error;
  const auto whole = std::filesystem::weakly_canonical(checkpoint_dir, error);
  for (int32_t rank = 0; rank < ranks; ++rank)
    RETURN_IF_ERROR(io::EngineWriter::write_plan(dir / models::rank_file_name(rank, true),
                                                 compiled.plan, key, whole.string()));
  return ok();
}

// Whether an EAGLE head reads the checkpoint at load time, because the engine has no weights.
bool reads_checkpoint(const EngineDirOptions& options) {
  if (!options.strip_weights) return false;
  const json::value* const mode = options.build_config.if_contains("speculative_decoding_mode");
  return mode && mode->is_int64() && (mode->get_int64() & kEagleMode);
}

Status build_engine_files(const EngineDirOptions& options, const models::Model& model,
                          const models::Ranks& ranks, const kernels::Registry& registry,
                          const DeviceInfo& device, BuildReport& report) {
  CompileOptions build = options.compile;
  if (const json::value* length = options.build_config.if_contains("max_seq_len");
      length && length->is_int64() && !model.graph.model.is_encoder)
    build.max_positions = static_cast<int32_t>(length->get_int64());
  if (model.pictures) {
    build.takes_pictures = false;
    log_warn("{}: the engine takes no pictures; served from the checkpoint's folder the model does",
             options.output_dir.string());
  }
  std::optional<io::Checkpoint> checkpoint;
  if (!options.random_weights && !options.strip_weights) {
    ASSIGN_OR_RETURN(checkpoint, models::open_checkpoint(model, options.checkpoint_dir));
  }
  const io::Checkpoint* const weights = checkpoint ? &*checkpoint : nullptr;
  ASSIGN_OR_RETURN(Compiled compiled,
                   compile_model(options.checkpoint_dir, registry, device, build));
  if (Device* const d = options.measure_on)
    RETURN_IF_ERROR(d->info().kind == DeviceKind::kCpu
                        ? measure_kernels(compiled.plan, registry, *d)
                        : measure_products(compiled.plan, registry, *d));
  report.key = engine_key(compiled, weights);
  std::error_code error;
  if (text::Tokenizer::has_files(options.output_dir) && !reads_checkpoint(options))
    compiled.plan.model.source_dir =
        std::filesystem::weakly_canonical(options.output_dir, error).string();
  const std::filesystem::path& dir = options.output_dir;
  report.path = dir / models::rank_file_name(0, true);
  if (options.strip_weights)
    RETURN_IF_ERROR(
        write_plans(dir, report.key, compiled, ranks.num_files(), options.checkpoint_dir));
  else if (ranks.num_files() > 1)
    RETURN_IF_ERROR(write_rank_engines(dir, report.key, compiled, *weights, options.workers));
  else
    RETURN_IF_ERROR(write_engine(report.path, report.key, compiled, weights));
  remove_engines_from(dir, ranks.num_files());
  report.built = true;
  for (int32_t rank = 0; rank < ranks.num_files(); ++rank)
    report.bytes += std::filesystem::file_size(dir / models::rank_file_name(rank, true), error);
  return ok();
}

int32_t max_lora_rank(models::Config& build) {
  constexpr int32_t kUsualRank = 64;
  const json::object* const object = build.object("lora_config");
  if (!object) return kUsualRank;
  models::Config lora(*object, build.where() + ": lora_config");
  const int32_t rank = lora.integer("max_lora_rank", 1, kernels::kMaxAdapterRank, kUsualRank);
  build.add(lora.status());
  return rank;
}

EngineLimits parse_limits(models::Config& build) {
  EngineLimits limits;
  limits.max_batch_size = build.integer("max_batch_size", 1, kMaxLimit, 2048);
  limits.max_beam_width = build.integer("max_beam_width", 1, kMaxLimit, 1);
  limits.max_num_tokens = build.integer("max_num_tokens", 1, kMaxLimit, 8192);
  limits.max_prompt_table = build.integer("max_prompt_embedding_table_size", 0, kMaxLimit, 0);
  limits.gather_context_logits = build.boolean("gather_context_logits", false);
  limits.max_encoder_input_len = build.integer("max_encoder_input_len", 1, kMaxLimit, 1024);
  const int32_t max_input_len = build.integer("max_input_len", 1, kMaxLimit, 1024);
  if (const json::object* plugins = build.object("plugin_config")) {
    models::Config plugin(*plugins, build.where() + ": plugin_config");
    limits.tokens_per_block = plugin.integer("tokens_per_block", 1, 1024, 32);
    limits.paged_context = plugin.boolean("use_paged_context_fmha", true);
    const bool packed = plugin.boolean("remove_input_padding", true);
    if (!packed || !plugin.boolean("context_fmha", true)) limits.max_input_len = max_input_len;
    const json::value* const lora = plugins->if_contains("lora_plugin");
    if (lora && !lora->is_null()) limits.max_lora_rank = max_lora_rank(build);
    build.add(plugin.status());
  }
  return limits;
}

}  // namespace

Status build_engine_dir(const EngineDirOptions& options, const kernels::Registry& registry,
                        const DeviceInfo& device, BuildReport* report) {
  const auto start = std::chrono::steady_clock::now();
  BuildReport unused;
  BuildReport& out = report ? *report : unused;
  out = {};
  std::error_code error;
  if (std::filesystem::equivalent(options.checkpoint_dir, options.output_dir, error))
    return invalid_argument("output_dir: {} is also checkpoint_dir; name another directory",
                            options.output_dir.string());
  ASSIGN_OR_RETURN(models::Model model, models::read_model(options.checkpoint_dir));
  RETURN_IF_ERROR(models::check_storable(model));
  RETURN_IF_ERROR(models::leave_text_part(model));
  if (model.folders.empty())
    RETURN_IF_ERROR(models::refuse_encoder_decoder(
        model, "convert_checkpoint makes a checkpoint of two folders, of which engines are built"));
  if (model.in_engines)
    return invalid_argument("checkpoint_dir: {} is an engine; name the checkpoint",
                            options.checkpoint_dir.string());
  if (options.random_weights && model.ranks.num_files() > 1)
    log_warn("mapping: world_size: {}: random weights are not shared, one engine has them all",
             model.ranks.num_files());
  const models::Ranks ranks = options.random_weights ? models::Ranks{} : model.ranks;
  ASSIGN_OR_RETURN(const json::object pretrained, pretrained_config(model, ranks));
  std::filesystem::create_directories(options.output_dir, error);
  if (error) return unavailable("{}: {}", options.output_dir.string(), error.message());
  RETURN_IF_ERROR(copy_tokenizer(options.checkpoint_dir, options.output_dir));
  if (!options.config_only)
    RETURN_IF_ERROR(build_engine_files(options, model, ranks, registry, device, out));
  const json::object config = {{"version", NEREID_VERSION},
                               {"pretrained_config", pretrained},
                               {"build_config", options.build_config}};
  RETURN_IF_ERROR(write_file_atomic(options.output_dir / "config.json", pretty_json(config)));
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return ok();
}

StatusOr<std::optional<EngineLimits>> read_engine_limits(const std::filesystem::path& dir) {
  std::optional<EngineLimits> limits;
  std::error_code error;
  const std::filesystem::path engine = given_engine(dir);
  const std::filesystem::path path = engine.parent_path() / "config.json";
  if (engine.empty() || engine == dir || !std::filesystem::is_regular_file(path, error))
    return limits;
  ASSIGN_OR_RETURN(const json::object object, models::read_object(path));
  models::Config config(object, path.string());
  const json::object* pretrained = config.object("pretrained_config");
  const json::object* build = config.object("build_config");
  RETURN_IF_ERROR(config.status());
  if (!pretrained || !build)
    return invalid_argument("{}: field '{}' is missing beside rank0.engine", path.string(),
                            pretrained ? "build_config" : "pretrained_config");
  models::Config fields(*build, path.string() + ": build_config");
  limits = parse_limits(fields);
  if (!models::is_half_config(*pretrained)) limits->max_encoder_input_len = 0;
  constexpr std::string_view kMode = "speculative_decoding_mode";
  if (fields.has(kMode) && (fields.integer(kMode, 0, 1 << 16) & kModesWithHeads))
    limits->draft_model = path.parent_path() / kDraftFolder;
  RETURN_IF_ERROR(fields.status());
  return limits;
}

StatusOr<io::Mapping> built_mapping(const std::filesystem::path& path) {
  const std::filesystem::path engine = given_engine(path);
  const std::filesystem::path file =
      (engine.empty() ? models::decoder_folder(path) : engine.parent_path()) / "config.json";
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return io::Mapping();
  ASSIGN_OR_RETURN(const json::object object, models::read_object(file));
  const json::object* checkpoint = &object;
  if (!engine.empty()) {
    models::Config config(object, file.string());
    checkpoint = config.object("pretrained_config");
    RETURN_IF_ERROR(config.status());
  }
  if (!checkpoint || !models::is_trtllm_config(*checkpoint)) return io::Mapping();
  ASSIGN_OR_RETURN(const models::Ranks ranks, models::read_ranks(*checkpoint, file.string()));
  return io::Mapping{.tp = ranks.tp, .pp = ranks.pp, .ep = std::max(ranks.moe_ep, 1)};
}

StatusOr<io::ModelFacts> read_facts(const std::filesystem::path& path) {
  if (const std::filesystem::path engine = given_engine(path); !engine.empty()) {
    ASSIGN_OR_RETURN(const io::EngineFile file, io::EngineFile::open(engine, io::Verify::kPlan));
    return file.plan().model;
  }
  ASSIGN_OR_RETURN(models::Model model, models::read_model(path));
  return std::move(model.graph.model);
}

std::filesystem::path encoder_path(const std::filesystem::path& path) {
  const std::filesystem::path engine = given_engine(path);
  return engine.empty() ? path
                        : models::folder_beside(engine.parent_path(), models::Half::kEncoder);
}

StatusOr<std::filesystem::path> tokenizer_dir(const std::filesystem::path& path) {
  const std::filesystem::path engine = given_engine(path);
  const std::filesystem::path dir =
      engine.empty() ? models::decoder_folder(path) : engine.parent_path();
  if (engine.empty() || text::Tokenizer::has_files(dir)) return dir;
  ASSIGN_OR_RETURN(const io::ModelFacts facts, read_facts(path));
  return std::filesystem::path(facts.source_dir);
}

}  // namespace nereid::convert
