// Messages between leader and workers, field by field.
#include "runtime/ranks/rank_wire.h"

#include <concepts>

#include "base/hash.h"

namespace nereid::runtime {

// T, const or not.
template <class T, class U>
concept MaybeConst = std::same_as<std::remove_const_t<T>, U>;

template <class Wire, MaybeConst<RankLoad> T>
void fields(Wire& wire, T& load) {
  wire(load.engine, load.checksum, load.limits, load.forced);
}
template <class Wire, MaybeConst<DeviceInfo> T>
void fields(Wire& wire, T& info) {
  wire(info.name, info.has_amx, info.has_avx512_bf16, info.has_avx512_vnni, info.has_avx512,
       info.has_avx2, info.kind, info.index, info.isa, info.sm, info.num_units, info.memory_bytes,
       info.free_bytes, info.workspace_bytes);
}
template <class Wire, MaybeConst<exec::CacheGroup> T>
void fields(Wire& wire, T& group) {
  wire(group.window, group.sink, group.num_kv_heads, group.head_dim, group.latent, group.layers);
}
template <class Wire, MaybeConst<exec::MemoryItem> T>
void fields(Wire& wire, T& item) {
  wire(item.what, item.bytes, item.rank);
}
template <class Wire, MaybeConst<RankModel> T>
void fields(Wire& wire, T& model) {
  wire(model.limits, model.groups, model.memory, model.vocab_size, model.hidden_size,
       model.num_states, model.embedding_width, model.weighs_drafts, model.draws);
}
template <class Wire, MaybeConst<exec::RankFigures> T>
void fields(Wire& wire, T& rank) {
  wire(rank.rank, rank.device, rank.num_steps, rank.exchange_seconds);
}
template <class Wire, MaybeConst<exec::OpTime> T>
void fields(Wire& wire, T& time) {
  wire(time.op, time.kernel, time.shape, time.num_calls, time.seconds, time.bytes, time.flops,
       time.busy);
}

namespace {

// `row`: a RowResult to write, or a StepReport::Row to read.
template <class Wire, class Row>
void row_arrays(Wire& wire, Row& row) {
  wire(row.drawn, row.path, row.likeliest, row.top, row.logits, row.hidden);
}

template <class T>
void put_or_error(Writer& to, const StatusOr<T>& value) {
  to(value.status());
  if (value.ok()) to(*value);
}

template <class T>
Status get_all(std::span<const std::byte> message, T& value) {
  Reader from(message);
  from(value);
  return from.finish();
}

template <class T>
StatusOr<T> get_or_error(std::span<const std::byte> message) {
  Reader from(message);
  Status status;
  from(status);
  if (from.ok() && !status.ok()) return status;
  T value;
  from(value);
  RETURN_IF_ERROR(from.finish());
  return value;
}

}  // namespace

void put(Writer& to, const RankLoad& load) { to(load); }

StatusOr<RankLoad> get_load(std::span<const std::byte> message) {
  RankLoad load;
  RETURN_IF_ERROR(get_all(message, load));
  return load;
}

void put(Writer& to, const StatusOr<DeviceInfo>& info) { put_or_error(to, info); }

StatusOr<DeviceInfo> get_device(std::span<const std::byte> message) {
  return get_or_error<DeviceInfo>(message);
}

RankModel model_of(const exec::Runner& runner) {
  return {.limits = runner.limits(),
          .groups = {runner.groups().begin(), runner.groups().end()},
          .memory = runner.memory(),
          .vocab_size = runner.vocab_size(),
          .hidden_size = runner.hidden_size(),
          .num_states = runner.num_states(),
          .embedding_width = runner.embedding_width(),
          .weighs_drafts = runner.weighs_drafts(),
          .draws = runner.draws()};
}

void put(Writer& to, const StatusOr<RankModel>& model) { put_or_error(to, model); }

StatusOr<RankModel> get_model(std::span<const std::byte> message) {
  return get_or_error<RankModel>(message);
}

void put_report(Writer& to, uint64_t history, const std::vector<exec::RankFigures>& figures,
                const std::vector<Status>& onboarded, const StatusOr<exec::StepResult>& result) {
  to(history, figures, onboarded, result.status());
  if (!result.ok()) return;
  to(static_cast<uint64_t>(result->size()));
  for (const exec::RowResult& row : *result) {
    to(row.status);
    row_arrays(to, row);
  }
}

Status get_report(std::span<const std::byte> message, StepReport& report) {
  Reader from(message);
  report.rows.clear();
  from(report.history, report.figures, report.onboarded, report.status);
  if (!from.ok() || !report.status.ok()) return from.finish();
  uint64_t num_rows = 0;
  from(num_rows);
  if (num_rows > message.size()) return data_loss("a step's result has {} rows", num_rows);
  if (report.memory.size() < num_rows) report.memory.resize(num_rows);
  for (uint64_t i = 0; i < num_rows; ++i) {
    StepReport::Row& row = report.memory[i];
    Status status;
    from(status);
    row_arrays(from, row);
    report.rows.push_back({.status = status,
                           .drawn = row.drawn,
                           .path = row.path,
                           .likeliest = row.likeliest,
                           .top = row.top,
                           .logits = row.logits,
                           .hidden = row.hidden});
  }
  return from.finish();
}

void put_paths(Writer& to, exec::StepResult drawn) {
  to(static_cast<uint64_t>(drawn.size()));
  for (const exec::RowResult& row : drawn) to(row.drawn, row.path);
}

Status get_paths(std::span<const std::byte> message, StepReport& report) {
  Reader from(message);
  uint64_t num_rows = 0;
  from(num_rows);
  if (num_rows > message.size()) return data_loss("accepted drafts of {} rows", num_rows);
  report.rows.clear();
  if (report.memory.size() < num_rows) report.memory.resize(num_rows);
  for (uint64_t i = 0; i < num_rows; ++i) {
    StepReport::Row& row = report.memory[i];
    from(row.drawn, row.path);
    report.rows.push_back({.drawn = row.drawn, .path = row.path});
  }
  return from.finish();
}

void put_statuses(Writer& to, const std::vector<Status>& statuses) { to(statuses); }

Status get_statuses(std::span<const std::byte> message, std::vector<Status>& statuses) {
  return get_all(message, statuses);
}

void put_times(Writer& to, const std::vector<exec::OpTime>& times) { to(times); }

Status get_times(std::span<const std::byte> message, std::vector<exec::OpTime>& times) {
  return get_all(message, times);
}

uint64_t next_history(uint64_t history, std::span<const std::byte> message) {
  return hash64(message.data(), message.size(), history);
}

}  // namespace nereid::runtime
