#include "exec/attention_scores.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace nereid::exec {
namespace {

// Numbers of a step; a scheduler that shares prompts out in chunks stays far below.
constexpr int64_t kMaxNumbers = int64_t{64} << 20;

int64_t numbers_of(const StepRow& row) { return int64_t{row.num_tokens} * row.cross_length; }

}  // namespace

Status AttentionScores::check(const StepRow& row, std::span<const ScoredHead> heads) const {
  if (row.cross_length < 1)
    return invalid_argument("scores of {} heads and no encoder output", heads.size());
  for (const ScoredHead& head : heads)
    if (head.layer < 0 || head.layer >= heads_.num_layers || head.head < 0 ||
        head.head >= heads_.num_heads)
      return invalid_argument("scores of head {} of layer {}; there are {} heads and {} layers",
                              head.head, head.layer, heads_.num_heads, heads_.num_layers);
  return ok();
}

Status AttentionScores::stage(const StepMessageView& message, int32_t index) {
  const bool is_asked = std::ranges::any_of(
      message.rows, [](const StepRow& row) { return row.num_scored_heads != 0; });
  if (!is_asked) {
    if (!message.scored_heads.empty())
      return invalid_argument("{} scored heads belong to no row", message.scored_heads.size());
    if (!staging_.empty()) staging_[static_cast<size_t>(index)].rows.clear();
    return ok();
  }
  if (staging_.empty()) return invalid_argument("scores of cross attention: the model has none");
  std::span<const ScoredHead> left = message.scored_heads;
  int64_t numbers = 0;
  for (const StepRow& row : message.rows) {
    if (row.num_scored_heads < 0 || row.num_scored_heads > std::ssize(left))
      return invalid_argument("{} scored heads of a row; {} are left", row.num_scored_heads,
                              left.size());
    const auto own = left.first(static_cast<size_t>(row.num_scored_heads));
    left = left.subspan(own.size());
    if (own.empty()) continue;
    RETURN_IF_ERROR(check(row, own));
    if (numbers_of(row) > (kMaxNumbers - numbers) / row.num_scored_heads)
      return invalid_argument("more than {} scores of cross attention in a step", kMaxNumbers);
    numbers += numbers_of(row) * row.num_scored_heads;
  }
  if (!left.empty()) return invalid_argument("{} scored heads belong to no row", left.size());

  Staging& staging = staging_[static_cast<size_t>(index)];
  staging.calls.clear(), staging.rows.clear(), staging.asks.clear();
  staging.bytes = static_cast<size_t>(numbers) * sizeof(float);
  staging.status = reserve(staging);
  left = message.scored_heads;
  int32_t token = 0;
  size_t at = 0;  // index of the next score in the staged block
  for (const StepRow& row : message.rows) {
    const auto own = left.first(static_cast<size_t>(row.num_scored_heads));
    left = left.subspan(own.size());
    staging.asks.push_back(!own.empty());
    const size_t begin = at, size = static_cast<size_t>(numbers_of(row));
    for (const ScoredHead& head : own) {
      if (staging.status.ok())
        staging.calls.push_back({.layer = head.layer,
                                 .head = head.head,
                                 .first_token = token,
                                 .num_tokens = row.num_tokens,
                                 .num_positions = row.cross_length,
                                 .out = static_cast<float*>(staging.device.data()) + at});
      at += size;
    }
    staging.rows.emplace_back();
    if (staging.status.ok() && !own.empty())
      staging.rows.back() = {static_cast<const float*>(staging.host.data()) + begin, at - begin};
    token += row.num_tokens;
  }
  return ok();
}

Status AttentionScores::reserve(Staging& staging) const {
  if (staging.bytes <= staging.device.size()) return ok();
  const size_t grown = std::bit_ceil(staging.bytes);
  auto host = device_->allocate_host(grown);
  auto device = host.ok() ? device_->allocate(grown) : host.status();
  if (!device.ok())
    return annotate(device.status(),
                    fmt::format("{} bytes of attention scores of one step", staging.bytes));
  staging.host = *std::move(host);
  staging.device = *std::move(device);
  return ok();
}

std::span<const ScoreCall> AttentionScores::calls(int32_t index) const {
  if (staging_.empty() || staging_[static_cast<size_t>(index)].rows.empty()) return {};
  return staging_[static_cast<size_t>(index)].calls;
}

Status AttentionScores::read(int32_t index, Stream& stream) const {
  if (calls(index).empty()) return ok();
  const Staging& staging = staging_[static_cast<size_t>(index)];
  return stream.copy(staging.host.data(), staging.device.data(), staging.bytes);
}

StepResult AttentionScores::add_to(StepResult results, int32_t index) {
  if (staging_.empty() || staging_[static_cast<size_t>(index)].rows.empty()) return results;
  Staging& staging = staging_[static_cast<size_t>(index)];
  staging.results.assign(results.begin(), results.end());
  for (size_t r = 0; r < staging.results.size(); ++r) {
    RowResult& result = staging.results[r];
    if (!staging.asks[r] || !result.status.ok()) continue;
    if (staging.status.ok())
      result.scores = staging.rows[r];
    else
      result = {.status = staging.status};
  }
  return staging.results;
}

}  // namespace nereid::exec
