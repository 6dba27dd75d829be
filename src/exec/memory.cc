// Sizes of the buffers of a runner.
#include "exec/memory.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/round_up.h"
#include "exec/adapter_pool.h"
#include "exec/fused_calls.h"
#include "exec/kv_cache.h"
#include "exec/step_data.h"
#include "kernels/api/sample.h"

namespace nereid::exec {
namespace {

constexpr int32_t kMaxRows = 1 << 16;
constexpr int32_t kMaxTokens = 1 << 20;
constexpr int32_t kMaxAdapters = 1 << 16;
constexpr int32_t kMaxAdapterPages = 1 << 24;
constexpr int64_t kMaxAdapterPageNumbers = int64_t{1} << 32;
constexpr int32_t kMaxBlockTokens = 1024;
constexpr int32_t kMaxWindow = 1 << 30;
constexpr double kMaxCacheBytes = 1e18;  // keeps the sizes below in 64 bits
constexpr int32_t kMaxBlocks = std::numeric_limits<int32_t>::max();
constexpr int32_t kMaxFeatureRows = -(kernels::kFirstFeature / 2) - 1;  // without kRowEnd

Status check_limit(std::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return ok();
  return invalid_argument("limit {}: {} is not in [{}, {}]", field, value, low, high);
}

std::string describe(const std::vector<MemoryItem>& table) {
  std::string text;
  for (const MemoryItem& item : table)
    text += fmt::format("{}{} {:.1f} MiB", text.empty() ? "" : ", ", item.what,
                        static_cast<double>(item.bytes) / (1 << 20));
  return text;
}

}  // namespace

Status check_limits(const io::Plan& plan, const RunnerLimits& limits) {
  RETURN_IF_ERROR(check_limit("max_rows", limits.max_rows, 1, kMaxRows));
  RETURN_IF_ERROR(check_limit("max_tokens", limits.max_tokens, 1, kMaxTokens));
  RETURN_IF_ERROR(
      check_limit("max_sequence_length", limits.max_sequence_length, 1, plan.model.max_positions));
  RETURN_IF_ERROR(check_limit("block_tokens", limits.block_tokens, 1, kMaxBlockTokens));
  if (limits.kv_type != DType::kBF16 && !kernels::has_kv_scales(limits.kv_type))
    return invalid_argument("limit kv_type: {} is not one of bf16, i8, f8e4m3",
                            name_of(limits.kv_type));
  RETURN_IF_ERROR(check_limit("window", limits.window, 0, kMaxWindow));
  RETURN_IF_ERROR(check_limit("sink", limits.sink, 0, kMaxWindow));
  RETURN_IF_ERROR(check_limit("max_logits", limits.max_logits, 0, kMaxTokens));
  RETURN_IF_ERROR(
      check_limit("num_adapters", limits.num_adapters, 0, plan.modules.empty() ? 0 : kMaxAdapters));
  const int32_t least = limits.num_adapters > 0 ? 1 : 0;
  RETURN_IF_ERROR(
      check_limit("max_adapter_rank", limits.max_adapter_rank, least, kernels::kMaxAdapterRank));
  RETURN_IF_ERROR(
      check_limit("num_adapter_pages", limits.num_adapter_pages, least, kMaxAdapterPages));
  RETURN_IF_ERROR(check_limit("adapter_page_numbers", limits.adapter_page_numbers,
                              least * kAdapterAlignment, kMaxAdapterPageNumbers));
  if (limits.adapter_page_numbers % kAdapterAlignment != 0)
    return invalid_argument("limit adapter_page_numbers: {} is not a multiple of {}",
                            limits.adapter_page_numbers, kAdapterAlignment);
  RETURN_IF_ERROR(check_limit("depth", limits.depth, 1, kMaxDepth));
  const bool has_encoder = plan.model.encoder_positions > 0;
  const bool needs_encoder = plan.model.num_cross_layers > 0;
  RETURN_IF_ERROR(check_limit("max_encoder_length", limits.max_encoder_length, needs_encoder,
                              plan.model.encoder_positions));
  RETURN_IF_ERROR(check_limit("max_encoder_tokens", limits.max_encoder_tokens,
                              limits.max_encoder_length, has_encoder ? kMaxTokens : 0));
  RETURN_IF_ERROR(check_limit("max_cross_length", limits.max_cross_length, 0,
                              plan.model.pictures.in_cross ? 1 << 26 : 0));
  RETURN_IF_ERROR(check_limit("num_cross_blocks", limits.num_cross_blocks, 0,
                              plan.model.num_cross_layers > 0 ? kMaxBlocks : 0));
  const bool takes_pictures = plan.model.pictures.patch_width > 0;
  RETURN_IF_ERROR(check_limit("num_feature_blocks", limits.num_feature_blocks, 0,
                              takes_pictures ? kMaxFeatureRows / limits.block_tokens : 0));
  const std::vector<CacheGroup> groups = cache_groups(plan, limits);
  if (groups.size() > kMaxCacheGroups)
    return unsupported(
        "layers of {} kinds of KV cache (window, heads, width of a head); at most {}",
        groups.size(), kMaxCacheGroups);
  double cache = static_cast<double>(limits.num_cross_blocks) *
                 static_cast<double>(cross_block_bytes(plan, limits));
  for (size_t g = 0; g < groups.size(); ++g) {
    const int32_t device = limits.num_blocks[g], host = limits.num_host_blocks[g];
    RETURN_IF_ERROR(check_limit("num_blocks", device, 0, kMaxBlocks));
    RETURN_IF_ERROR(check_limit("num_host_blocks", host, 0, kMaxBlocks - device));
    cache += (static_cast<double>(device) + host) *
             static_cast<double>(KvLayout::of(groups[g], limits).block);
  }
  if (cache > kMaxCacheBytes)
    return resource_exhausted("limit num_blocks: a KV cache of {:.3g} bytes", cache);
  return ok();
}

int32_t blocks_per_sequence(const RunnerLimits& limits) {
  return (limits.max_sequence_length - 1) / limits.block_tokens + 1;
}

std::vector<CacheGroup> cache_groups(const io::Plan& plan, const RunnerLimits& limits) {
  std::vector<CacheGroup> groups;
  const auto find = [&](CacheGroup group, int32_t window) -> CacheGroup& {
    window = window_of(window, limits);
    if (window < plan.model.max_positions) group.window = window;
    if (group.window > 0) group.sink = limits.sink;
    const auto same = [&](const CacheGroup& other) {
      return other.window == group.window && other.num_kv_heads == group.num_kv_heads &&
             other.head_dim == group.head_dim && other.latent == group.latent;
    };
    const auto found = std::ranges::find_if(groups, same);
    return found == groups.end() ? groups.emplace_back(group) : *found;
  };
  for (const io::LayerCache& cache : plan.caches)
    find({.num_kv_heads = cache.num_kv, .head_dim = cache.dim, .latent = cache.latent},
         cache.window);
  for (const io::Call& call : plan.calls) {
    const auto* attention = std::get_if<kernels::ids::Attention>(&call.op);
    if (!attention) continue;
    const kernels::Heads& heads = attention->heads;
    find({.num_kv_heads = heads.num_kv, .head_dim = heads.dim, .latent = heads.latent},
         attention->window)
        .layers.push_back(attention->cache);
  }
  std::ranges::stable_sort(groups, [](const CacheGroup& a, const CacheGroup& b) {
    return a.window != b.window && (a.window == 0 || (b.window > 0 && a.window > b.window));
  });
  return groups;
}

CacheGroup cross_group(const io::Plan& plan) {
  CacheGroup group;
  for (const io::Call& call : plan.calls)
    if (const auto* cross = std::get_if<kernels::ids::CrossAttention>(&call.op)) {
      group.num_kv_heads = cross->heads.num_kv;
      group.head_dim = cross->heads.dim;
      group.layers.push_back(cross->cache);
    }
  return group;
}

bool reads_components(const io::Plan& plan) {
  if (plan.model.is_encoder && plan.model.pictures.in_cross) return true;
  return std::ranges::any_of(plan.model.ropes,
                             [](const io::RopeTable& rope) { return !rope.components.empty(); });
}

int32_t embedding_width(const io::Plan& plan) {
  for (const io::Call& call : plan.calls)
    if (const auto* embed = std::get_if<kernels::ids::Embed>(&call.op))
      return static_cast<int32_t>(plan.weights[static_cast<size_t>(embed->table)].k);
  return 0;
}

int32_t feature_width(const io::Plan& plan) {
  return embedding_width(plan) * (1 + plan.model.pictures.deep_layers);
}

size_t feature_block_bytes(const io::Plan& plan, const RunnerLimits& limits) {
  return static_cast<size_t>(limits.block_tokens) * static_cast<size_t>(feature_width(plan)) *
         sizeof(BF16);
}

size_t cross_block_bytes(const io::Plan& plan, const RunnerLimits& limits) {
  return KvLayout::of(cross_group(plan), limits).block;
}

int32_t cross_blocks_per_input(const RunnerLimits& limits) {
  return (limits.cross_length() + limits.block_tokens - 1) / limits.block_tokens;
}

int32_t blocks_held_per_sequence(const RunnerLimits& limits, const CacheGroup& group) {
  const int32_t all = blocks_per_sequence(limits);
  if (group.window == 0) return all;
  const int64_t t = limits.block_tokens;
  // Window before the step's first token + the step's tokens + a partial block at each end.
  const int64_t recent = (int64_t{group.window} + limits.max_tokens + t - 1) / t + 1;
  const int64_t held = recent + (group.sink + t - 1) / t;
  return static_cast<int32_t>(std::min<int64_t>(all, held));
}

int32_t window_of(int32_t window, const RunnerLimits& limits) {
  if (window == 0 || limits.window == 0) return std::max(window, limits.window);
  return std::min(window, limits.window);
}

size_t arena_bytes(const io::Plan& plan, const RunnerLimits& limits, io::RowCount extent) {
  const int32_t rows =
      extent == io::RowCount::kTokens ? limits.max_tokens : limits.num_logits_rows();
  return static_cast<size_t>(plan.arena_bytes_per_row[static_cast<int>(extent)]) * rows;
}

size_t fused_bytes(const io::Plan& plan, const DeviceInfo& device) {
  return device.kind == DeviceKind::kCpu ? 0 : FusionSites(plan).bytes();
}

size_t rope_table_floats(const io::RopeTable& rope, const RunnerLimits& limits) {
  return static_cast<size_t>(limits.max_sequence_length) * 2 * rope.inverse_frequencies.size();
}

size_t rope_table_bytes(const io::Plan& plan, const RunnerLimits& limits) {
  size_t floats = 0;
  size_t components = 0;
  for (const io::RopeTable& rope : plan.model.ropes) {
    floats += rope_table_floats(rope, limits);
    components += rope.components.size();
  }
  return floats * sizeof(float) + components * sizeof(int32_t);
}

size_t SamplingBytes::total(int32_t depth) const {
  const auto steps = static_cast<size_t>(depth);
  return rows + params + results + history + steps * (staging + results + top);
}

SamplingBytes sampling_bytes(const RunnerLimits& limits) {
  const auto slots = static_cast<size_t>(limits.max_rows);
  const auto rows = static_cast<size_t>(limits.num_logits_rows());
  SamplingBytes bytes{
      .rows = rows * sizeof(kernels::SampleRow),
      .params = slots * sizeof(kernels::SampleParams),
      .results = rows * sizeof(kernels::SampleResult),
      .top = rows * kernels::kMaxTopTokens * sizeof(kernels::TopToken),
      .history = slots * static_cast<size_t>(limits.max_sequence_length) * sizeof(int32_t)};
  bytes.staging = round_up(bytes.rows, kUploadAlignment) +
                  slots * round_up(sizeof(kernels::SampleParams), kUploadAlignment);
  return bytes;
}

std::vector<MemoryItem> memory_table(const io::Plan& plan, const RunnerLimits& limits,
                                     const DeviceInfo& device) {
  // Staging areas in host memory, the device's copy, slot tokens.
  const std::vector<CacheGroup> groups = cache_groups(plan, limits);
  const size_t slots = static_cast<size_t>(limits.max_rows) * sizeof(int32_t);
  const size_t num_copies = static_cast<size_t>(limits.depth) + 1;
  const size_t step_data = num_copies * StepData::max_bytes(limits, groups.size()) + slots;
  std::vector<MemoryItem> table = {{"weights", plan.blob_bytes}};
  const auto add_cache = [&](std::string_view where, const PerGroup<int32_t>& num_blocks) {
    for (size_t g = 0; g < groups.size(); ++g) {
      std::string what(where);
      if (groups.size() > 1) what += fmt::format(" of {} layers", groups[g].layers.size());
      if (groups.size() > 1 && groups[g].window > 0)
        what += fmt::format(" with a window of {}", groups[g].window);
      table.push_back({std::move(what),
                       KvLayout::of(groups[g], limits).block * static_cast<size_t>(num_blocks[g])});
    }
  };
  add_cache("KV cache", limits.num_blocks);
  if (limits.num_feature_blocks > 0)
    table.push_back({"features of pictures", feature_block_bytes(plan, limits) *
                                                 static_cast<size_t>(limits.num_feature_blocks)});
  if (plan.model.num_cross_layers > 0)
    table.push_back(
        {"KV cache of cross attention",
         cross_block_bytes(plan, limits) * static_cast<size_t>(limits.num_cross_blocks)});
  table.push_back({"activations", arena_bytes(plan, limits, io::RowCount::kTokens) +
                                      arena_bytes(plan, limits, io::RowCount::kSampled)});
  if (const size_t fused = fused_bytes(plan, device); fused > 0)
    table.push_back({"activations of few tokens", fused});
  table.push_back({"step data", step_data});
  if (plan.mapping.draws())
    table.push_back({"sampling", sampling_bytes(limits).total(limits.depth)});
  table.push_back({"rope table", rope_table_bytes(plan, limits)});
  if (limits.num_adapters > 0) {
    table.push_back({"adapters", AdapterPool::bytes(plan.modules, limits)});
    table.push_back({"loads of adapters", AdapterPool::staging_bytes(plan.modules, limits)});
  }
  table.push_back({"kernel workspace", device.workspace_bytes});
  add_cache("host KV cache", limits.num_host_blocks);
  for (MemoryItem& item : table) item.rank = plan.mapping.rank;
  return table;
}

namespace {

// Blocks by group of max_rows sequences of `length` blocks, at least of one of the longest.
PerGroup<int64_t> demand(const std::vector<CacheGroup>& groups, const RunnerLimits& limits,
                         int64_t length) {
  PerGroup<int64_t> blocks;
  for (size_t g = 0; g < groups.size(); ++g) {
    const int64_t longest = blocks_held_per_sequence(limits, groups[g]);
    blocks[g] = std::max(longest, limits.max_rows * std::min(longest, length));
  }
  return blocks;
}

double bytes_of(const PerGroup<int64_t>& blocks, const std::vector<CacheGroup>& groups,
                const RunnerLimits& limits) {
  double bytes = 0;
  for (size_t g = 0; g < groups.size(); ++g)
    bytes +=
        static_cast<double>(blocks[g]) * static_cast<double>(KvLayout::of(groups[g], limits).block);
  return bytes;
}

}  // namespace

PerGroup<int32_t> divide_blocks(const std::vector<CacheGroup>& groups, const RunnerLimits& limits,
                                const PerGroup<int64_t>& shares, size_t bytes) {
  unsigned __int128 total = 0;
  for (size_t g = 0; g < groups.size(); ++g)
    total += static_cast<unsigned __int128>(shares[g]) * KvLayout::of(groups[g], limits).block;
  PerGroup<int32_t> blocks;
  for (size_t g = 0; total > 0 && g < groups.size(); ++g)
    blocks[g] = static_cast<int32_t>(
        std::min<unsigned __int128>(static_cast<unsigned __int128>(shares[g]) * bytes / total,
                                    static_cast<unsigned __int128>(kMaxBlocks)));
  return blocks;
}

StatusOr<PerGroup<int32_t>> num_blocks_that_fit(const io::Plan& plan, const RunnerLimits& limits,
                                                const DeviceInfo& device, size_t budget_bytes) {
  RunnerLimits without = limits;
  without.num_blocks = without.num_host_blocks = 0;
  RETURN_IF_ERROR(check_limits(plan, without));
  const std::vector<MemoryItem> table = memory_table(plan, without, device);
  size_t fixed = 0;
  for (const MemoryItem& item : table) fixed += item.bytes;
  const size_t left = budget_bytes - std::min(fixed, budget_bytes);
  const std::vector<CacheGroup> groups = cache_groups(plan, limits);
  const auto fits = [&](int64_t length) {
    return bytes_of(demand(groups, limits, length), groups, limits) <= static_cast<double>(left);
  };
  if (!fits(0)) {
    std::string needed;
    for (const CacheGroup& group : groups)
      needed +=
          fmt::format("{}{} of {} bytes each", needed.empty() ? "" : " and ",
                      blocks_held_per_sequence(limits, group), KvLayout::of(group, limits).block);
    return resource_exhausted(
        "a memory budget of {:.1f} MiB leaves {:.1f} MiB for KV blocks; one sequence of {} "
        "positions needs {} (besides: {})",
        static_cast<double>(budget_bytes) / (1 << 20), static_cast<double>(left) / (1 << 20),
        limits.max_sequence_length, needed, describe(table));
  }
  int64_t low = 0, high = int64_t{blocks_per_sequence(limits)} + 1;  // result in [low, high)
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return divide_blocks(groups, limits, demand(groups, limits, low), left);
}

}  // namespace nereid::exec
