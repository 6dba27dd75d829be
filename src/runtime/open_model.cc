// Opens a model directory as a ModelInstance; Executor::create().
#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/gpus.h"
#include "base/log.h"
#include "convert/engine_dir.h"
#include "exec/encoder_pass.h"
#include "exec/rank_group.h"
#include "io/engine_file.h"
#include "io/engine_writer.h"
#include "models/encoder.h"
#include "runtime/engine_limits.h"
#include "runtime/forced_kernels.h"
#include "runtime/instances/instance_configs.h"
#include "runtime/instances/instance_group.h"
#include "runtime/kv_sizing.h"
#include "runtime/model_instance.h"
#include "runtime/ranks.h"
#include "runtime/ranks/launched_job.h"
#include "runtime/ranks/rank_processes.h"
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
  std::string id = device.id();
  std::string kernels =
      fmt::format("{} threads, {} kernels", device.num_units, name_of(device.isa));
  if (device.kind == DeviceKind::kCuda) {
    if (const std::string uuid = gpu_uuid(id); !uuid.empty()) id += " (" + uuid + ")";
    kernels = fmt::format("sm{} kernels", device.sm);
  }
  log_info("model {} ({}) on {}: {}, {}", facts.name, facts.architecture, id, device.name, kernels);
}

Status load_adapters(const std::filesystem::path& engine, std::vector<io::AdapterModule> modules,
                     const ExecutorConfig& config, ModelInstance& model) {
  // An encoder-decoder model's engine has a part of the matrices, so it has no DoRA.
  std::shared_ptr<const BaseWeights> base;
  if (model.encoder.max_length == 0) {
    ASSIGN_OR_RETURN(base, BaseWeights::open(engine));
  }
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

// The engines of all ranks.
struct RankEngines {
  std::vector<io::EngineFile> files;
  std::vector<io::EngineFile> encoders;  // none: the model has no encoder
  std::vector<const kernels::OpenedDevice*> devices;
  std::shared_ptr<RankProcesses> processes;  // of ranks from first_process on; null: none
  int32_t first_process = 1;
  int32_t num_unopened = 0;  // see RankPart

  const io::Plan& plan() const { return files[0].plan(); }
  std::optional<io::EngineFile> take_encoder(size_t rank) {
    if (encoders.empty()) return std::nullopt;
    return std::move(encoders[rank]);
  }
  // Where the rank computes.
  Device& device(size_t rank) const {
    const auto r = static_cast<int32_t>(rank);
    return processes && r >= first_process ? processes->device(r) : *devices[rank]->device;
  }
};

bool is_orchestrated(const ExecutorConfig& config) { return config.process_mode == "orchestrator"; }

StatusOr<exec::RunnerLimits> size_ranks(const RankEngines& ranks, const ExecutorConfig& config,
                                        size_t bytes_beside = 0, bool all_states = false) {
  std::vector<RankPart> parts;
  for (size_t r = 0; r < ranks.files.size(); ++r)
    parts.push_back({&ranks.files[r].plan(), &ranks.device(r), ranks.num_unopened});
  return size_kv_cache(parts, config, bytes_beside, all_states);
}

// Starts the processes of ranks, or takes launched ones. `health`: of the group.
Status start_processes(const ExecutorConfig& config, Health& health, RankEngines& ranks) {
  const io::Mapping& mapping = ranks.plan().mapping;
  ASSIGN_OR_RETURN(std::vector<int32_t> participants, launched_participants(config, mapping));
  const bool is_orchestrator = is_orchestrated(config);
  if (!is_orchestrator && !config.rank_processes && participants.empty()) return ok();
  const int32_t num_own = participants.empty()
                              ? (is_orchestrator ? 0 : 1)
                              : mapping.world() - static_cast<int32_t>(participants.size());
  RankProcessOptions options{.tp = mapping.tp,
                             .pp = mapping.pp,
                             .first = num_own,
                             .participants = std::move(participants),
                             .isa = config.isa,
                             .device_timeout = std::chrono::seconds(config.device_timeout_secs)};
  for (int32_t r = 0; r < num_own; ++r)
    options.local.push_back(&ranks.devices[static_cast<size_t>(r)]->device->health());
  ASSIGN_OR_RETURN(const auto job, launched_job());
  const bool has_hosts = job && job->hosts;
  // Launched processes have the cores that they are bound to.
  const bool is_share = options.participants.empty() || config.num_threads > 0;
  for (size_t r = 0; r < ranks.devices.size(); ++r) {
    const DeviceInfo& info = ranks.devices[r]->device->info();
    const bool is_cpu = info.kind == DeviceKind::kCpu;
    if (!is_cpu && config.rank_processes)
      return invalid_argument("rank_processes: true is for ranks on CPUs; rank {} is on {}", r,
                              info.id());
    if (!is_cpu && mapping.world() > 1 && has_hosts)
      return unsupported(
          "hosts: ranks on GPUs exchange through the memory of one process; rank {} is on {}, only "
          "cpu is allowed",
          r, info.id());
    if (!is_cpu && mapping.world() > 1) {
      log_info(
          "the {} ranks on GPUs are threads of this process, since they exchange through its "
          "memory{}",
          mapping.world(),
          options.participants.empty() ? "" : "; the launched processes wait for its end");
      return ok();
    }
    options.devices.push_back(info.id());
    options.num_threads.push_back(is_cpu && is_share ? info.num_units : 0);
  }
  if (config.expert_load)
    return unsupported(
        "expert_load: true is for ranks that are threads; here they are processes "
        "(rank_processes, process_mode orchestrator, or launched ones)");
  ranks.first_process = options.first;
  ASSIGN_OR_RETURN(ranks.processes, RankProcesses::start(options, &health));
  return ok();
}

// Ranks of which those from first_process on are processes.
StatusOr<std::unique_ptr<exec::Runner>> load_processes(RankEngines ranks,
                                                       const exec::RunnerLimits& limits,
                                                       const kernels::KernelChoices& forced,
                                                       Health& health) {
  if (!ranks.encoders.empty())
    return unsupported(
        "rank_processes, process_mode: ranks of models with an encoder are threads; allowed are "
        "rank_processes false and process_mode leader without launched processes");
  RankProcesses& processes = *ranks.processes;
  const auto first = static_cast<size_t>(ranks.first_process);
  std::vector<std::filesystem::path> engines;
  for (const io::EngineFile& file : ranks.files) engines.push_back(file.path());
  RETURN_IF_ERROR(processes.begin_load(engines, limits, forced));
  std::vector<const Health*> remote;
  for (size_t r = first; r < engines.size(); ++r) remote.push_back(&ranks.device(r).health());
  std::vector<exec::RankGroup::Rank> runners;
  for (size_t r = 0; r < first; ++r) {
    const kernels::OpenedDevice& own = *ranks.devices[r];
    std::vector<const Health*> peers = remote;
    for (size_t other = 0; other < first; ++other)
      if (other != r) peers.push_back(&ranks.devices[other]->device->health());
    own.device->health().set_peers(std::move(peers));
    ASSIGN_OR_RETURN(exec::RankComms comms, processes.comms(static_cast<int32_t>(r)));
    auto runner = exec::make_runner(std::move(ranks.files[r]), *own.device, own.registry, limits,
                                    forced, std::move(comms));
    if (!runner.ok()) return annotate(runner.status(), fmt::format("rank {}", r));
    runners.push_back({.runner = *std::move(runner), .device = own.device.get()});
  }
  ASSIGN_OR_RETURN(auto others, processes.finish_load());
  for (auto& other : others) {
    const size_t rank = runners.size();
    runners.push_back({.runner = std::move(other), .device = &ranks.device(rank)});
    log_info("rank {}: process {}", rank, processes.process(static_cast<int32_t>(rank)));
  }
  return std::make_unique<exec::RankGroup>(std::move(runners), health);
}

// `health`: of the group; null: one rank.
StatusOr<std::unique_ptr<exec::Runner>> make_rank_runner(RankEngines ranks,
                                                         const ExecutorConfig& config,
                                                         const exec::RunnerLimits& limits,
                                                         const kernels::KernelChoices& forced,
                                                         Health* health) {
  if (!health)
    return exec::make_runner(std::move(ranks.files[0]), *ranks.devices[0]->device,
                             ranks.devices[0]->registry, limits, forced, {}, nullptr,
                             ranks.take_encoder(0));
  if (ranks.processes) return load_processes(std::move(ranks), limits, forced, *health);
  ASSIGN_OR_RETURN(std::vector<exec::RankComms> comms,
                   join_ranks(config, ranks.plan().mapping, ranks.devices));
  // Replicated products (routers) have equal bits on all tensor ranks by the same algorithms.
  const auto tp = static_cast<size_t>(ranks.plan().mapping.tp);
  std::vector<exec::RankGroup::Rank> runners;
  kernels::AlgorithmChoices choices;
  for (size_t r = 0; r < comms.size(); ++r) {
    Device& device = *ranks.devices[r]->device;
    if (r % tp == 0) choices = ranks.files[r].plan().choices;
    auto runner =
        exec::make_runner(std::move(ranks.files[r]), device, ranks.devices[r]->registry, limits,
                          forced, std::move(comms[r]), &choices, ranks.take_encoder(r));
    if (!runner.ok()) return annotate(runner.status(), fmt::format("rank {}", r));
    runners.push_back({*std::move(runner), &device,
                       /*has_thread=*/device.info().kind != DeviceKind::kCpu});
  }
  return std::make_unique<exec::RankGroup>(std::move(runners), *health);
}

// Makes the runner and the draft proposer. `whole`: the engine of the whole model, which draft
// heads read; null: that of the only rank.
Status make_runners(RankEngines ranks, const io::EngineFile* whole,
                    const std::filesystem::path& model_dir, const ExecutorConfig& config,
                    const kernels::KernelChoices& forced, bool has_trees, ModelInstance& model) {
  if (model.ranks_health) RETURN_IF_ERROR(start_processes(config, *model.ranks_health, ranks));
  exec::RunnerLimits limits;
  if (wants_draft_engines(model_dir, config)) {
    ASSIGN_OR_RETURN(DraftEngines drafts,
                     DraftEngines::open(model, whole ? *whole : ranks.files[0], config));
    const bool all_states = drafts.want_all_states();
    ASSIGN_OR_RETURN(limits, size_ranks(ranks, config, 0, all_states));
    ASSIGN_OR_RETURN(const size_t bytes, drafts.bytes(config, limits, model.device.device->info()));
    ASSIGN_OR_RETURN(limits, size_ranks(ranks, config, bytes, all_states));
    ASSIGN_OR_RETURN(model.proposer, std::move(drafts).load(config, limits, model.device));
  } else {
    ASSIGN_OR_RETURN(limits, size_ranks(ranks, config));
    if (!ranks.encoders.empty()) {
      size_t bytes = 0;
      for (const exec::MemoryItem& item :
           exec::encoder_memory_table(ranks.encoders[0].plan(), limits))
        bytes += item.bytes;
      ASSIGN_OR_RETURN(limits, size_ranks(ranks, config, bytes));
    }
    if (config.speculation == "ngram" || config.speculation == "auto")
      model.proposer = std::make_unique<NgramProposer>(static_cast<size_t>(config.ngram_pool_size));
    else if (config.speculation == "lookahead")
      model.proposer = std::make_unique<Lookahead>(config.lookahead, ranks.plan().model.vocab_size);
  }
  const std::string_view proposer = model.proposer ? model.proposer->name() : "none";
  if (config.ngram_pool_size > 0 && proposer != "ngram")
    return invalid_argument("ngram_pool_size: {} needs speculation ngram; here it is {}",
                            config.ngram_pool_size, proposer);
  limits.has_last = ranks.plan().model.pictures.attends_ahead();
  limits.has_trees = has_trees || (model.proposer && model.proposer->makes_trees());
  ASSIGN_OR_RETURN(model.runner, make_rank_runner(std::move(ranks), config, limits, forced,
                                                  model.ranks_health.get()));
  if (config.typical_acceptance > 0 && !model.runner->weighs_drafts())
    return invalid_argument("typical_acceptance: {} is not allowed on {}, only 0",
                            config.typical_acceptance, model.device.device->info().id());
  return ok();
}

// Opens the devices of all ranks. tensor_parallel auto: sets the mapping's tp.
Status open_ranks(const std::filesystem::path& model_dir, const ExecutorConfig& config,
                  io::Mapping& mapping, ModelInstance& model) {
  if (mapping.tp == 0) {
    ASSIGN_OR_RETURN(mapping.tp, fewest_tensor_ranks(model_dir, config, mapping));
    log_info("tensor_parallel auto: {} ranks", mapping.tp);
  }
  ASSIGN_OR_RETURN(std::vector<kernels::OpenedDevice> devices,
                   open_devices(config, mapping.world()));
  model.device = std::move(devices[0]);
  for (size_t r = 1; r < devices.size(); ++r) model.devices.push_back(std::move(devices[r]));
  model.num_stages = mapping.pp;
  if (mapping.is_single() && !is_orchestrated(config)) return ok();
  model.ranks_health = std::make_unique<Health>([count = mapping.world()] {
    return fmt::format("the group of {} rank{}", count, count == 1 ? "" : "s");
  });
  model.ranks_health->set_timeout(std::chrono::seconds(config.device_timeout_secs));
  return ok();
}

// Unimplemented: an option that models on several ranks do not have.
Status check_ranks(const io::Mapping& mapping, const convert::BuildOptions& build) {
  if (mapping.is_single()) return ok();
  if (mapping.pp > 1 && !build.compile.hidden_layers.empty())
    return unsupported(
        "draft_model: an EAGLE-3 head reads layers of all stages; it needs pipeline_parallel 1, "
        "not {}",
        mapping.pp);
  return ok();
}

// The engine of a rank, built or found. One in memory is closed with `closers`.
StatusOr<std::filesystem::path> ensure(const std::filesystem::path& model_dir,
                                       const kernels::OpenedDevice& opened,
                                       const io::Mapping& mapping, convert::BuildOptions build,
                                       std::deque<io::MemoryEngineCloser>& closers) {
  build.compile.mapping = mapping;
  build.measure_on = mapping.tensor_rank() == 0 ? opened.device.get() : nullptr;
  ASSIGN_OR_RETURN(auto engine, convert::ensure_engine(model_dir, opened.registry,
                                                       opened.device->info(), build));
  closers.emplace_back(engine);
  return engine;
}

// Opens an engine, whose weights were verified or just written by ensure().
StatusOr<io::EngineFile> open_part(const std::filesystem::path& engine,
                                   const io::Mapping& mapping) {
  ASSIGN_OR_RETURN(io::EngineFile file, io::EngineFile::open(engine, io::Verify::kHeader));
  if (const io::Mapping& built = file.plan().mapping; built != mapping)
    return invalid_argument(
        "tensor_parallel {}, pipeline_parallel {}, expert_parallel {}: the engine {} was built for "
        "{}; allowed are these, or the checkpoint",
        mapping.tp, mapping.pp, mapping.ep, engine.string(), io::text_of(built));
  return file;
}

// NotFound: a decoder's engine without its encoder's.
StatusOr<std::filesystem::path> encoder_of(const std::filesystem::path& model_dir) {
  const std::filesystem::path decoder = convert::given_engine(model_dir);
  std::filesystem::path dir = convert::encoder_path(model_dir);
  if (decoder.empty() || !convert::given_engine(dir).empty()) return dir;
  return not_found(
      "{}: is missing; {} is the decoder of an encoder-decoder model, whose encoder lies beside it",
      (dir / "rank0.engine").string(), decoder.string());
}

// InvalidArgument: not the halves of one model.
Status check_halves(const io::EngineFile& encoder, const io::EngineFile& decoder) {
  const io::ModelFacts &a = encoder.plan().model, &b = decoder.plan().model;
  const auto text = [](const io::ModelFacts& facts) {
    return fmt::format("{} with {} tokens and {} layers of cross attention", facts.architecture,
                       facts.vocab_size, facts.num_cross_layers);
  };
  bool fits = a.is_encoder && text(a) == text(b);
  const auto &own = encoder.plan().modules, &all = decoder.plan().modules;
  if (own.size() > all.size() || (own.empty() != all.empty()))
    return invalid_argument(
        "{} has {} modules of adapters, {} {}; build both with the same --lora_plugin",
        encoder.path().string(), own.size(), decoder.path().string(), all.size());
  for (const io::Call& call : encoder.plan().calls)
    if (const auto* store = std::get_if<kernels::ids::StoreKv>(&call.op))
      fits &= store->heads.dim == b.head_dim;
  if (fits) return ok();
  return invalid_argument("{}: is of {}{}, {} of {}; build both of one checkpoint",
                          encoder.path().string(), a.is_encoder ? "" : "no encoder, but of ",
                          text(a), decoder.path().string(), text(b));
}

// Builds or finds the encoders of a model's ranks. Unimplemented: an option without encoders.
Status open_encoders(const std::filesystem::path& model_dir, const ExecutorConfig& config,
                     const convert::BuildOptions& build,
                     std::deque<io::MemoryEngineCloser>& closers, RankEngines& ranks,
                     ModelInstance& model) {
  const auto refuse = [](std::string_view option, auto value, std::string_view allowed) {
    return unsupported("{}: {} is not for models with an encoder; allowed is {}", option, value,
                       allowed);
  };
  const io::ModelFacts& facts = ranks.plan().model;
  const bool takes_pictures = facts.pictures.patch_width > 0;
  io::Mapping mapping = ranks.plan().mapping;
  if (takes_pictures && mapping.pp > 1) return refuse("pipeline_parallel", mapping.pp, "1");
  if (!config.draft_model.empty())
    return refuse("draft_model", config.draft_model.string(), "none");
  convert::BuildOptions own = build;
  own.compile.half = models::Half::kEncoder;
  own.compile.head = {};
  if (takes_pictures) own.compile.adapters = false;
  ASSIGN_OR_RETURN(const auto dir, encoder_of(model_dir));
  for (mapping.rank = 0; mapping.rank < mapping.world(); ++mapping.rank) {
    const auto& opened = *ranks.devices[static_cast<size_t>(mapping.rank)];
    ASSIGN_OR_RETURN(const auto path, ensure(dir, opened, mapping, own, closers));
    ASSIGN_OR_RETURN(io::EngineFile file, open_part(path, mapping));
    if (!takes_pictures)
      RETURN_IF_ERROR(check_halves(file, ranks.files[static_cast<size_t>(mapping.rank)]));
    ranks.encoders.push_back(std::move(file));
  }
  model.pictures.facts = facts.pictures;
  if (takes_pictures) return ok();
  model.encoder.decoder_start_id = facts.decoder_start_id;
  model.encoder.forced_bos_id = facts.forced_bos_id;
  if (!facts.reads_features) return ok();
  const io::Plan& plan = ranks.encoders[0].plan();
  for (const io::Call& call : plan.calls)
    if (const auto* embed = std::get_if<kernels::ids::Embed>(&call.op))
      model.encoder.feature_width = static_cast<int32_t>(
          plan.weights[static_cast<size_t>(embed->table)].k / models::kFramesPerRow);
  return ok();
}

}  // namespace

ModelInstance::~ModelInstance() {
  if (device.device && health().is_hung())
    keep_for_ever(std::make_shared<ModelInstance>(std::move(*this)));
}

StatusOr<convert::BuildOptions> build_options(const std::filesystem::path& model_dir,
                                              const ExecutorConfig& config,
                                              const kernels::OpenedDevice& device) {
  convert::BuildOptions build;
  build.cache_dir = config.cache_dir;
  ASSIGN_OR_RETURN(build.compile.forced,
                   forced_kernels_of(config, device.registry, device.device->info()));
  RETURN_IF_ERROR(convert::read_weight_formats(config.weights, config.head_weights,
                                               config.expert_weights, build.compile));
  build.compile.adapters = config.enable_lora;
  build.compile.context = config.max_sequence_length;
  // Encoders of pictures run on ranks of one stage that are threads; otherwise the model's text
  // part is served.
  build.compile.takes_pictures = config.pipeline_parallel <= 1 && !config.rank_processes &&
                                 config.process_mode == "leader" && config.draft_model.empty();
  ASSIGN_OR_RETURN(build.compile.hidden_layers, layers_read_by_drafts(model_dir, config));
  build.random_weights = config.random_weights;
  build.measure_on = device.device.get();
  return build;
}

// Sets what the runner's limits allow of pictures.
void limit_pictures(const exec::RunnerLimits& limits, ModelInstance& model) {
  io::PictureFacts& pictures = model.pictures.facts;
  pictures.max_frames = std::min(pictures.max_frames, exec::max_picture_parts(pictures));
  const int32_t frame = pictures.grid * pictures.grid + pictures.class_tokens;
  model.pictures.max_patches =
      pictures.grid > 0 ? limits.max_encoder_length / frame * pictures.grid * pictures.grid
                        : limits.max_encoder_length;
  model.pictures.has_components = limits.has_components;
  model.pictures.max_positions = limits.max_sequence_length;
}

StatusOr<ModelInstance> open_model(const std::filesystem::path& model_dir,
                                   const ExecutorConfig& config, bool has_trees,
                                   int32_t num_unopened) {
  ModelInstance model;
  ASSIGN_OR_RETURN(io::Mapping mapping, mapping_of(model_dir, config));
  RETURN_IF_ERROR(open_ranks(model_dir, config, mapping, model));
  RETURN_IF_ERROR(launched_participants(config, mapping).status());  // before engines are built
  ASSIGN_OR_RETURN(const convert::BuildOptions build,
                   build_options(model_dir, config, model.device));
  RETURN_IF_ERROR(check_ranks(mapping, build));
  std::deque<io::MemoryEngineCloser> closers;  // for the further openings in this function
  std::vector<std::filesystem::path> engines;
  RankEngines ranks;
  ranks.num_unopened = num_unopened;
  for (int32_t r = 0; r < mapping.world(); ++r) {
    mapping.rank = r;
    ranks.devices.push_back(r == 0 ? &model.device : &model.devices[static_cast<size_t>(r) - 1]);
    ASSIGN_OR_RETURN(auto path, ensure(model_dir, *ranks.devices.back(), mapping, build, closers));
    ASSIGN_OR_RETURN(io::EngineFile file, open_part(path, mapping));
    ranks.files.push_back(std::move(file));
    engines.push_back(std::move(path));
  }
  const io::ModelFacts facts = ranks.plan().model;
  if (facts.encoder_positions > 0)
    RETURN_IF_ERROR(open_encoders(model_dir, config, build, closers, ranks, model));
  model.plans.push_back(ranks.plan());
  if (!ranks.encoders.empty()) model.plans.push_back(ranks.encoders[0].plan());
  std::vector<io::AdapterModule> modules = ranks.plan().modules;
  if (config.enable_lora && modules.empty())
    return invalid_argument(
        "enable_lora: the engine was built without adapters, or its model has no product that "
        "takes them");
  for (const kernels::OpenedDevice* opened : ranks.devices)
    log_device(facts, opened->device->info());
  ASSIGN_OR_RETURN(const auto tokenizer_dir, convert::tokenizer_dir(engines[0]));
  model.tokenizer = load_tokenizer(tokenizer_dir);
  model.default_end_ids = facts.end_ids;
  if (models::scores_texts(facts.architecture) && !config.random_weights) {
    ASSIGN_OR_RETURN(model.score_head, models::read_score_head(model_dir, facts.hidden_size));
  }
  // Draft heads share the model's embedding and head; DoRA reads the rows of its products.
  std::optional<io::EngineFile> whole;
  if (!mapping.is_single() && (config.enable_lora || wants_draft_engines(model_dir, config))) {
    ASSIGN_OR_RETURN(engines[0], ensure(model_dir, model.device, {}, build, closers));
    ASSIGN_OR_RETURN(whole, open_part(engines[0], {}));
  }
  RETURN_IF_ERROR(make_runners(std::move(ranks), whole ? &*whole : nullptr, model_dir, config,
                               build.compile.forced, has_trees, model));
  const exec::RunnerLimits& limits = model.runner->limits();
  if (facts.pictures.patch_width > 0)
    limit_pictures(limits, model);
  else if (facts.num_cross_layers > 0)
    model.encoder.max_length = limits.max_encoder_length;
  if (config.enable_lora)
    RETURN_IF_ERROR(load_adapters(engines[0], std::move(modules), config, model));
  return model;
}

}  // namespace runtime

absl::StatusOr<std::unique_ptr<Executor>> Executor::create(const std::filesystem::path& model_dir,
                                                           const ExecutorConfig& config) {
  ExecutorConfig limited = config;
  ASSIGN_OR_RETURN(const convert::EngineLimits limits,
                   runtime::apply_engine_limits(model_dir, limited));
  RETURN_IF_ERROR(runtime::check_config(limited));
  const int32_t count = std::max(limited.num_instances, 1);
  const auto num_lists =
      static_cast<int32_t>(std::max<size_t>(runtime::instance_lists(limited.devices).size(), 1));
  // Opens instance i: all in order at the start, later one whose device the others still have.
  const auto open = [model_dir, limits, num_lists, configs = runtime::instance_configs(limited),
                     was_open = std::make_shared<std::vector<char>>(static_cast<size_t>(count))](
                        int32_t i) -> StatusOr<std::unique_ptr<Executor>> {
    const ExecutorConfig& own = configs[static_cast<size_t>(i)];
    const int32_t num_unopened =
        (*was_open)[static_cast<size_t>(i)] != 0 ? 1 : own.num_instances - i / num_lists;
    ASSIGN_OR_RETURN(runtime::ModelInstance model,
                     runtime::open_model(model_dir, own, /*has_trees=*/false, num_unopened));
    model.limits = limits;
    auto executor = runtime::make_executor(std::move(model), own);
    (*was_open)[static_cast<size_t>(i)] = 1;
    return executor;
  };
  const bool restarts = runtime::restarts_failed(limited);
  if (count == 1 && !restarts) return open(0);
  return runtime::open_instances(open, {.num_instances = count, .restarts = restarts});
}

}  // namespace nereid
