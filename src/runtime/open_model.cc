// Opens a model directory as a ModelInstance; Executor::create().
#include <utility>

#include "base/log.h"
#include "convert/engine_dir.h"
#include "io/engine_file.h"
#include "io/engine_writer.h"
#include "runtime/engine_limits.h"
#include "runtime/forced_kernels.h"
#include "runtime/kv_sizing.h"
#include "runtime/model_instance.h"
#include "runtime/requests/request_check.h"
#include "runtime/speculation/lookahead.h"
#include "runtime/speculation/ngram_proposer.h"
#include "runtime/speculation/open_proposer.h"

namespace nereid {
namespace runtime {
namespace {

// Null: no tokenizer, or an unsupported one. Only stop strings and grammars need it.
std::shared_ptr<const text::Tokenizer> load_tokenizer(const std::filesystem::path& dir) {
  if (!text::Tokenizer::has_files(dir)) return nullptr;
  auto tokenizer = text::Tokenizer::load(dir);
  if (tokenizer.ok()) return *std::move(tokenizer);
  log_warn("no stop strings for this model: {}", message(tokenizer.status()));
  return nullptr;
}

void log_device(const io::ModelFacts& facts, const DeviceInfo& device) {
  const std::string kernels =
      device.kind == DeviceKind::kCpu
          ? fmt::format("{} threads, {} kernels", device.num_units, name_of(device.isa))
          : fmt::format("sm{} kernels", device.sm);
  log_info("model {} ({}) on {}: {}, {}", facts.name, facts.architecture, device.id(), device.name,
           kernels);
}

Status load_adapters(const std::filesystem::path& engine, std::vector<io::AdapterModule> modules,
                     const ExecutorConfig& config, ModelInstance& model) {
  ASSIGN_OR_RETURN(auto base, BaseWeights::open(engine));
  const exec::RunnerLimits& limits = model.runner->limits();
  model.adapters = std::make_unique<AdapterCache>(
      AdapterBounds{std::move(modules), config.peft_cache.max_adapter_size, std::move(base),
                    limits.adapter_page_numbers, limits.num_adapter_pages},
      static_cast<size_t>(config.peft_cache.host_cache_bytes));
  for (const LoraDirectory& directory : config.lora_directories)
    RETURN_IF_ERROR(model.adapters->load(directory));
  if (const auto& folder = config.peft_cache.prefetch_dir; !folder.empty())
    RETURN_IF_ERROR(model.adapters->prefetch(folder));
  return ok();
}

// Makes the runner and the draft proposer.
Status make_runners(io::EngineFile file, const std::filesystem::path& model_dir,
                    const ExecutorConfig& config, const kernels::KernelChoices& forced,
                    ModelInstance& model) {
  Device& device = *model.device.device;
  const io::Plan& plan = file.plan();
  exec::RunnerLimits limits;
  if (wants_draft_engines(model_dir, config)) {
    ASSIGN_OR_RETURN(DraftEngines drafts, DraftEngines::open(model, file, config));
    ASSIGN_OR_RETURN(limits, size_kv_cache(plan, config, device, 0, drafts.want_all_states()));
    ASSIGN_OR_RETURN(const size_t bytes, drafts.bytes(config, limits, device.info()));
    ASSIGN_OR_RETURN(limits, size_kv_cache(plan, config, device, bytes, drafts.want_all_states()));
    ASSIGN_OR_RETURN(model.proposer, std::move(drafts).load(config, limits, model.device));
  } else {
    ASSIGN_OR_RETURN(limits, size_kv_cache(plan, config, device));
    if (config.speculation == "ngram" || config.speculation == "auto")
      model.proposer = std::make_unique<NgramProposer>(static_cast<size_t>(config.ngram_pool_size));
    else if (config.speculation == "lookahead")
      model.proposer = std::make_unique<Lookahead>(config.lookahead, plan.model.vocab_size);
  }
  const std::string_view proposer = model.proposer ? model.proposer->name() : "none";
  if (config.ngram_pool_size > 0 && proposer != "ngram")
    return invalid_argument("ngram_pool_size: {} needs speculation ngram; here it is {}",
                            config.ngram_pool_size, proposer);
  limits.has_trees = model.proposer && model.proposer->makes_trees();
  ASSIGN_OR_RETURN(model.runner, exec::make_runner(std::move(file), device, model.device.registry,
                                                   limits, forced));
  if (config.typical_acceptance > 0 && !model.runner->weighs_drafts())
    return invalid_argument("typical_acceptance: {} is not allowed on {}, only 0",
                            config.typical_acceptance, device.info().id());
  return ok();
}

}  // namespace

ModelInstance::~ModelInstance() {
  if (device.device && device.device->health().is_hung())
    keep_for_ever(std::make_shared<ModelInstance>(std::move(*this)));
}

StatusOr<convert::BuildOptions> build_options(const std::filesystem::path& model_dir,
                                              const ExecutorConfig& config,
                                              const kernels::OpenedDevice& device) {
  convert::BuildOptions build;
  build.cache_dir = config.cache_dir;
  ASSIGN_OR_RETURN(build.compile.forced,
                   forced_kernels_of(config, device.registry, device.device->info()));
  RETURN_IF_ERROR(convert::read_weight_formats(config.weights, config.head_weights, build.compile));
  build.compile.adapters = config.enable_lora;
  build.compile.context = config.max_sequence_length;
  ASSIGN_OR_RETURN(build.compile.hidden_layers, layers_read_by_drafts(model_dir, config));
  build.random_weights = config.random_weights;
  build.measure_on = device.device.get();
  return build;
}

StatusOr<ModelInstance> open_model(const std::filesystem::path& model_dir,
                                   const ExecutorConfig& config) {
  ModelInstance model;
  ASSIGN_OR_RETURN(
      model.device,
      kernels::open_device(config.device, {.num_threads = config.num_threads, .isa = config.isa}));
  Device& device = *model.device.device;
  device.health().set_timeout(std::chrono::seconds(config.device_timeout_secs));
  ASSIGN_OR_RETURN(const convert::BuildOptions build,
                   build_options(model_dir, config, model.device));
  ASSIGN_OR_RETURN(const auto engine,
                   convert::ensure_engine(model_dir, model.device.registry, device.info(), build));
  const io::MemoryEngineCloser closer(engine);  // for the further openings in this function
  // Weights were verified or just written by ensure_engine().
  ASSIGN_OR_RETURN(io::EngineFile file, io::EngineFile::open(engine, io::Verify::kHeader));
  const io::ModelFacts facts = file.plan().model;
  std::vector<io::AdapterModule> modules = file.plan().modules;
  if (config.enable_lora && modules.empty())
    return invalid_argument(
        "enable_lora: the engine was built without adapters, or its model has no product that "
        "takes them");
  log_device(facts, device.info());
  ASSIGN_OR_RETURN(const auto tokenizer_dir, convert::tokenizer_dir(engine));
  model.tokenizer = load_tokenizer(tokenizer_dir);
  model.default_end_ids = facts.end_ids;
  if (models::scores_texts(facts.architecture) && !config.random_weights) {
    ASSIGN_OR_RETURN(model.score_head, models::read_score_head(model_dir, facts.hidden_size));
  }
  RETURN_IF_ERROR(make_runners(std::move(file), model_dir, config, build.compile.forced, model));
  if (config.enable_lora) RETURN_IF_ERROR(load_adapters(engine, std::move(modules), config, model));
  return model;
}

}  // namespace runtime

absl::StatusOr<std::unique_ptr<Executor>> Executor::create(const std::filesystem::path& model_dir,
                                                           const ExecutorConfig& config) {
  ExecutorConfig limited = config;
  ASSIGN_OR_RETURN(const convert::EngineLimits limits,
                   runtime::apply_engine_limits(model_dir, limited));
  RETURN_IF_ERROR(runtime::check_config(limited));
  ASSIGN_OR_RETURN(runtime::ModelInstance model, runtime::open_model(model_dir, limited));
  model.limits = limits;
  return runtime::make_executor(std::move(model), limited);
}

}  // namespace nereid
