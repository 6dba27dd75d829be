// Sampler: loads slots, stages steps, picks the kernel, hands out what was drawn.
#include "runtime/sampler.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/round_up.h"
#include "exec/memory.h"
#include "runtime/sample_params.h"
#include "sched/sequence.h"

namespace nereid::runtime {
namespace {

using kernels::Sample;
using kernels::SampleParams;
using kernels::SampleResult;
using kernels::SampleRow;
using kernels::TopToken;

constexpr size_t kKeptListBytes = 65536;  // a slot's longer lists go when the next one has none

}  // namespace

StatusOr<std::unique_ptr<Sampler>> Sampler::create(Device& device,
                                                   const kernels::Registry& registry,
                                                   const kernels::Choices& forced,
                                                   const Options& options) {
  NEREID_CHECK(options.max_rows > 0 && options.max_logits >= options.max_rows &&
               options.max_sequence_length > 0);
  auto sampler = std::unique_ptr<Sampler>(new Sampler(device, options));
  const auto& table = registry.table<Sample>();
  Sample sample;
  sample.problem = {.rows = options.max_rows, .vocab = options.vocab_size};
  ASSIGN_OR_RETURN(sampler->general_, kernels::select(table, sample, device.info(), forced));
  sample.problem.all_greedy = true;
  ASSIGN_OR_RETURN(sampler->greedy_, kernels::select(table, sample, device.info(), forced));
  sampler->slots_.resize(static_cast<size_t>(options.max_rows));
  const exec::SamplingBytes bytes =
      exec::sampling_bytes(options.max_rows, options.max_sequence_length);
  ASSIGN_OR_RETURN(sampler->rows_, device.allocate(bytes.rows));
  ASSIGN_OR_RETURN(sampler->params_, device.allocate(bytes.params));
  ASSIGN_OR_RETURN(sampler->results_, device.allocate(bytes.results));
  ASSIGN_OR_RETURN(sampler->top_, device.allocate(bytes.top));
  ASSIGN_OR_RETURN(sampler->history_, device.allocate(bytes.history));
  sampler->staging_bytes_ = bytes.staging;
  for (Area& area : sampler->areas_) {
    ASSIGN_OR_RETURN(area.staging, device.allocate_host(bytes.staging));
    ASSIGN_OR_RETURN(area.results, device.allocate_host(bytes.results));
    ASSIGN_OR_RETURN(area.top, device.allocate_host(bytes.top));
  }
  return sampler;
}

Sampler::Prepared Sampler::prepare(std::span<const sched::Row> rows) {
  Area& area = areas_[turn_];
  area.rows.clear(), area.uploads.clear(), area.copies.clear(), area.retired.clear();
  area.context.assign(rows.size(), {}), area.generation.assign(rows.size(), {});
  area.status.assign(rows.size(), ok());
  area.drawn.clear();
  area.all_greedy = true, area.wants_top = false, area.wants_raw = false;
  area.num_logits = area.num_read = 0;
  area.num_staged = area.num_extra = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const sched::Row& row = rows[i];
    const int64_t first = area.num_logits;
    area.num_logits += row.num_logits();
    NEREID_CHECK(area.num_logits <= options_.max_logits);
    area.status[i] = add_row(area, i, row, first);
    if (!area.status[i].ok()) slots_[static_cast<size_t>(row.slot)].next_position = -1;
  }
  if (!area.rows.empty())
    upload(area, rows_.data(), area.rows.data(), area.rows.size() * sizeof(SampleRow));
  return {[this, &area](const exec::Logits& in, Stream& stream) { return run(area, in, stream); },
          std::exchange(turn_, turn_ ^ 1)};
}

// `first`: its first row of logits.
Status Sampler::add_row(Area& area, size_t i, const sched::Row& row, int64_t first) {
  const bool generation = row.samples && row.sequence->spec().output.return_generation_logits;
  const int64_t wanted = row.all_logits ? row.num_tokens : generation ? 1 : 0;
  RETURN_IF_ERROR(reserve_logits(area, area.num_read + wanted));
  if (row.samples) RETURN_IF_ERROR(add_sample(area, row, area.num_logits - 1));
  if (wanted == 0) return ok();
  area.copies.push_back({first, wanted, area.num_read});
  if (row.all_logits) area.context[i] = {area.num_read, wanted};
  area.num_read += wanted;
  if (generation) area.generation[i] = {area.num_read - 1, 1};
  return ok();
}

// Takes all memory first, so that nothing is half done when there is none.
Status Sampler::add_sample(Area& area, const sched::Row& row, int64_t logits_row) {
  Slot& slot = slots_[static_cast<size_t>(row.slot)];
  const bool loaded = slot.sequence == row.sequence->id() && slot.beam == row.beam &&
                      slot.next_position == row.end();
  SlotParams wanted;
  if (!loaded)
    wanted = slot_params(row.sequence->spec(), row.sequence->num_prompt(), options_.vocab_size);
  const SampleParams params = loaded ? slot.params : wanted.params;
  const bool wants_raw =
      params.log_probs == kernels::LogProbs::kRaw && kernels::edits_logits(params, row.end());
  // The host decides how a beam goes on, so its tokens may be another beam's by now.
  std::span<const TokenId> history;
  if (params.keeps_history && (!loaded || !params.draws)) {
    history = row.sequence->tokens(row.beam);
    NEREID_CHECK(row.end() <= options_.max_sequence_length);
    // Only after a failure, which ends the sequence.
    if (history.size() < static_cast<size_t>(row.end()))
      return unavailable("the step before, which draws a token of this one, failed");
    history = history.first(static_cast<size_t>(row.end()));
  }
  const size_t list_bytes = wanted.cells.size() * sizeof(int32_t);
  if (wants_raw) RETURN_IF_ERROR(reserve_raw_logits());
  if (!loaded) RETURN_IF_ERROR(reserve_lists(area, list_bytes, slot));
  RETURN_IF_ERROR(reserve_staging(area, list_bytes, history.size_bytes()));

  if (!loaded) load(area, row, std::move(wanted), slot);
  if (!history.empty())
    upload(
        area,
        static_cast<int32_t*>(history_.data()) + int64_t{row.slot} * options_.max_sequence_length,
        history.data(), history.size_bytes());
  slot.next_position = row.end() + 1;
  area.rows.push_back({row.slot, row.end(), static_cast<int32_t>(logits_row)});
  area.all_greedy &= is_plain_greedy(params);
  area.wants_top |= params.num_top > 0;
  area.wants_raw |= wants_raw;
  return ok();
}

Status Sampler::reserve_logits(Area& area, int64_t num_rows) {
  const auto row_bytes = static_cast<size_t>(vocab()) * sizeof(float);
  const size_t bytes = static_cast<size_t>(num_rows) * row_bytes;
  if (bytes <= area.logits.size()) return ok();
  // Twice as much, so that a batch of such rows makes few copies.
  const size_t most = static_cast<size_t>(options_.max_logits) * row_bytes;
  auto grown = device_.allocate_host(std::min(std::max(bytes, 2 * area.logits.size()), most));
  if (!grown.ok())
    return annotate(grown.status(), fmt::format("{} bytes of logits of one step", bytes));
  area.logits = *std::move(grown);  // nothing was written for this step yet
  return ok();
}

Status Sampler::reserve_raw_logits() {
  if (raw_logits_.data()) return ok();
  const size_t bytes = static_cast<size_t>(options_.max_logits * vocab()) * sizeof(float);
  auto logits = device_.allocate(bytes);
  if (!logits.ok())
    return annotate(logits.status(),
                    fmt::format("log_probs_mode raw: {} bytes for a copy of the logits", bytes));
  raw_logits_ = *std::move(logits);
  return ok();
}

Status Sampler::reserve_lists(Area& area, size_t bytes, Slot& slot) {
  // The step before may still read the old lists; it is waited for before this area's next turn.
  if (slot.lists.size() >= bytes && (bytes > 0 || slot.lists.size() <= kKeptListBytes)) return ok();
  slot.next_position = -1;
  area.retired.push_back(std::exchange(slot.lists, {}));
  if (bytes == 0) return ok();
  auto lists = device_.allocate(std::bit_ceil(bytes));
  if (!lists.ok())
    return annotate(lists.status(),
                    fmt::format("{} bytes of biases, bad words and end ids", bytes));
  slot.lists = *std::move(lists);
  return ok();
}

// Rows and parameters always have room; see exec::SamplingBytes.
Status Sampler::reserve_staging(Area& area, size_t list_bytes, size_t history_bytes) {
  const size_t extra = round_up(list_bytes, exec::kUploadAlignment) +
                       round_up(history_bytes, exec::kUploadAlignment);
  if (const size_t bytes = staging_bytes_ + area.num_extra + extra; bytes > area.staging.size()) {
    auto grown = device_.allocate_host(std::bit_ceil(bytes));
    if (!grown.ok())
      return annotate(grown.status(), fmt::format("{} bytes of lists and {} of tokens to upload",
                                                  list_bytes, history_bytes));
    std::memcpy(grown->data(), area.staging.data(), area.num_staged);
    area.staging = *std::move(grown);
  }
  area.num_extra += extra;
  return ok();
}

void Sampler::load(Area& area, const sched::Row& row, SlotParams wanted, Slot& slot) {
  const size_t bytes = wanted.cells.size() * sizeof(int32_t);
  wanted.params.lists = reinterpret_cast<uintptr_t>(slot.lists.data());
  slot.sequence = row.sequence->id();
  slot.beam = row.beam;
  slot.params = wanted.params;
  upload(area, static_cast<SampleParams*>(params_.data()) + row.slot, &slot.params,
         sizeof(SampleParams));
  if (bytes > 0) upload(area, slot.lists.data(), wanted.cells.data(), bytes);
}

// Host memory of the area takes all that the step uploads, so that it outlives the copies.
void Sampler::upload(Area& area, void* to, const void* from, size_t bytes) {
  NEREID_CHECK(area.num_staged + bytes <= area.staging.size());
  area.uploads.push_back({to, area.num_staged, bytes});
  std::memcpy(area.staging.bytes() + area.num_staged, from, bytes);
  area.num_staged = round_up(area.num_staged + bytes, exec::kUploadAlignment);
}

// On the stream.
Status Sampler::run(const Area& area, const exec::Logits& in, Stream& stream) const {
  NEREID_CHECK(in.logits.rows == area.num_logits && in.logits.cols == vocab() &&
               in.logits.stride == vocab());
  RETURN_IF_ERROR(copy_logits(area, in.logits, stream));
  const size_t num_rows = area.rows.size();
  if (num_rows == 0) return ok();
  for (const Upload& u : area.uploads)
    RETURN_IF_ERROR(stream.copy(u.to, area.staging.bytes() + u.offset, u.bytes));
  Sample args;
  args.problem = {static_cast<int64_t>(num_rows), vocab(), area.all_greedy};
  args.logits = in.logits;
  if (area.wants_raw) {
    args.raw_logits = View::matrix(raw_logits_.data(), DType::kF32, area.num_logits, vocab());
    RETURN_IF_ERROR(stream.copy(raw_logits_.data(), in.logits.data,
                                static_cast<size_t>(area.num_logits * vocab()) * sizeof(float)));
  }
  args.rows = static_cast<const SampleRow*>(rows_.data());
  args.params = static_cast<const SampleParams*>(params_.data());
  args.history = static_cast<int32_t*>(history_.data());
  args.history_stride = options_.max_sequence_length;
  args.results = static_cast<SampleResult*>(results_.data());
  args.top = static_cast<TopToken*>(top_.data());
  args.top_stride = area.wants_top ? kernels::kMaxTopTokens : 0;
  args.slot_tokens = in.slot_tokens;
  RETURN_IF_ERROR((area.all_greedy ? greedy_ : general_)->run(args, stream));
  RETURN_IF_ERROR(
      stream.copy(area.results.data(), results_.data(), num_rows * sizeof(SampleResult)));
  if (!area.wants_top) return ok();
  return stream.copy(area.top.data(), top_.data(),
                     num_rows * kernels::kMaxTopTokens * sizeof(TopToken));
}

Status Sampler::copy_logits(const Area& area, const View& logits, Stream& stream) const {
  for (const LogitsCopy& copy : area.copies)
    RETURN_IF_ERROR(stream.copy(static_cast<float*>(area.logits.data()) + copy.to_row * vocab(),
                                logits.row<float>(copy.first_row),
                                static_cast<size_t>(copy.num_rows * vocab()) * sizeof(float)));
  return ok();
}

std::span<const sched::Drawn> Sampler::results(int32_t index) {
  Area& area = areas_[index];
  if (area.drawn.size() == area.rows.size()) return area.drawn;
  const auto* results = static_cast<const SampleResult*>(area.results.data());
  const auto* top = static_cast<const TopToken*>(area.top.data());
  area.drawn_top.resize(area.wants_top ? area.rows.size() * kernels::kMaxTopTokens : 0);
  for (size_t i = 0; i < area.rows.size(); ++i) {
    const SampleResult& result = results[i];
    sched::Drawn drawn{
        .token = result.token, .log_prob = result.log_prob, .full_log_prob = result.log_prob};
    if (options_.normalize_log_probs) drawn.log_prob -= result.log_kept;
    if (area.wants_top) {
      const size_t first = i * kernels::kMaxTopTokens;
      size_t count = 0;
      for (; count < kernels::kMaxTopTokens && top[first + count].token >= 0; ++count)
        area.drawn_top[first + count] = {top[first + count].token, top[first + count].log_prob};
      drawn.top = {area.drawn_top.data() + first, count};
    }
    area.drawn.push_back(drawn);
  }
  return area.drawn;
}

const Status& Sampler::status(int32_t area, size_t i) const { return areas_[area].status.at(i); }

std::span<const float> Sampler::context_logits(int32_t area, size_t i) const {
  return logits_at(areas_[area], areas_[area].context.at(i));
}

std::span<const float> Sampler::generation_logits(int32_t area, size_t i) const {
  return logits_at(areas_[area], areas_[area].generation.at(i));
}

std::span<const float> Sampler::logits_at(const Area& area, const LogitsPlace& place) const {
  if (place.num_rows == 0) return {};
  return {static_cast<const float*>(area.logits.data()) + place.first_row * vocab(),
          static_cast<size_t>(place.num_rows * vocab())};
}

}  // namespace nereid::runtime
