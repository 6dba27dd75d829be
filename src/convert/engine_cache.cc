#include "convert/engine_cache.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/gguf.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "convert/build_lock.h"
#include "convert/engine_key.h"
#include "convert/measure_kernels.h"
#include "convert/refit.h"
#include "convert/weight_source.h"
#include "io/engine_file.h"
#include "models/formats/openai_whisper.h"
#include "models/formats/trtllm.h"
#include "models/formats/trtllm_halves.h"

namespace nereid::convert {
namespace {

constexpr std::string_view kGivenName = "rank0.engine";

// Removes unfinished engines of killed builders.
void remove_unfinished(const std::filesystem::path& dir, const std::string& own_key) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    const size_t end = name.find(".engine.tmp.");
    if (end == std::string::npos) continue;
    const std::string key = name.substr(0, end);
    std::error_code ignored;
    if (key == own_key || BuildLock(dir, key, BuildLock::Wait::kNo).held())
      std::filesystem::remove(entry.path(), ignored);
  }
}

// Ok: the cache has a valid engine; NotFound: none.
Status check_cached(const std::filesystem::path& path, const std::string& key) {
  ASSIGN_OR_RETURN(const io::EngineFile file, io::EngineFile::open(path, io::Verify::kAuto));
  if (file.build_key() != key)
    return data_loss("{}: built for key {}, not {}", path.string(), file.build_key(), key);
  return ok();
}

bool is_cached(const std::filesystem::path& path, const std::string& key) {
  const Status status = check_cached(path, key);
  if (!status.ok() && status.code() != absl::StatusCode::kNotFound)
    log_warn("cached engine cannot be used and is rebuilt: {}", message(status));
  return status.ok();
}

Status write_weights_of(const Compiled& compiled, const io::Checkpoint* checkpoint,
                        io::EngineWriter& writer) {
  const std::unique_ptr<WeightSource> source =
      checkpoint ? checkpoint_source(*checkpoint) : random_source();
  RETURN_IF_ERROR(write_weights(compiled.graph, *source, writer));
  return writer.finish();
}

Status check_weights(const Compiled& compiled, const io::Checkpoint* checkpoint) {
  if (!checkpoint) return ok();
  return models::check_tensors(compiled.model.graph, *checkpoint, compiled.model.traits,
                               models::ignores_of(compiled.model));
}

// Builds in the cache, unless another builder finishes first; sets whether this one built it.
Status build_in(const std::filesystem::path& dir, const kernels::Registry& registry,
                Compiled& compiled, const io::Checkpoint* weights, const BuildOptions& options,
                BuildReport& out) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) return unavailable("{}: {}", dir.string(), error.message());
  const BuildLock lock(dir, out.key);
  if (lock.held()) remove_unfinished(dir, out.key);
  if (!options.rebuild && check_cached(out.path, out.key).ok()) return ok();
  out.built = true;
  if (options.measure_on)
    RETURN_IF_ERROR(measure_products(compiled.plan, registry, *options.measure_on));
  return write_engine(out.path, out.key, compiled, weights);
}

// Builds in memory, for this process only.
Status build_in_memory(const kernels::Registry& registry, Compiled& compiled,
                       const io::Checkpoint* weights, const BuildOptions& options,
                       BuildReport& out) {
  if (options.measure_on)
    RETURN_IF_ERROR(measure_products(compiled.plan, registry, *options.measure_on));
  RETURN_IF_ERROR(check_weights(compiled, weights));
  ASSIGN_OR_RETURN(io::EngineWriter writer,
                   io::EngineWriter::create_in_memory(compiled.plan, out.key));
  RETURN_IF_ERROR(write_weights_of(compiled, weights, writer));
  out.path = writer.path();
  out.built = true;
  return ok();
}

// The engine of a compiled model, from the cache or built into it.
StatusOr<std::filesystem::path> cached_engine(const std::filesystem::path& model_dir,
                                              const kernels::Registry& registry, Compiled compiled,
                                              const io::Checkpoint* weights,
                                              const DeviceInfo& device, const BuildOptions& options,
                                              BuildReport& out) {
  using Clock = std::chrono::steady_clock;
  out.key = engine_key(compiled, weights);
  const std::filesystem::path dir =
      (options.cache_dir.empty() ? cache_dir() : options.cache_dir) / "engines";
  out.path = dir / (out.key + ".engine");

  const Clock::time_point start = Clock::now();
  if (options.rebuild || !is_cached(out.path, out.key)) {
    log_info("building the engine of {} for {}: {} MiB of weights, {} calls", model_dir.string(),
             device.id(), compiled.plan.blob_bytes >> 20, compiled.plan.calls.size());
    const Status written = build_in(dir, registry, compiled, weights, options, out);
    if (absl::IsUnavailable(written)) {
      log_warn(
          "{}: the engine is built in memory, for this process alone (set NEREID_CACHE_DIR to a "
          "directory that can be written)",
          message(written));
      RETURN_IF_ERROR(build_in_memory(registry, compiled, weights, options, out));
    } else {
      RETURN_IF_ERROR(written);
    }
    if (out.built) out.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  }
  std::error_code error;
  out.bytes = std::filesystem::file_size(out.path, error);
  if (out.built) log_info("engine {} built in {:.2f} s", out.path.string(), out.seconds);
  return out.path;
}

// For an engine without weights, or with one rank's: builds one with all weights of its checkpoint.
StatusOr<std::filesystem::path> fill_given(const io::EngineFile& file,
                                           const kernels::Registry& registry,
                                           const DeviceInfo& device, const BuildOptions& options,
                                           BuildReport& report) {
  const auto filled = [&]() -> StatusOr<std::filesystem::path> {
    ASSIGN_OR_RETURN(Compiled compiled, match_weights(file.plan(), file.checkpoint(), registry,
                                                      device, options.compile.mapping));
    ASSIGN_OR_RETURN(const io::Checkpoint checkpoint,
                     models::open_checkpoint(compiled.model, file.checkpoint()));
    return cached_engine(file.checkpoint(), registry, std::move(compiled), &checkpoint, device,
                         options, report);
  }();
  if (!filled.ok())
    return annotate(filled.status(),
                    fmt::format("{}: has {}", file.path().string(),
                                file.is_of_rank() ? "the weights of one rank" : "no weights"));
  const io::Mapping& mapping = options.compile.mapping;
  if (file.is_of_rank() && mapping.is_single())
    log_info("{}: the engines of all ranks are merged for {}", file.checkpoint(), device.id());
  else if (file.is_of_rank())
    log_info("{}: {} reads its parts of the engines of all ranks", file.checkpoint(),
             io::text_of(mapping));
  return filled;
}

// Whether the plan is for a CPU with fewer instructions.
bool is_for_less(const io::Plan& plan, const DeviceInfo& device) {
  if (device.kind != DeviceKind::kCpu) return false;
  for (int isa = 0; isa < static_cast<int>(device.isa); ++isa)
    if (isa_of(plan) == name_of(static_cast<Isa>(isa))) return true;
  return false;
}

StatusOr<std::filesystem::path> use_given(const std::filesystem::path& path,
                                          const kernels::Registry& registry,
                                          const DeviceInfo& device, const BuildOptions& options,
                                          BuildReport& report) {
  ASSIGN_OR_RETURN(const io::EngineFile file, io::EngineFile::open(path, io::Verify::kPlan));
  if (file.plan().device != name_of(device.kind))
    return invalid_argument("{}: built for device {}, not for {}", path.string(),
                            file.plan().device, name_of(device.kind));
  const io::PlanWeight* const head = head_of(file.plan());
  if (const auto& wanted = options.compile.weights; wanted) {
    const bool has = std::ranges::any_of(file.plan().weights, [&](const io::PlanWeight& w) {
      return &w != head && w.format == *wanted;
    });
    if (!has)
      return invalid_argument("{}: was built without weights of {}; build it from the checkpoint",
                              path.string(), kernels::text_of(*wanted));
  }
  if (const auto& wanted = options.compile.experts)
    for (const io::Call& call : file.plan().calls)
      if (const auto* experts = std::get_if<kernels::ids::ExpertLinear>(&call.op))
        if (const io::PlanWeight& w = file.plan().weights[static_cast<size_t>(experts->weight)];
            w.format != *wanted)
          return invalid_argument(
              "{}: was built with experts of {}, not of {}; build it from the checkpoint",
              path.string(), kernels::text_of(w.format), kernels::text_of(*wanted));
  if (const auto& wanted = options.compile.head; wanted && head && head->format != *wanted)
    return invalid_argument(
        "{}: was built with a head of {}, not of {}; build it from the "
        "checkpoint",
        path.string(), kernels::text_of(head->format), kernels::text_of(*wanted));
  if (const std::string_view other = measured_on(file.plan());
      !other.empty() && other != device.name)
    log_warn("{}: its kernels were measured on {}; this is {}: build it here for the fastest ones",
             path.string(), other, device.name);
  if (is_for_less(file.plan(), device))
    log_warn("{}: was built for isa {}, so its kernels are slow here: build it for {}",
             path.string(), isa_of(file.plan()), name_of(device.isa));
  if (!file.checkpoint().empty()) return fill_given(file, registry, device, options, report);
  RETURN_IF_ERROR(io::EngineFile::open(path, io::Verify::kAuto).status());
  report.path = path;
  report.key = file.build_key();
  return path;
}

}  // namespace

Status write_engine(const std::filesystem::path& path, const std::string& key,
                    const Compiled& compiled, const io::Checkpoint* checkpoint) {
  RETURN_IF_ERROR(check_weights(compiled, checkpoint));
  ASSIGN_OR_RETURN(io::EngineWriter writer, io::EngineWriter::create(path, compiled.plan, key));
  return write_weights_of(compiled, checkpoint, writer);
}

StatusOr<io::EngineFile> take_engine(const std::filesystem::path& path) {
  StatusOr<io::EngineFile> file = io::EngineFile::open(path, io::Verify::kHeader);
  io::close_memory_engine(path);
  return file;
}

Status write_rank_engines(const std::filesystem::path& dir, const std::string& key,
                          const Compiled& compiled, const io::Checkpoint& checkpoint,
                          int32_t workers) {
  const models::Model& model = compiled.model;
  RETURN_IF_ERROR(
      models::check_tensors(model.graph, checkpoint, model.traits, models::ignores_of(model)));
  // The files of an encoder-decoder model's other half are behind its own.
  const auto files =
      std::span(checkpoint.files()).first(static_cast<size_t>(model.ranks.num_files()));
  std::vector<Status> results(files.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t rank; (rank = next.fetch_add(1)) < files.size();) {
      const std::span<const std::byte> tensors = files[rank]->bytes();
      results[rank] = io::EngineWriter::write_rank(
          dir / models::rank_file_name(static_cast<int32_t>(rank), true), compiled.plan, key,
          static_cast<int32_t>(rank), tensors);
      forget_pages(tensors);
    }
  };
  {
    const auto wanted = static_cast<size_t>(std::max(workers, 1));
    std::vector<std::jthread> helpers;
    for (size_t i = 1; i < std::min(wanted, files.size()); ++i) helpers.emplace_back(work);
    work();
  }
  for (const Status& status : results) RETURN_IF_ERROR(status);
  return ok();
}

std::filesystem::path given_engine(const std::filesystem::path& path) {
  std::error_code error;
  if (is_gguf_path(path) || models::openai_whisper_file(path) == path) return {};
  if (std::filesystem::is_regular_file(path, error)) return path;
  const std::filesystem::path inside = models::decoder_folder(path) / kGivenName;
  return std::filesystem::is_regular_file(inside, error) ? inside : std::filesystem::path();
}

StatusOr<std::filesystem::path> ensure_engine(const std::filesystem::path& model_dir,
                                              const kernels::Registry& registry,
                                              const DeviceInfo& device, const BuildOptions& options,
                                              BuildReport* report) {
  BuildReport unused;
  BuildReport& out = report ? *report : unused;
  out = {};
  if (const std::filesystem::path given = given_engine(model_dir); !given.empty())
    return use_given(given, registry, device, options, out);
  ASSIGN_OR_RETURN(Compiled compiled, compile_model(model_dir, registry, device, options.compile));
  std::optional<io::Checkpoint> checkpoint;
  if (!options.random_weights) {
    ASSIGN_OR_RETURN(checkpoint, models::open_checkpoint(compiled.model, model_dir));
  }
  const io::Checkpoint* weights = checkpoint ? &*checkpoint : nullptr;
  return cached_engine(model_dir, registry, std::move(compiled), weights, device, options, out);
}

StatusOr<std::filesystem::path> ensure_engine(const std::filesystem::path& model_dir,
                                              const kernels::Registry& registry, Compiled compiled,
                                              const io::Checkpoint* checkpoint,
                                              const DeviceInfo& device,
                                              const BuildOptions& options) {
  BuildReport unused;
  return cached_engine(model_dir, registry, std::move(compiled), checkpoint, device, options,
                       unused);
}

}  // namespace nereid::convert
