// KV cache sizing with exec's memory table, the same that decides allocations.
#include "runtime/kv_sizing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/round_up.h"
#include "exec/adapter_pool.h"
#include "exec/kv_cache.h"
#include "exec/memory.h"
#include "runtime/adapters/lora_module_names.h"
#include "runtime/prompts/pictures.h"

namespace nereid::runtime {
namespace {

// Share of free memory for a model without memory options; other processes share the host's.
constexpr double kHostShare = 0.5;
constexpr double kDeviceShare = 0.9;

// Rows of logits (beyond one per sequence, for context logits): at most kEnoughLogits, beyond which
// the head's product gets no faster, and at most 1 / kLogitsShare of the memory.
constexpr int32_t kEnoughLogits = 256;
constexpr size_t kLogitsShare = 64;

// A plan on a device, which other ranks may use too.
struct Part {
  const io::Plan& plan;
  const Device& device;
  size_t num_sharing = 1;  // ranks that the free memory is for, of all instances
  bool logs = true;        // reductions of limits; one rank of a model

  size_t free_bytes() const { return device.free_bytes() / num_sharing; }
  // Part of config.memory_bytes, else of the free memory.
  size_t available_bytes(const ExecutorConfig& config) const {
    return config.memory_bytes > 0 ? static_cast<size_t>(config.memory_bytes) : free_bytes();
  }
};

// Bytes without the host pool.
size_t total_bytes(const Part& part, const exec::RunnerLimits& limits) {
  size_t total = 0;
  for (const exec::MemoryItem& item : exec::memory_table(part.plan, limits, part.device.info()))
    if (!item.what.starts_with("host ")) total += item.bytes;
  return total;
}

// Bytes for weights, buffers and device KV blocks together.
size_t budget_of(const Part& part, const exec::RunnerLimits& limits, const ExecutorConfig& config,
                 size_t bytes_beside) {
  const bool on_cpu = part.device.info().kind == DeviceKind::kCpu;
  size_t available = part.available_bytes(config);
  if (config.memory_bytes == 0) {
    // The host pool takes the same memory.
    const auto pool = static_cast<size_t>(config.kv_cache.host_cache_bytes);
    if (on_cpu) available -= std::min(available, pool);
  }
  available -= std::min(available, bytes_beside);
  if (config.kv_cache.memory_fraction) {
    exec::RunnerLimits without = limits;
    without.num_blocks = without.num_host_blocks = 0;
    const size_t fixed = std::min(available, total_bytes(part, without));
    return fixed + static_cast<size_t>(*config.kv_cache.memory_fraction *
                                       static_cast<double>(available - fixed));
  }
  if (config.memory_bytes > 0) return available;
  const double share = on_cpu ? kHostShare : kDeviceShare;
  return static_cast<size_t>(share * static_cast<double>(available));
}

int32_t blocks_for(int64_t tokens, int32_t block_tokens) {
  const int64_t blocks = (tokens + block_tokens - 1) / block_tokens;
  return static_cast<int32_t>(std::min<int64_t>(blocks, std::numeric_limits<int32_t>::max()));
}

Status check_budget(const Part& part, const exec::RunnerLimits& limits, size_t budget) {
  const size_t total = total_bytes(part, limits);
  if (total <= budget) return ok();
  return resource_exhausted(
      "kv_cache.max_tokens: {} blocks of {} tokens need {} bytes with weights and activations; "
      "the budget is {}",
      limits.num_blocks[0], limits.block_tokens, total, budget);
}

void shorten_sequences(const Part& part, int64_t length, exec::RunnerLimits& limits) {
  if (length >= limits.max_sequence_length) return;
  if (part.logs)
    log_warn("KV cache of {} tokens: sequences are limited to that; the model would allow {}",
             length, limits.max_sequence_length);
  limits.max_sequence_length = static_cast<int32_t>(length);
}

// As many blocks as fit; sequences are shortened if not even one fits.
StatusOr<exec::PerGroup<int32_t>> fit(const Part& part, size_t budget, exec::RunnerLimits& limits) {
  const auto fit_for = [&](int32_t length) {
    exec::RunnerLimits shorter = limits;
    shorter.max_sequence_length = length;
    return exec::num_blocks_that_fit(part.plan, shorter, part.device.info(), budget);
  };
  StatusOr<exec::PerGroup<int32_t>> blocks = fit_for(limits.max_sequence_length);
  if (blocks.ok()) return blocks;
  // Longest sequence that fits, in blocks; `high` does not fit.
  int32_t low = 0, high = exec::blocks_per_sequence(limits);
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    (fit_for(middle * limits.block_tokens).ok() ? low : high) = middle;
  }
  if (low == 0) return blocks;
  shorten_sequences(part, int64_t{low} * limits.block_tokens, limits);
  return fit_for(limits.max_sequence_length);
}

// Steps in flight: one for each stage, and one that is prepared.
int32_t depth_for(const ExecutorConfig& config, int32_t num_stages) {
  return std::min(num_stages + (config.enable_overlap ? 1 : 0), exec::kMaxDepth);
}

DType cache_type(KvCacheType type, const io::Plan& plan) {
  if (type == KvCacheType::kInt8) return DType::kI8;
  if (type == KvCacheType::kFp8) return DType::kF8E4M3;
  if (type == KvCacheType::kBf16) return DType::kBF16;
  return plan.model.kv_dtype;
}

Status set_window(const io::Plan& plan, const KvCacheConfig& config, exec::RunnerLimits& limits) {
  limits.window = config.max_attention_window;
  limits.sink = config.sink_token_length;
  // A window >= max_positions has no effect, but would disable block reuse behind it.
  if (limits.window >= plan.model.max_positions) limits.window = 0;
  const std::vector<exec::CacheGroup> groups = exec::cache_groups(plan, limits);
  if (groups.back().window > 0) return ok();
  if (limits.sink > 0 && config.max_attention_window == 0)
    return invalid_argument(
        "kv_cache.sink_token_length: {} needs kv_cache.max_attention_window above 0, since the "
        "model itself sees all positions",
        limits.sink);
  limits.sink = 0;
  return ok();
}

// Bound of a step's hidden states, which are copied to the host and wait there for a draft head:
// this many bytes, but at least kLeastStates rows and kLeastStatesOfRow per sequence.
constexpr size_t kStateBytesPerStep = size_t{4} << 20;
constexpr int32_t kLeastStates = 256, kLeastStatesOfRow = 4;

void set_max_tokens(const Part& part, const ExecutorConfig& config, bool all_states,
                    exec::RunnerLimits& limits) {
  if (!all_states || !config.scheduler.enable_chunked_context) return;
  const io::Plan& plan = part.plan;
  const size_t state = plan.hidden.size() * static_cast<size_t>(plan.model.hidden_size);
  const auto fit =
      static_cast<int32_t>(kStateBytesPerStep / std::max(state * sizeof(BF16), sizeof(BF16)));
  const int32_t most = std::max({fit, kLeastStates, kLeastStatesOfRow * limits.max_rows});
  if (most >= limits.max_tokens) return;
  if (part.logs)
    log_info(
        "max_num_tokens: {} is reduced to {}, because the hidden states of all positions go to the "
        "draft head",
        limits.max_tokens, most);
  limits.max_tokens = most;
}

void set_max_logits(const Part& part, const ExecutorConfig& config, bool all_states,
                    exec::RunnerLimits& limits) {
  const io::Plan& plan = part.plan;
  const size_t available = part.available_bytes(config);
  const int64_t row_bytes =
      std::max<int64_t>(plan.arena_bytes_per_row[static_cast<int>(io::RowCount::kSampled)], 1);
  const auto affordable = static_cast<int64_t>(available / kLogitsShare) / row_bytes;
  const int32_t enough =
      all_states ? limits.max_tokens : std::min(limits.max_tokens, kEnoughLogits);
  limits.max_logits =
      std::max(limits.max_rows, static_cast<int32_t>(std::min<int64_t>(affordable, enough)));
}

Status set_host_blocks(const io::Plan& plan, const KvCacheConfig& config,
                       exec::RunnerLimits& limits) {
  if (config.host_cache_bytes == 0) return ok();
  if (!config.enable_block_reuse)
    return invalid_argument(
        "kv_cache.host_cache_bytes: {} needs kv_cache.enable_block_reuse, by which blocks in host "
        "memory are found again",
        config.host_cache_bytes);
  const auto bytes = static_cast<size_t>(config.host_cache_bytes);
  const std::vector<exec::CacheGroup> groups = exec::cache_groups(plan, limits);
  // In proportion to the device blocks.
  exec::PerGroup<int64_t> shares;
  for (size_t g = 0; g < groups.size(); ++g) shares[g] = limits.num_blocks[g];
  limits.num_host_blocks = exec::divide_blocks(groups, limits, shares, bytes);
  for (size_t g = 0; g < groups.size(); ++g) {
    int32_t& blocks = limits.num_host_blocks[g];
    if (blocks == 0 && !groups[g].layers.empty())
      return invalid_argument(
          "kv_cache.host_cache_bytes: {} bytes hold no block of {} tokens ({} bytes); allowed are "
          "0 and values for a block of each cache group",
          bytes, limits.block_tokens, exec::KvLayout::of(groups[g], limits).block);
    blocks = std::min(blocks, std::numeric_limits<int32_t>::max() - limits.num_blocks[g]);
  }
  return ok();
}

// Columns + rows of the widest adaptable matrix.
int64_t widest_module(const io::Plan& plan) {
  int64_t widest = 1;
  for (const io::AdapterModule& m : plan.modules)
    if (lora_module_of(m.source)) widest = std::max(widest, m.k + m.n);
  return widest;
}

// Adapter slots and pages: as many pages as num_device_module_layers requests, or slots and pages
// in device_cache_fraction of the memory; at most 2 * max_rows adapters of the largest rank.
Status set_adapters(const Part& part, const ExecutorConfig& config, exec::RunnerLimits& limits) {
  if (!config.enable_lora) return ok();
  const io::Plan& plan = part.plan;
  const PeftCacheConfig& peft = config.peft_cache;
  limits.max_adapter_rank = peft.max_adapter_size;
  const int64_t widest = widest_module(plan);
  limits.adapter_page_numbers =
      round_up(peft.optimal_adapter_size * widest, exec::kAdapterAlignment);
  const double page = static_cast<double>(limits.adapter_page_numbers) * sizeof(BF16);
  const auto available = static_cast<double>(part.available_bytes(config));
  const bool counts_layers = peft.num_device_module_layers > 0;
  const double budget = counts_layers
                            ? static_cast<double>(peft.num_device_module_layers) *
                                  peft.max_adapter_size * static_cast<double>(widest) * sizeof(BF16)
                            : peft.device_cache_fraction * available;
  limits.num_adapters = 1;  // measures one slot, without pages
  const auto place = static_cast<double>(exec::AdapterPool::bytes(plan.modules, limits));
  const double counted = counts_layers ? 0 : place;
  if (budget < counted + page)
    return resource_exhausted(
        "peft_cache: a page (rank {}, {} columns + rows) and an adapter slot take {:.0f} bytes; "
        "num_device_module_layers {} or device_cache_fraction {} of {:.0f} bytes is less",
        peft.optimal_adapter_size, widest, counted + page, peft.num_device_module_layers,
        peft.device_cache_fraction, available);
  std::vector<exec::LoraMatrixInfo> largest;
  for (int32_t i = 0; i < std::ssize(plan.modules); ++i)
    largest.push_back({i, limits.max_adapter_rank, 1, /*has_gain=*/1});
  const double places = std::min(2.0 * limits.max_rows, budget / (counted + page));
  limits.num_adapters = static_cast<int32_t>(places);
  const double most = 2.0 * limits.max_rows *
                      std::ceil(static_cast<double>(exec::adapter_numbers(plan.modules, largest)) *
                                sizeof(BF16) / page);
  constexpr double kMostPages = 1 << 24;
  limits.num_adapter_pages = static_cast<int32_t>(
      std::min({(budget - limits.num_adapters * counted) / page, most, kMostPages}));
  return ok();
}

// Sets the device's blocks; see size_kv_cache().
Status set_blocks(const Part& part, const ExecutorConfig& config, size_t bytes_beside,
                  exec::RunnerLimits& limits) {
  const size_t budget = budget_of(part, limits, config, bytes_beside);
  const auto& max_tokens = config.kv_cache.max_tokens;
  const bool budget_given = config.memory_bytes > 0 || config.kv_cache.memory_fraction;
  const auto groups = [&] { return exec::cache_groups(part.plan, limits); };
  // Blocks beyond a full batch of the longest sequences serve cached prefixes only.
  const auto full_batch = [&](const exec::CacheGroup& group) {
    return int64_t{exec::blocks_held_per_sequence(limits, group)} * config.max_batch_size;
  };
  if (max_tokens) {
    const std::vector<exec::CacheGroup> all = groups();
    for (size_t g = 0; g < all.size(); ++g) {
      limits.num_blocks[g] = blocks_for(*max_tokens, limits.block_tokens);
      if (g > 0)
        limits.num_blocks[g] =
            static_cast<int32_t>(std::min<int64_t>(limits.num_blocks[g], full_batch(all[g])));
    }
    if (!config.kv_cache.memory_fraction)
      return config.memory_bytes > 0 ? check_budget(part, limits, budget) : ok();
    ASSIGN_OR_RETURN(const auto most, fit(part, budget, limits));
    for (size_t g = 0; g < all.size(); ++g)
      limits.num_blocks[g] = std::min(limits.num_blocks[g], most[g]);
    return ok();
  }
  ASSIGN_OR_RETURN(limits.num_blocks, fit(part, budget, limits));
  if (config.kv_cache.memory_fraction) return ok();
  const std::vector<exec::CacheGroup> all = groups();
  for (size_t g = 0; g < all.size(); ++g) {
    const int64_t one = exec::blocks_held_per_sequence(limits, all[g]), full = full_batch(all[g]);
    const int64_t enough = budget_given ? full : std::max(full / 2, one);
    limits.num_blocks[g] = static_cast<int32_t>(std::min<int64_t>(limits.num_blocks[g], enough));
  }
  return ok();
}

// Positions of an encoder's input without an option for them: of text or sound, of a picture.
constexpr int32_t kUsualEncoderLength = 4096, kUsualPatches = 8192;
// Largest pictures whose features are kept, without an option, and their share of the memory.
constexpr int64_t kUsualPictures = 16;
constexpr double kUsualFeatureShare = 0.05;

// Blocks for encoder results: `full` of them within a share of the KV memory, at least `one`. An
// option for the share is taken whole.
int32_t result_blocks(const Part& part, const ExecutorConfig& config, size_t bytes_beside,
                      const exec::RunnerLimits& limits, size_t block_bytes, int64_t one,
                      int64_t full, double usual_share) {
  exec::RunnerLimits without = limits;
  without.num_blocks = without.num_host_blocks = 0;
  without.num_cross_blocks = without.num_feature_blocks = 0;
  const size_t budget = budget_of(part, without, config, bytes_beside);
  const size_t fixed = std::min(budget, total_bytes(part, without));
  const double share = config.kv_cache.cross_fraction.value_or(usual_share);
  const auto affordable = static_cast<int64_t>(share * static_cast<double>(budget - fixed) /
                                               static_cast<double>(block_bytes));
  const int64_t enough = config.kv_cache.cross_fraction ? affordable : std::min(affordable, full);
  return static_cast<int32_t>(
      std::clamp<int64_t>(enough, one, std::numeric_limits<int32_t>::max() / 2));
}

// Limits of the encoder's steps, and blocks of its results.
Status set_encoder(const Part& part, const ExecutorConfig& config, size_t bytes_beside,
                   exec::RunnerLimits& limits) {
  const io::PictureFacts& pictures = part.plan.model.pictures;
  const bool takes_pictures = pictures.patch_width > 0;
  const int32_t most = part.plan.model.encoder_positions;
  const int32_t wanted = config.max_encoder_input_len;
  if (most == 0) {
    if (wanted > 0 && part.logs)
      log_warn("max_encoder_input_len: {} has no effect: the model has no encoder", wanted);
    return ok();
  }
  if (wanted > most && part.logs)
    log_warn("max_encoder_input_len: {} is more than the {} that the model allows, which is used",
             wanted, most);
  const int32_t least = pictures.in_cross ? most : 0;  // a picture with all of its tiles
  // Blended pictures: of any size, since their tokens are bounded.
  const int32_t usual = pictures.blended_tiles > 0 ? most
                        : takes_pictures           ? kUsualPatches
                                                   : kUsualEncoderLength;
  limits.max_encoder_length = std::min(wanted > 0 ? wanted : std::max(usual, least), most);
  const int32_t frame = std::max(pictures.grid * pictures.grid + pictures.class_tokens, least);
  if (pictures.grid > 0 && limits.max_encoder_length < frame)
    return invalid_argument("max_encoder_input_len: {}; every picture of the model has {} rows",
                            limits.max_encoder_length, frame);
  limits.max_encoder_tokens = std::max(limits.max_encoder_length, limits.max_tokens);
  if (pictures.in_cross) limits.max_cross_length = max_across_length(pictures, limits.block_tokens);
  if (takes_pictures && !pictures.in_cross) {
    int32_t features = limits.max_encoder_length / (pictures.merge * pictures.merge);
    // Features of the whole picture, and of a plane of 1.1^2 times blended_tiles.
    if (pictures.blended_tiles > 0)
      features = std::min(features, frame * (2 + 5 * pictures.blended_tiles / 4));
    const int64_t one = blocks_for(std::max(features, 1), limits.block_tokens);
    limits.num_feature_blocks = result_blocks(part, config, bytes_beside, limits,
                                              exec::feature_block_bytes(part.plan, limits), one,
                                              one * kUsualPictures, kUsualFeatureShare);
    return ok();
  }
  const int64_t one = exec::cross_blocks_per_input(limits);
  limits.num_cross_blocks =
      result_blocks(part, config, bytes_beside, limits, exec::cross_block_bytes(part.plan, limits),
                    one, one * limits.max_rows, 0.5);
  return ok();
}

int32_t longest_sequence(const Part& part, const ExecutorConfig& config) {
  const int32_t wanted = config.max_sequence_length, most = part.plan.model.max_positions;
  if (wanted > most && part.logs)
    log_warn("max_sequence_length: {} is more than the {} that the model allows, which is used",
             wanted, most);
  return wanted == 0 ? most : std::min(wanted, most);
}

StatusOr<exec::RunnerLimits> size_part(const Part& part, const ExecutorConfig& config,
                                       size_t bytes_beside, bool all_states) {
  const io::Plan& plan = part.plan;
  exec::RunnerLimits limits{.max_rows = config.max_batch_size,
                            .max_tokens = config.max_num_tokens,
                            .max_sequence_length = longest_sequence(part, config),
                            .block_tokens = config.kv_cache.tokens_per_block};
  limits.kv_type = cache_type(config.kv_cache.type, plan);
  if (config.kv_cache.type == KvCacheType::kAuto && limits.kv_type != DType::kBF16 && part.logs)
    log_info("KV cache type {}, from the checkpoint", name_of(limits.kv_type));
  limits.depth = depth_for(config, plan.mapping.pp);
  limits.has_components = exec::reads_components(plan);
  limits.counts_experts = config.expert_load;
  set_max_tokens(part, config, all_states, limits);
  RETURN_IF_ERROR(set_adapters(part, config, limits));
  RETURN_IF_ERROR(set_window(plan, config.kv_cache, limits));
  RETURN_IF_ERROR(set_encoder(part, config, bytes_beside, limits));
  RETURN_IF_ERROR(exec::check_limits(plan, limits));
  set_max_logits(part, config, all_states, limits);
  RETURN_IF_ERROR(set_blocks(part, config, bytes_beside, limits));
  RETURN_IF_ERROR(set_host_blocks(plan, config.kv_cache, limits));
  const std::vector<exec::CacheGroup> groups = exec::cache_groups(plan, limits);
  for (size_t g = 0; g < groups.size(); ++g)
    if (limits.num_blocks[g] < exec::blocks_held_per_sequence(limits, groups[g]))
      shorten_sequences(part, int64_t{limits.num_blocks[g]} * limits.block_tokens, limits);
  return limits;
}

// Reduces `limits` to the least of both. A rank without layers of a group counts no blocks there.
void reduce(const exec::RunnerLimits& other, const std::vector<exec::CacheGroup>& groups,
            exec::RunnerLimits& limits) {
  const auto take_less = [](auto& value, auto most) { value = std::min(value, most); };
  take_less(limits.max_tokens, other.max_tokens);
  take_less(limits.max_sequence_length, other.max_sequence_length);
  take_less(limits.max_logits, other.max_logits);
  take_less(limits.num_cross_blocks, other.num_cross_blocks);
  take_less(limits.num_feature_blocks, other.num_feature_blocks);
  take_less(limits.num_adapters, other.num_adapters);
  take_less(limits.num_adapter_pages, other.num_adapter_pages);
  limits.adapter_page_numbers = std::max(limits.adapter_page_numbers, other.adapter_page_numbers);
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].layers.empty()) continue;
    take_less(limits.num_blocks[g], other.num_blocks[g]);
    take_less(limits.num_host_blocks[g], other.num_host_blocks[g]);
  }
}

}  // namespace

StatusOr<exec::RunnerLimits> size_kv_cache(const io::Plan& plan, const ExecutorConfig& config,
                                           const Device& device, size_t bytes_beside,
                                           bool all_states) {
  return size_part({plan, device}, config, bytes_beside, all_states);
}

StatusOr<exec::RunnerLimits> size_kv_cache(std::span<const RankPart> ranks,
                                           const ExecutorConfig& config, size_t bytes_beside,
                                           bool all_states) {
  exec::RunnerLimits limits;
  ExecutorConfig own = config;
  own.kv_cache.host_cache_bytes /= std::ssize(ranks);
  exec::PerGroup<bool> is_set;
  std::vector<exec::CacheGroup> first;  // of rank 0
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto num_ranks =
        std::ranges::count(ranks, ranks[r].device->info().id(),
                           [](const RankPart& p) { return p.device->info().id(); });
    const int32_t num_instances = std::max(config.num_instances, 1);
    own.memory_bytes = config.memory_bytes / (num_ranks * num_instances);
    // Pages of a CPU's memory are taken when they are written; a GPU's at once.
    const bool is_taken =
        ranks[r].num_unopened > 0 && ranks[r].device->info().kind != DeviceKind::kCpu;
    const auto num_sharing = num_ranks * (is_taken ? ranks[r].num_unopened : num_instances);
    const Part part{*ranks[r].plan, *ranks[r].device, static_cast<size_t>(num_sharing), r == 0};
    // A draft model is on the first rank's device.
    const auto sized = size_part(part, own, r == 0 ? bytes_beside : 0, all_states);
    if (!sized.ok() && ranks.size() > 1) return annotate(sized.status(), fmt::format("rank {}", r));
    RETURN_IF_ERROR(sized.status());
    const std::vector<exec::CacheGroup> groups = exec::cache_groups(part.plan, *sized);
    if (r == 0) {
      limits = *sized;
      first = groups;
    }
    if (!std::ranges::equal(groups, first, {}, &exec::CacheGroup::window,
                            &exec::CacheGroup::window))
      return unsupported(
          "tensor_parallel: {}: the layers of rank {} have {} kinds of KV cache, those of rank 0 "
          "{}; allowed is what divides the KV heads of each layer",
          part.plan.mapping.tp, r, groups.size(), first.size());
    for (size_t g = 0; g < groups.size(); ++g)
      if (!groups[g].layers.empty() && !std::exchange(is_set[g], true)) {
        limits.num_blocks[g] = sized->num_blocks[g];
        limits.num_host_blocks[g] = sized->num_host_blocks[g];
      }
    reduce(*sized, groups, limits);
  }
  return limits;
}

StatusOr<exec::RunnerLimits> size_draft_cache(const io::Plan& draft, const ExecutorConfig& config,
                                              const exec::RunnerLimits& limits) {
  exec::RunnerLimits own{
      .max_rows = limits.max_rows,
      .max_tokens = limits.max_tokens,
      .max_sequence_length = std::min(limits.max_sequence_length, draft.model.max_positions),
      .block_tokens = limits.block_tokens,
      .kv_type = cache_type(config.kv_cache.type, draft)};
  RETURN_IF_ERROR(exec::check_limits(draft, own));
  const std::vector<exec::CacheGroup> groups = exec::cache_groups(draft, own);
  if (groups.empty()) own.max_tokens = own.max_rows;  // without a KV cache a row has one token
  for (size_t g = 0; g < groups.size(); ++g) {
    const int64_t full_batch =
        int64_t{exec::blocks_held_per_sequence(own, groups[g])} * limits.max_rows;
    own.num_blocks[g] =
        g == 0 ? limits.num_blocks[0]
               : static_cast<int32_t>(std::min<int64_t>(limits.num_blocks[0], full_batch));
  }
  return own;
}

}  // namespace nereid::runtime
