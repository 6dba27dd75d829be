// trtllm-build: builds an engine directory for one device from a checkpoint directory.
#include <algorithm>
#include <optional>

#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/scratch_dir.h"
#include "cli/flags/arg_table.h"
#include "cli/flags/missing_path.h"
#include "cli/tools/build_flags.h"
#include "cli/tools/tools.h"
#include "convert/draft_folder.h"
#include "convert/engine_dir.h"
#include "kernels/open.h"
#include "models/drafts/eagle3.h"
#include "models/formats/trtllm.h"
#include "runtime/adapters/adapter.h"

namespace nereid::cli {
namespace {

constexpr size_t kMaxBuildConfigBytes = size_t{16} << 20;

struct Limits {
  int64_t max_batch_size = 0, max_input_len = 0, max_seq_len = 0, max_beam_width = 0,
          max_num_tokens = 0, opt_num_tokens = 0;
  int64_t max_prompt_table = 0;  // rows
  int64_t max_draft_len = 0;     // only stored, for other tools
  int64_t max_lora_rank = 0;
  int64_t max_encoder_input_len = 0;  // 0: the model's
};

// A limit, which a flag sets, and in --build_config the key that is its name.
struct Limit {
  const char* flag;
  int64_t Limits::*value;
  int64_t low = 0, high = 1 << 30;
};
constexpr Limit kLimits[] = {
    {"--max_batch_size", &Limits::max_batch_size, 1},
    {"--max_input_len", &Limits::max_input_len, 1},
    {"--max_seq_len", &Limits::max_seq_len},
    {"--max_beam_width", &Limits::max_beam_width, 1, 16},
    {"--max_num_tokens", &Limits::max_num_tokens, 1},
    {"--opt_num_tokens", &Limits::opt_num_tokens},
    {"--max_prompt_embedding_table_size", &Limits::max_prompt_table},
    {"--max_draft_len", &Limits::max_draft_len},
    {"--max_encoder_input_len", &Limits::max_encoder_input_len},
    {"--max_lora_rank", &Limits::max_lora_rank, 1, kernels::kMaxAdapterRank}};

Status check_range(std::string_view name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return ok();
  return invalid_argument("{}: {} is not in [{}, {}]", name, value, low, high);
}

// --build_config: a JSON file whose limits replace those of the command line.
Status read_build_config(const std::string& path, Limits& limits) {
  ASSIGN_OR_RETURN(const json::value document, read_json_file(path));
  if (!document.is_object()) return invalid_argument("{}: is not a JSON object", path);
  models::Config config(document.get_object(), path);
  for (const Limit& limit : kLimits)
    if (const char* const key = limit.flag + 2; config.has(key))
      limits.*limit.value = config.integer(key, limit.low, limit.high);
  if (const json::object* lora = config.object("lora_config")) {
    models::Config inner(*lora, path + ": lora_config");
    if (inner.has("max_lora_rank"))
      limits.max_lora_rank = inner.integer("max_lora_rank", 1, kernels::kMaxAdapterRank);
    config.add(inner.status());
  }
  return config.status();
}

StatusOr<Limits> read_limits(const Args& args) {
  Limits limits;
  for (const Limit& limit : kLimits) limits.*limit.value = args.integer(limit.flag);
  if (args.given("--max_output_len") && !args.given("--max_seq_len"))
    limits.max_seq_len = limits.max_input_len + args.integer("--max_output_len");
  if (args.given("--build_config"))
    RETURN_IF_ERROR(read_build_config(args.text("--build_config"), limits));
  for (const Limit& limit : kLimits)
    RETURN_IF_ERROR(check_range(limit.flag, limits.*limit.value, limit.low, limit.high));
  return limits;
}

// Derives limits from each other and the model, in trtllm-build's order and words.
void deduce(const io::ModelFacts& facts, int64_t tokens_per_block, Limits& limits) {
  if (limits.max_seq_len == 0) {
    limits.max_seq_len = facts.max_positions;
    log_info("max_seq_len is not specified, using value {}", limits.max_seq_len);
  } else if (limits.max_seq_len > facts.max_positions) {
    log_warn("max_seq_len {} is larger than the model's {}, which stays the limit",
             limits.max_seq_len, facts.max_positions);
    limits.max_seq_len = facts.max_positions;
  }
  if (limits.max_input_len > limits.max_seq_len) {
    log_warn("max_input_len {} is larger than max_seq_len {}, clipped", limits.max_input_len,
             limits.max_seq_len);
    limits.max_input_len = limits.max_seq_len;
  }
  const int64_t most = limits.max_seq_len * limits.max_batch_size;
  if (limits.max_num_tokens > most) {
    log_warn("max_num_tokens {} is more than max_seq_len * max_batch_size, lowered to {}",
             limits.max_num_tokens, most);
    limits.max_num_tokens = most;
  }
  if (limits.max_num_tokens < tokens_per_block) {
    log_warn("max_num_tokens {} is less than tokens_per_block, raised to {}", limits.max_num_tokens,
             tokens_per_block);
    limits.max_num_tokens = tokens_per_block;
  }
  if (facts.encoder_positions > 0) {
    if (limits.max_encoder_input_len > facts.encoder_positions)
      log_info("max_encoder_input_len {} is more than the {} positions of the model's encoder",
               limits.max_encoder_input_len, facts.encoder_positions);
    if (limits.max_encoder_input_len == 0 || limits.max_encoder_input_len > facts.encoder_positions)
      limits.max_encoder_input_len = facts.encoder_positions;
  } else if (limits.max_encoder_input_len == 0) {
    constexpr int64_t kUsual = 1024;
    limits.max_encoder_input_len = kUsual;
  }
  if (limits.opt_num_tokens == 0)
    limits.opt_num_tokens =
        std::min(limits.max_batch_size * limits.max_beam_width, limits.max_num_tokens);
}

// The kv_cache_type, from its flag or from the deprecated one.
StatusOr<std::string> cache_type(const Args& args) {
  std::string type = args.text("--kv_cache_type");
  std::transform(type.begin(), type.end(), type.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (!type.empty() && type != "PAGED" && type != "CONTINUOUS" && type != "DISABLED")
    return invalid_argument("--kv_cache_type: '{}' is not one of paged, continuous, disabled",
                            args.text("--kv_cache_type").substr(0, 40));
  if (args.given("--paged_kv_cache")) {
    log_warn("--paged_kv_cache is deprecated, use --kv_cache_type");
    const std::string old = args.is_on("--paged_kv_cache") ? "PAGED" : "CONTINUOUS";
    if (!type.empty() && type != old)
      return invalid_argument("--paged_kv_cache {} contradicts --kv_cache_type {}",
                              args.text("--paged_kv_cache"), args.text("--kv_cache_type"));
    type = old;
  }
  if (type == "DISABLED")
    return unsupported(
        "--kv_cache_type: 'disabled' is not supported yet; allowed: paged, continuous");
  if (type == "CONTINUOUS") log_warn("a continuous KV cache has no meaning here; it is paged");
  return std::string("PAGED");
}

json::value plugin_value(const std::string& word) {
  if (word == "disable") return nullptr;
  return json::value(word);
}

json::object plugin_config(const Args& args, bool paged_context) {
  json::object out = {{"dtype", "bfloat16"}};
  for (const char* name : kPlugins) out[name + 2] = plugin_value(args.text(name));
  for (const char* name : kFeatures) out[name + 2] = args.is_on(name);
  out["paged_kv_cache"] = true;
  out["tokens_per_block"] = args.integer("--tokens_per_block");
  out["use_paged_context_fmha"] = paged_context;
  return out;
}

std::vector<std::string> lora_directories(const Args& args) {
  return absl::StrSplit(args.text("--lora_dir"), ' ', absl::SkipEmpty());
}

// The bit of the speculative decoding mode.
int speculative_mode(const Args& args) {
  constexpr std::pair<std::string_view, int> kModes[] = {
      {"", 1},
      {"draft_tokens_external", 2},
      {"medusa", convert::kMedusaMode},
      {"lookahead_decoding", 8},
      {"explicit_draft_tokens", convert::kExplicitDraftTokensMode},
      {"eagle", convert::kEagleMode}};
  const std::string& mode = args.text("--speculative_decoding_mode");
  return std::ranges::find(kModes, mode, &std::pair<std::string_view, int>::first)->second;
}

bool has_heads(const Args& args) { return speculative_mode(args) & convert::kModesWithHeads; }

json::object build_config(const Args& args, const Limits& limits, const std::string& kv_cache) {
  const bool all = args.is_on("--gather_all_token_logits");
  const bool paged_context = args.is_on("--use_paged_context_fmha") && args.is_on("--context_fmha");
  const json::object lora = {{"lora_dir", json::value_from(lora_directories(args))},
                             {"lora_ckpt_source", args.text("--lora_ckpt_source")},
                             {"max_lora_rank", limits.max_lora_rank},
                             {"lora_target_modules", json::array()},
                             {"trtllm_modules_to_hf_modules", json::object()}};
  return {{"max_input_len", limits.max_input_len},
          {"max_seq_len", limits.max_seq_len},
          {"opt_batch_size", 8},
          {"max_batch_size", limits.max_batch_size},
          {"max_beam_width", limits.max_beam_width},
          {"max_num_tokens", limits.max_num_tokens},
          {"opt_num_tokens", limits.opt_num_tokens},
          {"max_prompt_embedding_table_size", limits.max_prompt_table},
          {"kv_cache_type", kv_cache},
          {"gather_context_logits", all || args.is_on("--gather_context_logits")},
          {"gather_generation_logits", all || args.is_on("--gather_generation_logits")},
          {"strongly_typed", true},
          {"force_num_profiles", nullptr},
          {"profiling_verbosity", args.text("--profiling_verbosity")},
          {"enable_debug_output", args.is_on("--enable_debug_output")},
          {"max_draft_len", limits.max_draft_len},
          {"speculative_decoding_mode", speculative_mode(args)},
          {"use_refit", false},
          {"input_timing_cache", nullptr},
          {"output_timing_cache", "model.cache"},
          {"lora_config", lora},
          {"weight_sparsity", args.is_on("--weight_sparsity")},
          {"weight_streaming", args.is_on("--weight_streaming")},
          {"plugin_config", plugin_config(args, paged_context)},
          {"use_strip_plan", false},
          {"max_encoder_input_len", limits.max_encoder_input_len},
          {"monitor_memory", args.is_on("--monitor_memory")},
          {"use_mrope", false}};
}

Status check_build_flags(const Args& args) {
  if (!args.given("--checkpoint_dir") && !args.given("--model_config"))
    return invalid_argument("--checkpoint_dir: is missing; give a checkpoint directory");
  if (args.is_on("--strip_plan") && !args.given("--checkpoint_dir"))
    return invalid_argument("--strip_plan: needs --checkpoint_dir, which the weights come from");
  if (args.given("--lora_dir") && args.text("--lora_plugin") == "disable")
    return invalid_argument("--lora_dir: {} needs --lora_plugin", args.text("--lora_dir"));
  const std::string& mode = args.text("--speculative_decoding_mode");
  const std::filesystem::path checkpoint = args.text("--checkpoint_dir");
  if (has_heads(args) && convert::draft_mode(checkpoint / convert::kDraftFolder) != mode)
    return invalid_argument(
        "--speculative_decoding_mode: '{}' needs such heads in {}, where convert_checkpoint's "
        "--medusa_model_dir, --drafter_model_dir and --eagle_model_dir put them",
        mode, (checkpoint / convert::kDraftFolder).string());
  return ok();
}

// Checks that the engine can take the adapters of --lora_dir.
Status check_adapters(const Args& args, const Limits& limits,
                      const convert::EngineDirOptions& options) {
  const std::vector<std::string> directories = lora_directories(args);
  if (directories.empty() || options.config_only) return ok();
  const auto engine = options.output_dir / "rank0.engine";
  ASSIGN_OR_RETURN(const io::EngineFile file, io::EngineFile::open(engine, io::Verify::kPlan));
  if (file.plan().model.is_encoder) return ok();  // its modules are the decoder's, too
  runtime::AdapterBounds bounds{file.plan().modules, static_cast<int32_t>(limits.max_lora_rank)};
  if (!options.strip_weights && file.plan().model.encoder_positions == 0) {
    ASSIGN_OR_RETURN(bounds.base, runtime::BaseWeights::open(engine));
  }
  for (const std::string& directory : directories) {
    const auto adapter = runtime::read_adapter({.path = directory}, bounds);
    if (!adapter.ok()) return annotate(adapter.status(), "--lora_dir");
  }
  return ok();
}

// Sets the model layers whose hidden states the heads read.
Status set_hidden_layers(const Args& args, const models::Model& model,
                         convert::EngineDirOptions& options) {
  const std::filesystem::path heads = options.checkpoint_dir / convert::kDraftFolder;
  if (!has_heads(args) || !models::has_eagle3_head(heads)) return ok();
  ASSIGN_OR_RETURN(options.compile.hidden_layers,
                   models::eagle3_layers(heads, model.traits.num_layers));
  return ok();
}

// A directory for a config.json that was given alone.
StatusOr<ScratchDir> directory_of(const std::string& config) {
  ASSIGN_OR_RETURN(ScratchDir dir, ScratchDir::create());
  ASSIGN_OR_RETURN(const std::string text, read_file(config, kMaxBuildConfigBytes));
  RETURN_IF_ERROR(write_file_atomic(dir.path() / "config.json", text));
  log_warn("{}: has no weights, so the engine's are random", config);
  return dir;
}

Status build(const Args& args) {
  RETURN_IF_ERROR(check_build_flags(args));
  const std::string source =
      args.text(args.given("--checkpoint_dir") ? "--checkpoint_dir" : "--model_config");
  if (args.given("--checkpoint_dir")) RETURN_IF_ERROR(check_exists("--checkpoint_dir", source));
  std::optional<ScratchDir> scratch;
  ASSIGN_OR_RETURN(Limits limits, read_limits(args));
  ASSIGN_OR_RETURN(const std::string kv_cache, cache_type(args));
  convert::EngineDirOptions options;
  options.checkpoint_dir = source;
  if (!args.given("--checkpoint_dir") || source.ends_with(".json")) {
    ASSIGN_OR_RETURN(ScratchDir directory, directory_of(source));
    scratch.emplace(std::move(directory));
    options.checkpoint_dir = scratch->path();
    options.random_weights = true;
  }
  options.output_dir = args.text("--output_dir");
  options.config_only = args.is_on("--dry_run");
  options.workers = static_cast<int32_t>(args.integer("--workers"));
  ASSIGN_OR_RETURN(const models::Model model, models::read_model(options.checkpoint_dir));
  deduce(model.graph.model, args.integer("--tokens_per_block"), limits);
  for (const char* name : kPlugins) {
    if (args.given(name)) log_info("Set {} to {}.", name + 2, args.text(name));
  }
  options.strip_weights = args.is_on("--strip_plan") || models::is_pruned(model.config);
  options.build_config = build_config(args, limits, kv_cache);
  options.build_config["use_strip_plan"] = options.strip_weights;
  options.compile.adapters = args.text("--lora_plugin") != "disable";
  RETURN_IF_ERROR(set_hidden_layers(args, model, options));
  ASSIGN_OR_RETURN(const kernels::OpenedDevice opened,
                   kernels::open_device(args.text("--device"), {.isa = args.text("--isa")}));
  if (!args.is_on("--fast_build")) options.measure_on = opened.device.get();
  convert::BuildReport report;
  RETURN_IF_ERROR(
      convert::build_engine_dir(options, opened.registry, opened.device->info(), &report));
  if (has_heads(args)) {
    RETURN_IF_ERROR(convert::copy_draft_folder(options.checkpoint_dir / convert::kDraftFolder,
                                               options.output_dir));
    if (!options.strip_weights && !options.config_only)
      RETURN_IF_ERROR(convert::build_eagle_engine(options.output_dir, options.checkpoint_dir,
                                                  opened.registry, opened.device->info(),
                                                  options.compile));
  }
  RETURN_IF_ERROR(check_adapters(args, limits, options));
  fmt::print("{}: {} MiB for {}\n", options.output_dir.string(), report.bytes >> 20,
             args.text("--device"));
  return ok();
}

}  // namespace

int trtllm_build_main(int argc, char** argv) {
  return run_tool({"trtllm-build", kBuildFlags}, argc, argv, [](const Args& args) {
    return run_timed(args, "Total time of building all engines", build);
  });
}

}  // namespace nereid::cli
