#include "backend/executor_config/executor_config.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "backend/common/check_parameters.h"
#include "backend/parameters/lora_modules.h"
#include "config/engine_options.h"
#include "runtime/instances/instance_configs.h"
#include "runtime/ranks.h"

namespace nereid::backend {
namespace {

// The options of the engine whose parameters say nothing but their value.
Status read_options(const ModelSettings& settings, const config::Options& options) {
  for (const config::Option& option : options) {
    if (!*option.parameter || option.has_own_reader) continue;
    const auto text = settings.parameter(option.parameter);
    if (!text) continue;
    const Status status = config::parse(option, *text);
    if (!status.ok())
      return annotate(status, fmt::format("model '{}': parameter '{}' is '{}'", settings.name,
                                          option.parameter, *text));
  }
  return ok();
}

// Reads a comma list of windows for the layers of a repeating pattern; only equal ones are
// accepted, since all layers share one.
Status read_window(const ModelSettings& settings, KvCacheConfig& out) {
  const char* key = "max_attention_window_size";
  auto text = settings.parameter(key);
  // The parameter's name in v0.6.
  if (!text) text = settings.parameter(key = "max_kv_cache_length");
  if (!text) return ok();
  std::optional<int32_t> window;
  for (size_t begin = 0; begin <= text->size();) {
    const size_t end = std::min(text->find(',', begin), text->size());
    const std::string part = text->substr(begin, end - begin);
    begin = end + 1;
    if (part.empty() && begin > text->size()) break;  // trailing comma
    int32_t value = 0;
    const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || stop != part.data() + part.size() || value < 1) {
      return invalid_argument("model '{}': parameter '{}' is '{}', expected integers above 0",
                              settings.name, key, *text);
    }
    if (window && *window != value) {
      return unsupported(
          "model '{}': parameter '{}' is '{}'; layers with different windows are "
          "not supported",
          settings.name, key, *text);
    }
    window = value;
  }
  out.max_attention_window = window.value_or(0);
  return ok();
}

Status check_onboarding(const ModelSettings& settings, const KvCacheConfig& kv) {
  ASSIGN_OR_RETURN(const bool onboard, settings.boolean("kv_cache_onboard_blocks", true));
  if (onboard || kv.host_cache_bytes == 0) return ok();
  return unsupported(
      "model '{}': parameter 'kv_cache_onboard_blocks' is false; host blocks are always copied "
      "back when they are reused",
      settings.name);
}

// The LoRA parameters; the runtime checks the values.
Status read_lora(const ModelSettings& settings, ExecutorConfig& config) {
  const auto modules = parse_lora_modules(settings.parameter("lora_modules").value_or(""));
  if (!modules.ok())
    return annotate(modules.status(), fmt::format("model '{}': parameter", settings.name));
  for (const LoraModule& module : *modules)
    config.lora_directories.push_back({module.task_id, module.folder});
  const bool loads = settings.parameter("lora_load_dir").has_value();
  if (!settings.parameter("enable_lora")) config.enable_lora = loads || !modules->empty();
  if (loads && !config.enable_lora)
    return invalid_argument("model '{}': parameter 'lora_load_dir' needs enable_lora",
                            settings.name);
  return ok();
}

// Sets the speculation mode, which describes the contents of the folder draft_model, or else
// of the engine's own.
Status read_speculative_mode(const ModelSettings& settings, const std::string& mode,
                             ExecutorConfig& config) {
  if (!config.speculation.empty() && config.speculation != mode && config.speculation != "auto")
    return invalid_argument(
        "model '{}': parameter 'decoding_mode' is '{}', 'speculation' is '{}'; allowed beside it "
        "are {} and auto",
        settings.name, mode, config.speculation, mode);
  if (config.speculation.empty()) config.speculation = mode;
  return ok();
}

// Reads the three parameters of lookahead decoding; the mode lookahead_decoding needs all of them.
Status read_lookahead(const ModelSettings& settings, const std::optional<std::string>& mode,
                      ExecutorConfig& config) {
  const bool is_mode = mode == "lookahead";
  if (is_mode && !config.speculation.empty() && config.speculation != "lookahead")
    return invalid_argument(
        "model '{}': parameter 'decoding_mode' is 'lookahead', 'speculation' is '{}'; allowed "
        "beside "
        "it is lookahead",
        settings.name, config.speculation);
  if (is_mode) config.speculation = "lookahead";
  for (const config::Option& option : config::lookahead_options(config.lookahead)) {
    const auto given = settings.parameter(option.parameter);
    if (given && config.speculation != "lookahead")
      return invalid_argument(
          "model '{}': parameter '{}' is '{}', which needs decoding_mode or speculation lookahead",
          settings.name, option.parameter, *given);
    if (!given && is_mode)
      return invalid_argument(
          "model '{}': Decoding mode is set to lookahead but lookahead parameters are not "
          "specified. "
          "'{}' is missing",
          settings.name, option.parameter);
  }
  return ok();
}

// Checks decoding_mode: sampling is chosen by each request, so without speculation the mode must
// only be one that requests may use.
Status read_decoding_mode(const ModelSettings& settings, ExecutorConfig& config) {
  const auto mode = settings.parameter("decoding_mode");
  RETURN_IF_ERROR(read_lookahead(settings, mode, config));
  if (!mode || *mode == "auto") return ok();
  const bool is_speculative = *mode == "medusa" || *mode == "redrafter" || *mode == "eagle";
  if (is_speculative) RETURN_IF_ERROR(read_speculative_mode(settings, *mode, config));
  bool known = *mode == "beam_search" || *mode == "lookahead" || is_speculative;
  for (const char* sampling : {"top_k", "top_p", "top_k_top_p"}) known = known || *mode == sampling;
  if (!known) {
    return invalid_argument(
        "model '{}': parameter 'decoding_mode' is '{}', expected one of auto, top_k, top_p, "
        "top_k_top_p, beam_search, medusa, redrafter, lookahead, eagle",
        settings.name, *mode);
  }
  if (*mode != "beam_search" && config.max_beam_width > 1) {
    return invalid_argument(
        "model '{}': parameter 'decoding_mode' is '{}' but 'max_beam_width' is {}; use beam_search "
        "or auto",
        settings.name, *mode, config.max_beam_width);
  }
  return ok();
}

// The GPUs of instance_group, for the ranks in order. 0, 1, ...: those that device auto may take,
// and what the core fills in for a model that names none.
void read_group_gpus(const ModelSettings& settings, ExecutorConfig& config) {
  bool is_usual = true;
  for (size_t i = 0; i < settings.gpus.size(); ++i)
    is_usual = is_usual && settings.gpus[i] == static_cast<int64_t>(i);
  if (!is_usual) config.devices = fmt::format("cuda:{}", fmt::join(settings.gpus, ","));
}

// Lists of GPUs of the ranks, in order, for each instance: "0,1;2,3".
Status read_gpu_ids(const ModelSettings& settings, ExecutorConfig& config) {
  const auto ids = settings.parameter("gpu_device_ids");
  if (settings.parameter("device") || settings.parameter("devices")) return ok();
  if (!ids) {
    read_group_gpus(settings, config);
    return ok();
  }
  // tensor_parallel auto: as many as there are.
  ASSIGN_OR_RETURN(const std::filesystem::path path, model_path(settings));
  const auto mapping = runtime::mapping_of(path, config);
  const bool is_given = mapping.ok() && mapping->tp > 0;
  for (const std::string& list : runtime::instance_lists(*ids)) {
    if (list.find_first_not_of("0123456789,") != std::string::npos || list.starts_with(',') ||
        list.ends_with(',') || list.find(",,") != std::string::npos || list.empty())
      return invalid_argument(
          "model '{}': parameter 'gpu_device_ids' is '{}'; allowed are numbers of GPUs, separated "
          "by ',', and ';' between the lists of instances",
          settings.name, *ids);
    const auto count = std::ranges::count(list, ',') + 1;
    if (is_given && count != mapping->world())
      return invalid_argument(
          "model '{}': parameter 'gpu_device_ids' is '{}': {} GPUs in '{}'; tensor_parallel * "
          "pipeline_parallel are {} ranks",
          settings.name, *ids, count, list, mapping->world());
    config.devices += fmt::format("{}cuda:{}", config.devices.empty() ? "" : ";", list);
  }
  return ok();
}

// The value of an environment variable that holds an integer; `unset` without it.
StatusOr<int64_t> read_environment(const char* name, int64_t unset) {
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == '\0') return unset;
  int64_t value = 0;
  const char* const end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error == std::errc() && stop == end) return value;
  return invalid_argument("environment variable {} is '{}', expected an integer", name, text);
}

// TRTLLM_ORCHESTRATOR is for all models of the process; the parameter process_mode for one.
Status read_process_mode(const ModelSettings& settings, ExecutorConfig& config) {
  ASSIGN_OR_RETURN(const int64_t orchestrator, read_environment("TRTLLM_ORCHESTRATOR", 0));
  ASSIGN_OR_RETURN(const int64_t spawns,
                   read_environment("TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES", 1));
  const bool by_environment = orchestrator != 0 && !settings.parameter("process_mode");
  if (by_environment) config.process_mode = "orchestrator";
  if (config.process_mode != "orchestrator") return ok();
  if (spawns == 0 && config.participant_ids.empty())
    return invalid_argument(
        "model '{}': Spawning of processes was disabled in orchestrator mode, but participant IDs "
        "is missing. Set parameter 'participant_ids' to the numbers of this model's processes, "
        "from 1 on",
        settings.name);
  if (by_environment && spawns != 0 && !config.participant_ids.empty())
    return invalid_argument(
        "model '{}': parameter 'participant_ids' is '{}', which needs "
        "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES=0: otherwise processes are started here",
        settings.name, config.participant_ids);
  return ok();
}

// instance_group counts instances where their resources are stated, or are processes of their own.
// Elsewhere one serves all of Triton's instances: several would multiply the model's memory.
void read_instances(const ModelSettings& settings, ExecutorConfig& config) {
  if (config.num_instances > 0) return;
  const bool has_lists = config.devices.find(';') != std::string::npos ||
                         config.participant_ids.find(';') != std::string::npos;
  if (has_lists || config.process_mode == "orchestrator")
    config.num_instances =
        static_cast<int32_t>(std::min<int64_t>(settings.num_instances, INT32_MAX));
}

}  // namespace

StatusOr<std::filesystem::path> model_path(const ModelSettings& settings) {
  for (const char* key : {"gpt_model_path", "engine_dir", "model_dir"}) {
    if (const auto path = settings.parameter(key)) return std::filesystem::path(*path);
  }
  return invalid_argument("model '{}': parameter 'gpt_model_path' is mandatory", settings.name);
}

bool is_v1(const ModelSettings& settings) {
  const auto type = settings.parameter("gpt_model_type");
  return type && (*type == "V1" || *type == "v1");
}

StatusOr<ExecutorConfig> read_executor_config(const ModelSettings& settings) {
  RETURN_IF_ERROR(check_parameters(settings, "tensorrtllm"));
  ExecutorConfig config = config::served_defaults();
  config.scheduler.capacity_policy = CapacityPolicy::kGuaranteedNoEvict;
  RETURN_IF_ERROR(read_options(settings, config::engine_options(config)));
  if (is_v1(settings)) config.scheduler.capacity_policy = CapacityPolicy::kStaticBatch;
  RETURN_IF_ERROR(read_process_mode(settings, config));
  RETURN_IF_ERROR(read_gpu_ids(settings, config));
  read_instances(settings, config);
  RETURN_IF_ERROR(read_window(settings, config.kv_cache));
  RETURN_IF_ERROR(check_onboarding(settings, config.kv_cache));
  RETURN_IF_ERROR(read_lora(settings, config));
  RETURN_IF_ERROR(read_decoding_mode(settings, config));
  return config;
}

StatusOr<ExecutorConfig> read_device_config(const ModelSettings& settings) {
  ExecutorConfig config = config::served_defaults();
  RETURN_IF_ERROR(read_options(settings, config::engine_options(config)));
  if (!settings.parameter("device") && !settings.parameter("devices"))
    read_group_gpus(settings, config);
  return config;
}

}  // namespace nereid::backend
