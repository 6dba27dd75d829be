#include "exec/encoder_pass.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "exec/memory.h"

namespace nereid::exec {
namespace {

// Limits of the encoder's steps: inputs are rows, each with all its positions.
RunnerLimits encoder_limits(const RunnerLimits& decoder) {
  RunnerLimits limits{.max_rows = decoder.max_rows,
                      .max_tokens = decoder.max_encoder_tokens,
                      .max_sequence_length = decoder.max_encoder_length,
                      .block_tokens = decoder.block_tokens};
  limits.num_blocks[0] = decoder.max_encoder_tokens / decoder.block_tokens + decoder.max_rows;
  limits.depth = decoder.depth;
  limits.max_encoder_length = decoder.max_encoder_length;
  limits.max_encoder_tokens = decoder.max_encoder_tokens;
  limits.num_cross_blocks = decoder.num_cross_blocks;
  return limits;
}

std::vector<MemoryItem> memory_of(const io::Plan& plan, const RunnerLimits& own) {
  size_t cache = 0;
  for (const CacheGroup& group : cache_groups(plan, own))
    cache += KvLayout::of(group, own).block * static_cast<size_t>(own.num_blocks[0]);
  const size_t copies = static_cast<size_t>(own.depth) + 1;
  return {{"encoder weights", plan.blob_bytes},
          {"encoder activations", arena_bytes(plan, own, io::RowCount::kTokens) + cache},
          {"encoder step data", copies * StepData::max_bytes(own, 1)}};
}

int32_t embedding_width(const io::Plan& plan) {
  for (const io::Call& call : plan.calls)
    if (const auto* embed = std::get_if<kernels::ids::Embed>(&call.op))
      return static_cast<int32_t>(plan.weights[static_cast<size_t>(embed->table)].k);
  return 0;
}

}  // namespace

std::vector<MemoryItem> encoder_memory_table(const io::Plan& plan, const RunnerLimits& limits) {
  return memory_of(plan, encoder_limits(limits));
}

std::vector<MemoryItem> EncoderPass::memory() const { return memory_of(file_.plan(), limits_); }

StatusOr<std::unique_ptr<EncoderPass>> EncoderPass::create(io::EngineFile file,
                                                           const RunnerLimits& limits,
                                                           Device& device,
                                                           const kernels::Registry& registry,
                                                           const KvCache& cross, Exchange& exchange,
                                                           const io::Mapping& mapping) {
  if (!file.plan().model.is_encoder || file.plan().mapping != mapping)
    return invalid_argument("{}: the engine is no encoder of {}", file.path().string(),
                            io::text_of(mapping));
  std::unique_ptr<EncoderPass> pass(new EncoderPass(std::move(file), encoder_limits(limits)));
  RETURN_IF_ERROR(pass->allocate(device));
  DeviceMemory memory;
  memory.weights = pass->weights_.bytes();
  memory.arenas[static_cast<int>(io::RowCount::kTokens)] = pass->arena_.bytes();
  memory.kv_cache = &pass->cache_;
  memory.cross_cache = &cross;
  memory.exchange = &exchange;
  ASSIGN_OR_RETURN(pass->bound_, BoundPlan::bind(pass->file_.plan(), pass->limits_, device.info(),
                                                 registry, memory));
  return pass;
}

Status EncoderPass::allocate(Device& device) {
  device_ = &device;
  const io::Plan& plan = file_.plan();
  width_ = embedding_width(plan);
  ASSIGN_OR_RETURN(weights_, device.upload(file_.blob().data(), file_.blob().size()));
  ASSIGN_OR_RETURN(arena_, device.allocate(arena_bytes(plan, limits_, io::RowCount::kTokens)));
  ASSIGN_OR_RETURN(cache_, KvCache::create(plan, limits_, device));
  const size_t bytes = StepData::max_bytes(limits_, cache_.groups().size());
  ASSIGN_OR_RETURN(step_data_, device.allocate(bytes));
  staging_.resize(static_cast<size_t>(limits_.depth));
  for (Staging& staging : staging_) {
    ASSIGN_OR_RETURN(staging.step_data, device.allocate_host(bytes));
  }
  return ok();
}

Status EncoderPass::stage(const StepMessageView& message, int32_t index) {
  Staging& staging = staging_[static_cast<size_t>(index)];
  staging.step = {};
  if (message.encoder_inputs.empty()) return ok();
  std::vector<StepRow> rows;
  std::vector<int32_t> blocks;
  for (const EncoderInput& input : message.encoder_inputs) {
    const int64_t most = limits_.max_sequence_length;
    if (input.num_tokens < 1 || input.num_tokens > most || std::ssize(rows) >= limits_.max_rows)
      return invalid_argument("encoder input {} of {} tokens; {} inputs of 1 to {} are allowed",
                              rows.size(), input.num_tokens, limits_.max_rows, most);
    rows.push_back({.slot = static_cast<int32_t>(rows.size()),
                    .num_tokens = input.num_tokens,
                    .cross_length = input.num_tokens});
    for (int64_t i = num_blocks_for(input.num_tokens, limits_.block_tokens); i > 0; --i)
      blocks.push_back(static_cast<int32_t>(blocks.size()));
  }
  StepMessageView own;
  own.rows = rows;
  own.tokens = message.encoder_tokens;
  own.blocks = blocks;
  own.cross_blocks = message.encoder_blocks;
  const auto packed = StepData::pack(own, cache_.groups(), limits_, file_.plan().model.vocab_size,
                                     staging.step_data.bytes());
  if (!packed.ok()) return annotate(packed.status(), "encoder inputs");
  const int64_t numbers = int64_t{packed->num_embeddings} * width_;
  if (std::ssize(message.encoder_embeddings) != numbers)
    return invalid_argument("encoder inputs: {} numbers of embeddings; {} tokens need {}",
                            message.encoder_embeddings.size(), packed->num_embeddings, numbers);
  RETURN_IF_ERROR(stage_embeddings(message.encoder_embeddings, staging));
  staging.step = *packed;
  return ok();
}

Status EncoderPass::stage_embeddings(std::span<const BF16> embeddings, Staging& staging) {
  staging.embedding_bytes = 0;
  const size_t bytes = embeddings.size_bytes();
  if (bytes == 0) return ok();
  if (bytes > staging.embeddings.size()) {
    const size_t row = static_cast<size_t>(width_) * sizeof(BF16);
    const size_t grown =
        std::min(std::bit_ceil(bytes), static_cast<size_t>(limits_.max_tokens) * row);
    ASSIGN_OR_RETURN(staging.host_embeddings, device_->allocate_host(grown));
    ASSIGN_OR_RETURN(staging.embeddings, device_->allocate(grown));
  }
  std::memcpy(staging.host_embeddings.data(), embeddings.data(), bytes);
  staging.embedding_bytes = bytes;
  return ok();
}

Status EncoderPass::run(int32_t index, Stream& stream) {
  const Staging& staging = staging_[static_cast<size_t>(index)];
  if (staging.step.num_rows == 0) return ok();
  const std::byte* const block = staging.step_data.bytes();
  RETURN_IF_ERROR(stream.copy(step_data_.data(), block, staging.step.bytes));
  StepData step = staging.step.at(block, step_data_.bytes());
  if (staging.embedding_bytes > 0) {
    RETURN_IF_ERROR(stream.copy(staging.embeddings.data(), staging.host_embeddings.data(),
                                staging.embedding_bytes));
    step.embeddings = static_cast<const BF16*>(staging.embeddings.data());
  }
  const Status status = bound_.run(step, stream, nullptr);
  return status.ok() ? status : annotate(status, "encoder");
}

}  // namespace nereid::exec
