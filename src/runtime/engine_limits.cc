#include "runtime/engine_limits.h"

#include "base/log.h"
#include "convert/engine_cache.h"
#include "io/engine_file.h"
#include "models/formats/trtllm_halves.h"

namespace nereid::runtime {
namespace {

constexpr int32_t kUsualBatchSize = 32, kUsualBeamWidth = 1, kUsualNumTokens = 2048;

void apply_limit(const char* name, int32_t limit, const std::filesystem::path& model,
                 int32_t& value) {
  if (value > limit)
    log_warn("{}: {} is more than the {} that {} was built with, which is used", name, value, limit,
             model.string());
  if (value == 0 || value > limit) value = limit;
}

// Whether `model` is a ready engine for CPUs.
StatusOr<bool> is_cpu_engine(const std::filesystem::path& model) {
  const std::filesystem::path engine = convert::given_engine(model);
  if (engine.empty()) return false;
  ASSIGN_OR_RETURN(const io::EngineFile file, io::EngineFile::open(engine, io::Verify::kPlan));
  return file.plan().device == "cpu";
}

}  // namespace

std::filesystem::path encoder_beside(const std::filesystem::path& decoder) {
  return models::folder_beside(models::decoder_folder(decoder), models::Half::kEncoder);
}

StatusOr<convert::EngineLimits> apply_engine_limits(const std::filesystem::path& model,
                                                    ExecutorConfig& config) {
  if (config.device == "auto") {
    ASSIGN_OR_RETURN(const bool is_for_cpu, is_cpu_engine(model));
    if (is_for_cpu) config.device = "cpu";
  }
  ASSIGN_OR_RETURN(const auto limits, convert::read_engine_limits(model));
  if (!limits) {
    for (const auto& [value, usual] : {std::pair(&config.max_batch_size, kUsualBatchSize),
                                       std::pair(&config.max_beam_width, kUsualBeamWidth),
                                       std::pair(&config.max_num_tokens, kUsualNumTokens)})
      if (*value == 0) *value = usual;
    return convert::EngineLimits();
  }
  apply_limit("max_batch_size", limits->max_batch_size, model, config.max_batch_size);
  apply_limit("max_num_tokens", limits->max_num_tokens, model, config.max_num_tokens);
  if (limits->max_encoder_input_len > 0)
    apply_limit("max_encoder_input_len", limits->max_encoder_input_len, model,
                config.max_encoder_input_len);
  if (config.max_beam_width > limits->max_beam_width)
    return invalid_argument("max_beam_width: {} is more than the {} that {} was built with",
                            config.max_beam_width, limits->max_beam_width, model.string());
  apply_limit("max_beam_width", limits->max_beam_width, model, config.max_beam_width);
  KvCacheConfig& kv = config.kv_cache;
  if (kv.tokens_per_block == KvCacheConfig().tokens_per_block && limits->tokens_per_block > 0)
    kv.tokens_per_block = limits->tokens_per_block;
  if (config.enable_lora && limits->max_lora_rank > 0)
    apply_limit("max_adapter_size", limits->max_lora_rank, model,
                config.peft_cache.max_adapter_size);
  const std::string& s = config.speculation;
  if (config.draft_model.empty() &&
      (s.empty() || s == "auto" || s == "medusa" || s == "redrafter" || s == "eagle"))
    config.draft_model = limits->draft_model;
  bool& chunked = config.scheduler.enable_chunked_context;
  if (!limits->paged_context && (kv.enable_block_reuse || chunked)) {
    log_warn(
        "{}: built without paged context attention; KV cache reuse and chunked context are off",
        model.string());
    kv.enable_block_reuse = kv.enable_partial_reuse = chunked = false;
  }
  return *limits;
}

}  // namespace nereid::runtime
