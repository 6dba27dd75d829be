#include "exec/encoder_pass.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/round_up.h"
#include "exec/memory.h"

namespace nereid::exec {
namespace {

bool takes_pictures(const io::Plan& plan) { return plan.model.pictures.patch_width > 0; }
// Otherwise keys and values of cross attention.
bool makes_features(const io::Plan& plan) {
  return takes_pictures(plan) && plan.model.num_cross_layers == 0;
}

int32_t patches_per_feature(const io::Plan& plan) {
  return plan.model.pictures.merge * plan.model.pictures.merge;
}

// Limits of the encoder's steps: rows are parts of inputs, each with all its positions.
RunnerLimits encoder_limits(const io::Plan& plan, const RunnerLimits& decoder) {
  RunnerLimits limits{
      .max_rows = takes_pictures(plan) ? max_picture_parts(plan.model.pictures) : decoder.max_rows,
      .max_tokens = decoder.max_encoder_tokens,
      .max_sequence_length = decoder.max_encoder_length,
      .block_tokens = decoder.block_tokens};
  limits.num_blocks[0] = decoder.max_encoder_tokens / decoder.block_tokens + limits.max_rows;
  limits.depth = decoder.depth;
  limits.max_encoder_length = decoder.max_encoder_length;
  limits.max_encoder_tokens = decoder.max_encoder_tokens;
  limits.num_cross_blocks = decoder.num_cross_blocks;
  if (makes_features(plan)) limits.max_logits = limits.max_tokens / patches_per_feature(plan) + 1;
  limits.has_components = reads_components(plan);
  limits.has_last = plan.model.pictures.in_cross;
  limits.num_adapters = decoder.num_adapters;
  return limits;
}

// Bytes of a step's integers, of both its divisions into rows.
size_t step_bytes(const io::Plan& plan, const RunnerLimits& own) {
  const size_t bytes = StepData::max_bytes(own, cache_groups(plan, own).size());
  if (plan.model.pictures.blended_tiles > 0)
    return bytes + static_cast<size_t>(own.num_logits_rows()) * sizeof(kernels::BlendedRow) +
           StepData::kAlignment;
  return plan.model.pictures.window > 0 ? 2 * bytes : bytes;
}

std::vector<MemoryItem> memory_of(const io::Plan& plan, const RunnerLimits& own) {
  size_t bytes = rope_table_bytes(plan, own);
  for (const CacheGroup& group : cache_groups(plan, own))
    bytes += KvLayout::of(group, own).block * static_cast<size_t>(own.num_blocks[0]);
  for (const io::RowCount extent : {io::RowCount::kTokens, io::RowCount::kSampled})
    bytes += arena_bytes(plan, own, extent);
  const size_t copies = static_cast<size_t>(own.depth) + 1;
  return {{"encoder weights", plan.blob_bytes},
          {"encoder activations", bytes},
          {"encoder step data", copies * step_bytes(plan, own)}};
}

// Makes the tokens of blend `index`, of an input whose first token is `begin`, those of the step.
Status place_blend(const EncoderInput& input, int32_t begin, int32_t index,
                   std::span<kernels::BlendedRow> blends) {
  if (index >= std::ssize(blends))
    return invalid_argument("encoder inputs: {} blends are too few", blends.size());
  for (int32_t& token : blends[static_cast<size_t>(index)].tokens) {
    if (token < 0 || token >= input.num_tokens)
      return invalid_argument("encoder inputs: a blend of token {}; the input has {}", token,
                              input.num_tokens);
    token += begin;
  }
  return ok();
}

}  // namespace

std::vector<MemoryItem> encoder_memory_table(const io::Plan& plan, const RunnerLimits& limits) {
  return memory_of(plan, encoder_limits(plan, limits));
}

std::vector<MemoryItem> EncoderPass::memory() const { return memory_of(file_.plan(), limits_); }

EncoderPass::EncoderPass(io::EngineFile file, const RunnerLimits& limits,
                         const EncoderResults& results)
    : file_(std::move(file)),
      limits_(encoder_limits(file_.plan(), limits)),
      results_(results),
      num_feature_blocks_(limits.num_feature_blocks),
      patches_per_feature_(patches_per_feature(file_.plan())) {}

StatusOr<std::unique_ptr<EncoderPass>> EncoderPass::create(
    io::EngineFile file, const RunnerLimits& limits, Device& device,
    const kernels::Registry& registry, const EncoderResults& results, Exchange& exchange,
    const AdapterPool& adapters, const io::Mapping& mapping) {
  const io::Plan& plan = file.plan();
  if (!plan.model.is_encoder || plan.mapping != mapping)
    return invalid_argument("{}: the engine is no encoder of {}", file.path().string(),
                            io::text_of(mapping));
  if (makes_features(plan) && plan.model.hidden_size != results.width)
    return invalid_argument("{}: features of {} numbers; the decoder takes {}",
                            file.path().string(), plan.model.hidden_size, results.width);
  std::unique_ptr<EncoderPass> pass(new EncoderPass(std::move(file), limits, results));
  RETURN_IF_ERROR(pass->allocate(device));
  DeviceMemory memory;
  memory.weights = pass->weights_.bytes();
  for (int i = 0; i < io::kNumExtents; ++i) memory.arenas[i] = pass->arenas_[i].bytes();
  memory.kv_cache = &pass->cache_;
  memory.cross_cache = results.cross;
  memory.rope_table = pass->ropes_.angles();
  memory.rope_components = pass->ropes_.components();
  memory.exchange = &exchange;
  memory.adapters = &adapters;
  const io::Plan& own = pass->file_.plan();
  const auto num_parts =
      mapping.is_single() ? std::ssize(own.modules) : std::ssize(own.module_parts);
  memory.first_adapter_module = adapters.num_parts() - static_cast<int32_t>(num_parts);
  ASSIGN_OR_RETURN(pass->bound_, BoundPlan::bind(pass->file_.plan(), pass->limits_, device.info(),
                                                 registry, memory));
  return pass;
}

Status EncoderPass::allocate(Device& device) {
  device_ = &device;
  const io::Plan& plan = file_.plan();
  width_ = embedding_width(plan);
  ASSIGN_OR_RETURN(weights_, device.upload(file_.blob().data(), file_.blob().size()));
  for (const io::RowCount extent : {io::RowCount::kTokens, io::RowCount::kSampled}) {
    ASSIGN_OR_RETURN(arenas_[static_cast<int>(extent)],
                     device.allocate(arena_bytes(plan, limits_, extent)));
  }
  ASSIGN_OR_RETURN(cache_, KvCache::create(plan, limits_, device));
  ASSIGN_OR_RETURN(ropes_, RopeTables::create(plan, limits_, device));
  const size_t bytes = step_bytes(plan, limits_);
  ASSIGN_OR_RETURN(step_data_, device.allocate(bytes));
  staging_.resize(static_cast<size_t>(limits_.depth));
  for (Staging& staging : staging_) {
    ASSIGN_OR_RETURN(staging.step_data, device.allocate_host(bytes));
  }
  return ok();
}

Status EncoderPass::check(const EncoderInput& input) const {
  const int64_t most = limits_.max_sequence_length;
  if (input.num_tokens < 1 || input.num_tokens > most)
    return invalid_argument("{} tokens are not in [1, {}]", input.num_tokens, most);
  if (input.num_parts < 1 || input.num_parts > limits_.max_rows ||
      input.num_tokens % input.num_parts != 0)
    return invalid_argument("{} tokens in {} equal parts, of 1 to {}", input.num_tokens,
                            input.num_parts, limits_.max_rows);
  const bool in_cross = file_.plan().model.pictures.in_cross;
  if (input.num_padding < 0 || input.num_padding > (in_cross ? input.num_tokens - 1 : 0) ||
      (in_cross && input.num_parts > 1))
    return invalid_argument("{} parts, {} positions of padding of {} tokens", input.num_parts,
                            input.num_padding, input.num_tokens);
  const bool blends = file_.plan().model.pictures.blended_tiles > 0;
  if (input.num_blends < (blends ? 1 : 0) || input.num_blends > (blends ? input.num_tokens : 0))
    return invalid_argument("{} blends of {} tokens; allowed {}", input.num_blends,
                            input.num_tokens, blends ? "are 1 to the tokens" : "is 0");
  if (!makes_features(file_.plan())) return ok();
  const int32_t patches =
      input.num_tokens / input.num_parts - file_.plan().model.pictures.class_tokens;
  if (patches < 1 || patches % patches_per_feature_ != 0)
    return invalid_argument("{} patches of a part are no blocks of {}", patches,
                            patches_per_feature_);
  return ok();
}

Status EncoderPass::stage(const StepMessageView& message, int32_t index) {
  Staging& staging = staging_[static_cast<size_t>(index)];
  staging.step = {};
  staging.outputs.clear();
  if (message.encoder_inputs.empty()) return ok();
  std::vector<StepRow> rows;
  std::vector<int32_t> blocks;
  int32_t num_blocks = 0;
  const int32_t given = message.encoder_components.empty() ? 0 : 1;
  for (size_t i = 0; i < message.encoder_inputs.size(); ++i) {
    const EncoderInput& input = message.encoder_inputs[i];
    if (const Status status = check(input); !status.ok())
      return annotate(status, fmt::format("encoder input {}", i));
    if (std::ssize(rows) + input.num_parts + (input.num_padding > 0 ? 1 : 0) > limits_.max_rows)
      return invalid_argument("encoder inputs of more than {} parts", limits_.max_rows);
    const int32_t size = (input.num_tokens - input.num_padding) / input.num_parts;
    const auto add_row = [&](int32_t start, int32_t count, int32_t first_block) {
      rows.push_back({.slot = static_cast<int32_t>(rows.size()),
                      .start = start,
                      .num_tokens = count,
                      .adapter = input.adapter,
                      .cross_length = limits_.num_cross_blocks > 0 && start == 0 ? count : 0,
                      .num_components = given * count});
      const int64_t end = num_blocks_for(int64_t{start} + count, limits_.block_tokens);
      for (int32_t n = 0; n < end; ++n) blocks.push_back(first_block + n);
      num_blocks = first_block + static_cast<int32_t>(end);
    };
    for (int32_t part = 0; part < input.num_parts; ++part) add_row(0, size, num_blocks);
    // The padding's row has the blocks of all of the input.
    if (input.num_padding > 0)
      add_row(size, input.num_padding,
              num_blocks - static_cast<int32_t>(num_blocks_for(size, limits_.block_tokens)));
  }
  StepMessageView own;
  own.rows = rows;
  own.tokens = message.encoder_tokens;
  own.blocks = blocks;
  own.components = message.encoder_components;
  if (limits_.num_cross_blocks > 0) own.cross_blocks = message.encoder_blocks;
  const auto packed = StepData::pack(own, cache_.groups(), limits_, file_.plan().model.vocab_size,
                                     staging.step_data.bytes());
  if (!packed.ok()) return annotate(packed.status(), "encoder inputs");
  const int64_t numbers = int64_t{packed->num_embeddings} * width_;
  if (std::ssize(message.encoder_embeddings) != numbers)
    return invalid_argument("encoder inputs: {} numbers of embeddings; {} tokens need {}",
                            message.encoder_embeddings.size(), packed->num_embeddings, numbers);
  RETURN_IF_ERROR(stage_embeddings(message.encoder_embeddings, staging));
  RETURN_IF_ERROR(stage_outputs(message, staging));
  staging.step = *packed;
  if (file_.plan().model.pictures.in_cross) join_padding(message, staging);
  if (!makes_features(file_.plan())) return ok();
  RETURN_IF_ERROR(stage_features(message, staging));
  return file_.plan().model.pictures.window > 0 ? stage_windows(message, staging) : ok();
}

int32_t EncoderPass::output_width() const {
  return takes_pictures(file_.plan()) ? 0 : file_.plan().model.hidden_size;
}

// Lets an input's row attend to the padding behind it, too, and the padding to that row alone.
void EncoderPass::join_padding(const StepMessageView& message, Staging& staging) const {
  StepData& step = staging.step;
  std::byte* const block = staging.step_data.bytes();
  const auto offset = reinterpret_cast<const std::byte*>(step.block_tables) - block;
  auto* const tables = reinterpret_cast<int32_t*>(block + offset);
  auto* const last = reinterpret_cast<int32_t*>(block + step.bytes);
  const auto num_groups = static_cast<int64_t>(cache_.groups().size());
  int32_t row = 0, token = 0;
  for (const EncoderInput& input : message.encoder_inputs) {
    const int32_t size = input.num_tokens - input.num_padding;
    std::fill_n(last + token, size, input.num_tokens - 1);
    std::fill_n(last + token + size, input.num_padding, size - 1);
    for (int64_t g = 0; input.num_padding > 0 && g < num_groups; ++g) {
      int32_t* const own = tables + (g * step.num_rows + row) * step.max_blocks;
      std::copy_n(own + step.max_blocks, step.max_blocks, own);
    }
    row += input.num_padding > 0 ? 2 : 1, token += input.num_tokens;
  }
  step.last = last;
  step.bytes += round_up(static_cast<size_t>(token) * sizeof(int32_t), StepData::kAlignment);
}

// Memory for the outputs that come back to the host.
Status EncoderPass::stage_outputs(const StepMessageView& message, Staging& staging) {
  const auto width = static_cast<size_t>(output_width());
  size_t tokens = 0;
  for (size_t i = 0; i < message.encoder_inputs.size(); ++i) {
    const EncoderInput& input = message.encoder_inputs[i];
    if (input.is_returned < 0 || input.is_returned > (width > 0 ? 1 : 0))
      return invalid_argument("encoder input {}: is_returned {}; allowed {}", i, input.is_returned,
                              width > 0 ? "are 0 and 1" : "is 0: features are not returned");
    if (input.is_returned != 0) tokens += static_cast<size_t>(input.num_tokens);
  }
  if (tokens == 0 || !file_.plan().mapping.draws()) return ok();
  if (const size_t bytes = tokens * width * sizeof(BF16); bytes > staging.host_outputs.size()) {
    ASSIGN_OR_RETURN(staging.host_outputs, device_->allocate_host(std::bit_ceil(bytes)));
  }
  staging.first_tokens.clear();
  const auto* to = static_cast<const BF16*>(staging.host_outputs.data());
  int32_t first = 0;
  for (const EncoderInput& input : message.encoder_inputs) {
    if (input.is_returned != 0) {
      const size_t numbers = static_cast<size_t>(input.num_tokens) * width;
      staging.first_tokens.push_back(first);
      staging.outputs.push_back({input.num_tokens, {to, numbers}});
      to += numbers;
    }
    first += input.num_tokens;
  }
  return ok();
}

// Adds the same tokens with windows as rows, behind the arrays of the step.
Status EncoderPass::stage_windows(const StepMessageView& message, Staging& staging) {
  std::vector<StepRow> rows;
  std::vector<int32_t> blocks;
  std::span<const int32_t> windows = message.encoder_windows;
  for (const EncoderInput& input : message.encoder_inputs) {
    int64_t left = input.num_tokens;
    if (input.num_windows < 1 || static_cast<size_t>(input.num_windows) > windows.size())
      return invalid_argument("encoder inputs: {} windows, {} are left", input.num_windows,
                              windows.size());
    for (int32_t i = 0; i < input.num_windows; ++i) {
      const int32_t size = windows[static_cast<size_t>(i)];
      if (size < 1 || size > left)
        return invalid_argument("encoder inputs: a window of {} tokens, {} are left", size, left);
      left -= size;
      rows.push_back({.slot = static_cast<int32_t>(rows.size()), .num_tokens = size});
      for (int64_t n = num_blocks_for(size, limits_.block_tokens); n > 0; --n)
        blocks.push_back(static_cast<int32_t>(blocks.size()));
    }
    if (left > 0) return invalid_argument("encoder inputs: {} tokens are in no window", left);
    windows = windows.subspan(static_cast<size_t>(input.num_windows));
  }
  if (!windows.empty())
    return invalid_argument("encoder inputs: {} windows belong to no input", windows.size());
  StepMessageView own;
  own.rows = rows;
  own.tokens = message.encoder_tokens;
  own.blocks = blocks;
  StepData& step = staging.step;
  auto packed = StepData::pack(own, cache_.groups(), limits_, file_.plan().model.vocab_size,
                               staging.step_data.bytes() + step.bytes);
  if (!packed.ok()) return annotate(packed.status(), "windows of encoder inputs");
  staging.windows = *packed;
  step.bytes += packed->bytes;
  return ok();
}

// Adds the tokens whose rows become features (a block's last patch), and where these go.
Status EncoderPass::stage_features(const StepMessageView& message, Staging& staging) {
  StepData& step = staging.step;
  auto* const tokens = reinterpret_cast<int32_t*>(staging.step_data.bytes() + step.bytes);
  const int32_t skipped = file_.plan().model.pictures.class_tokens;
  std::span<const int32_t> blocks = message.encoder_blocks;
  std::vector<kernels::BlendedRow> blends(message.encoder_blends.begin(),
                                          message.encoder_blends.end());
  staging.features.clear();
  int32_t row = 0, count = 0;
  for (const EncoderInput& input : message.encoder_inputs) {
    const int32_t first = count;
    for (int32_t end = count + input.num_blends; count < end; ++count) {
      RETURN_IF_ERROR(place_blend(input, step.row_begin[row], count, blends));
      tokens[count] = blends[static_cast<size_t>(count)].tokens[0];
    }
    for (int32_t part = 0; part < input.num_parts; ++part, ++row)
      for (int32_t t = step.row_begin[row] + skipped + patches_per_feature_ - 1;
           input.num_blends == 0 && t < step.row_begin[row + 1]; t += patches_per_feature_)
        tokens[count++] = t;
    const auto num_blocks =
        static_cast<size_t>(num_blocks_for(count - first, limits_.block_tokens));
    if (num_blocks > blocks.size())
      return invalid_argument("encoder inputs: {} feature blocks are left for {} features",
                              blocks.size(), count - first);
    for (int64_t from = first; from < count; from += limits_.block_tokens) {
      const int32_t block = blocks.front();
      if (block < 0 || block >= num_feature_blocks_)
        return invalid_argument("encoder inputs: feature block {} is not in [0, {})", block,
                                num_feature_blocks_);
      staging.features.push_back({from, int64_t{block} * limits_.block_tokens,
                                  std::min<int64_t>(count - from, limits_.block_tokens)});
      blocks = blocks.subspan(1);
    }
  }
  if (!blocks.empty())
    return invalid_argument("encoder inputs: {} feature blocks belong to no input", blocks.size());
  step.logit_tokens = tokens;
  step.num_logits = count;
  step.bytes += round_up(static_cast<size_t>(count) * sizeof(int32_t), StepData::kAlignment);
  if (message.encoder_blends.empty()) return ok();
  if (std::ssize(blends) != count)
    return invalid_argument("encoder inputs: {} blends of {} features", blends.size(), count);
  std::byte* const to = staging.step_data.bytes() + step.bytes;
  std::memcpy(to, blends.data(), blends.size() * sizeof(blends[0]));
  step.blends = reinterpret_cast<const int32_t*>(to);
  step.bytes += blends.size() * sizeof(blends[0]);
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
  const StepData windows = staging.windows.at(block, step_data_.bytes());
  Status status = bound_.run(step, stream, nullptr, {}, &windows);
  if (status.ok() && step.num_logits > 0) status = store_features(staging, stream);
  if (status.ok()) status = read_outputs(staging, stream);
  return status.ok() ? status : annotate(status, "encoder");
}

Status EncoderPass::read_outputs(const Staging& staging, Stream& stream) const {
  auto* to = static_cast<std::byte*>(staging.host_outputs.data());
  for (size_t i = 0; i < staging.outputs.size(); ++i) {
    const View& all = bound_.hidden()[0];
    const size_t bytes = static_cast<size_t>(all.cols) * sizeof(BF16);
    const auto rows = static_cast<size_t>(staging.outputs[i].num_tokens);
    RETURN_IF_ERROR(stream.copy_rows(to, bytes, all.row<BF16>(staging.first_tokens[i]),
                                     static_cast<size_t>(all.stride) * sizeof(BF16), bytes, rows));
    to += rows * bytes;
  }
  return ok();
}

Status EncoderPass::store_features(const Staging& staging, Stream& stream) const {
  const View& features = bound_.hidden()[0];
  const auto bytes = static_cast<size_t>(results_.width) * sizeof(BF16);
  const size_t stride = static_cast<size_t>(features.stride) * sizeof(BF16);
  const auto* const from = static_cast<const std::byte*>(features.data);
  for (const FeatureRun& run : staging.features)
    RETURN_IF_ERROR(stream.copy_rows(results_.features + static_cast<size_t>(run.to) * bytes, bytes,
                                     from + static_cast<size_t>(run.from) * stride, stride, bytes,
                                     static_cast<size_t>(run.count)));
  return ok();
}

}  // namespace nereid::exec
