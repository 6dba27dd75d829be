// Sampler: stages kernels::SampleRow values and picks the kernel.
#include "runtime/sampler.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "sched/sequence.h"

namespace nereid::runtime {
namespace {

using kernels::Sample;
using kernels::SampleRow;

SampleRow parameters(const sched::Row& row) {
  const SamplingConfig& config = row.sequence->sampling();
  SampleRow out;
  out.seed = config.seed.value_or(0);
  out.position = row.end();
  out.slot = row.slot;
  out.top_k = config.top_k.value_or(0);
  out.top_p = config.top_p.value_or(0);
  out.temperature = config.temperature.value_or(1);
  return out;
}

bool is_greedy(const SampleRow& row) {
  return row.temperature == 0 || row.top_k == 1 || (row.top_k == 0 && row.top_p == 0);
}

}  // namespace

StatusOr<std::unique_ptr<Sampler>> Sampler::create(Device& device,
                                                   const kernels::Registry& registry,
                                                   const kernels::Choices& forced, int32_t max_rows,
                                                   int32_t vocab_size) {
  auto sampler = std::unique_ptr<Sampler>(new Sampler());
  sampler->max_rows_ = max_rows;
  sampler->vocab_size_ = vocab_size;
  const auto& table = registry.table<Sample>();
  Sample::Problem problem{.rows = max_rows, .vocab = vocab_size};
  ASSIGN_OR_RETURN(sampler->general_, kernels::select(table, problem, device.info(), forced));
  problem.all_greedy = true;
  ASSIGN_OR_RETURN(sampler->greedy_, kernels::select(table, problem, device.info(), forced));
  const size_t bytes =
      static_cast<size_t>(max_rows) * (sizeof(SampleRow) + kMaxBannedIds * sizeof(int32_t));
  for (Staging& staging : sampler->staging_) {
    ASSIGN_OR_RETURN(staging.host, device.allocate_host(bytes));
    ASSIGN_OR_RETURN(staging.device, device.allocate(bytes));
    const size_t drawn = static_cast<size_t>(max_rows) * sizeof(TokenId);
    ASSIGN_OR_RETURN(staging.drawn, device.allocate(drawn));
    ASSIGN_OR_RETURN(staging.drawn_host, device.allocate_host(drawn));
  }
  return sampler;
}

Sampler::Prepared Sampler::prepare(std::span<const sched::Row> rows) {
  const int32_t area = turn_;
  Staging& staging = staging_[area];
  turn_ ^= 1;
  auto* parameter_rows = static_cast<SampleRow*>(staging.host.data());
  const size_t banned_offset = static_cast<size_t>(max_rows_) * sizeof(SampleRow);
  auto* banned = reinterpret_cast<int32_t*>(staging.host.bytes() + banned_offset);
  int32_t num_rows = 0, num_banned = 0;
  bool all_greedy = true;
  for (const sched::Row& row : rows) {
    if (!row.samples) continue;
    NEREID_CHECK(num_rows < max_rows_);
    SampleRow& out = parameter_rows[num_rows++];
    out = parameters(row);
    all_greedy &= is_greedy(out);
    const auto ids = row.sequence->banned_ids(row.end());
    NEREID_CHECK(ids.size() <= kMaxBannedIds);
    out.banned_begin = num_banned;
    std::ranges::copy(ids, banned + num_banned);
    num_banned += static_cast<int32_t>(ids.size());
    out.banned_end = num_banned;
  }
  staging.num_drawn = num_rows;
  const size_t bytes = banned_offset + static_cast<size_t>(num_banned) * sizeof(int32_t);
  const Kernel* kernel = all_greedy ? greedy_ : general_;
  auto hook = [=, vocab = vocab_size_, host = staging.host.data(), device = staging.device.bytes(),
               drawn = static_cast<TokenId*>(staging.drawn.data()),
               drawn_host = staging.drawn_host.data()](const exec::Logits& in,
                                                       Stream& stream) -> Status {
    if (num_rows == 0) return ok();
    NEREID_CHECK(in.logits.rows == num_rows);
    RETURN_IF_ERROR(stream.copy(device, host, bytes));
    Sample::Args args;
    args.problem = {.rows = num_rows, .vocab = vocab, .all_greedy = all_greedy};
    args.logits = in.logits;
    args.rows = reinterpret_cast<const SampleRow*>(device);
    args.banned = reinterpret_cast<const int32_t*>(device + banned_offset);
    args.tokens = drawn;
    args.slot_tokens = in.slot_tokens;
    RETURN_IF_ERROR(kernel->run(args, stream));
    return stream.copy(drawn_host, drawn, static_cast<size_t>(num_rows) * sizeof(TokenId));
  };
  return {std::move(hook), area};
}

std::span<const TokenId> Sampler::results(int32_t area) const {
  const Staging& staging = staging_[area];
  return {static_cast<const TokenId*>(staging.drawn_host.data()),
          static_cast<size_t>(staging.num_drawn)};
}

}  // namespace nereid::runtime
