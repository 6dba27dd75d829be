// Messages between leader and workers, field by field.
#include "runtime/ranks/rank_wire.h"

#include "base/hash.h"

namespace nereid::runtime {

void put(Writer& to, const RankLoad& load) {
  to.put_text(load.engine);
  to.put(load.checksum);
  to.put(load.limits);
  to.put_list(load.forced, [&](const std::string& choice) { to.put_text(choice); });
}

StatusOr<RankLoad> get_load(std::span<const std::byte> message) {
  Reader from(message);
  RankLoad load;
  load.engine = from.get_text();
  load.checksum = from.get<uint64_t>();
  load.limits = from.get<exec::RunnerLimits>();
  from.get_list(load.forced, [&] { return from.get_text(); });
  RETURN_IF_ERROR(from.finish());
  return load;
}

void put(Writer& to, const StatusOr<DeviceInfo>& opened) {
  to.put_status(opened.status());
  if (!opened.ok()) return;
  const DeviceInfo& info = *opened;
  to.put_text(info.name);
  for (const bool has :
       {info.has_amx, info.has_avx512_bf16, info.has_avx512_vnni, info.has_avx512, info.has_avx2})
    to.put(has);
  to.put(info.kind);
  to.put(info.index);
  to.put(info.isa);
  to.put(info.sm);
  to.put(info.num_units);
  to.put(info.memory_bytes);
  to.put(info.free_bytes);
  to.put(info.workspace_bytes);
}

StatusOr<DeviceInfo> get_device(std::span<const std::byte> message) {
  Reader from(message);
  const Status status = from.get_status();
  if (from.ok() && !status.ok()) return status;
  DeviceInfo info;
  info.name = from.get_text();
  for (bool* const has : {&info.has_amx, &info.has_avx512_bf16, &info.has_avx512_vnni,
                          &info.has_avx512, &info.has_avx2})
    *has = from.get<bool>();
  info.kind = from.get<DeviceKind>();
  info.index = from.get<int>();
  info.isa = from.get<Isa>();
  info.sm = from.get<int>();
  info.num_units = from.get<int>();
  info.memory_bytes = from.get<size_t>();
  info.free_bytes = from.get<size_t>();
  info.workspace_bytes = from.get<size_t>();
  RETURN_IF_ERROR(from.finish());
  return info;
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

void put(Writer& to, const StatusOr<RankModel>& model) {
  to.put_status(model.status());
  if (!model.ok()) return;
  to.put(model->limits);
  to.put_list(model->groups, [&](const exec::CacheGroup& group) {
    for (const int32_t n :
         {group.window, group.sink, group.num_kv_heads, group.head_dim, group.latent})
      to.put(n);
    to.put_array(std::span(group.layers));
  });
  to.put_list(model->memory, [&](const exec::MemoryItem& item) {
    to.put_text(item.what);
    to.put(item.bytes);
    to.put(item.rank);
  });
  for (const int32_t n :
       {model->vocab_size, model->hidden_size, model->num_states, model->embedding_width})
    to.put(n);
  to.put(model->weighs_drafts);
  to.put(model->draws);
}

StatusOr<RankModel> get_model(std::span<const std::byte> message) {
  Reader from(message);
  Status status = from.get_status();
  if (from.ok() && !status.ok()) return status;
  RankModel model;
  model.limits = from.get<exec::RunnerLimits>();
  from.get_list(model.groups, [&] {
    exec::CacheGroup group;
    for (int32_t* const n :
         {&group.window, &group.sink, &group.num_kv_heads, &group.head_dim, &group.latent})
      *n = from.get<int32_t>();
    from.get_array(group.layers);
    return group;
  });
  from.get_list(model.memory, [&] {
    exec::MemoryItem item;
    item.what = from.get_text();
    item.bytes = from.get<size_t>();
    item.rank = from.get<int32_t>();
    return item;
  });
  for (int32_t* const n :
       {&model.vocab_size, &model.hidden_size, &model.num_states, &model.embedding_width})
    *n = from.get<int32_t>();
  model.weighs_drafts = from.get<bool>();
  model.draws = from.get<bool>();
  RETURN_IF_ERROR(from.finish());
  return model;
}

void put_report(Writer& to, uint64_t history, const std::vector<exec::RankFigures>& figures,
                const std::vector<Status>& onboarded, const StatusOr<exec::StepResult>& result) {
  to.put(history);
  to.put_list(figures, [&](const exec::RankFigures& rank) {
    to.put(rank.rank);
    to.put_text(rank.device);
    to.put(rank.num_steps);
    to.put(rank.exchange_seconds);
  });
  put_statuses(to, onboarded);
  to.put_status(result.status());
  if (!result.ok()) return;
  to.put(static_cast<uint64_t>(result->size()));
  for (const exec::RowResult& row : *result) {
    to.put_status(row.status);
    to.put_array(row.drawn);
    to.put_array(row.path);
    to.put_array(row.likeliest);
    to.put_array(row.top);
    to.put_array(row.logits);
    to.put_array(row.hidden);
  }
}

namespace {

std::vector<Status> read_statuses(Reader& from) {
  std::vector<Status> statuses;
  from.get_list(statuses, [&] { return from.get_status(); });
  return statuses;
}

}  // namespace

Status get_report(std::span<const std::byte> message, StepReport& report) {
  Reader from(message);
  report.rows.clear();
  report.history = from.get<uint64_t>();
  from.get_list(report.figures, [&] {
    exec::RankFigures rank;
    rank.rank = from.get<int32_t>();
    rank.device = from.get_text();
    rank.num_steps = from.get<int64_t>();
    rank.exchange_seconds = from.get<double>();
    return rank;
  });
  report.onboarded = read_statuses(from);
  report.status = from.get_status();
  if (!from.ok() || !report.status.ok()) return from.finish();
  const auto num_rows = from.get<uint64_t>();
  if (num_rows > message.size()) return data_loss("a step's result has {} rows", num_rows);
  if (report.memory.size() < num_rows) report.memory.resize(num_rows);
  for (uint64_t i = 0; i < num_rows; ++i) {
    StepReport::Row& row = report.memory[i];
    const Status status = from.get_status();
    from.get_array(row.drawn);
    from.get_array(row.path);
    from.get_array(row.likeliest);
    from.get_array(row.top);
    from.get_array(row.logits);
    from.get_array(row.hidden);
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
  to.put(static_cast<uint64_t>(drawn.size()));
  for (const exec::RowResult& row : drawn) {
    to.put_array(row.drawn);
    to.put_array(row.path);
  }
}

Status get_paths(std::span<const std::byte> message, StepReport& report) {
  Reader from(message);
  const auto num_rows = from.get<uint64_t>();
  if (num_rows > message.size()) return data_loss("accepted drafts of {} rows", num_rows);
  report.rows.clear();
  if (report.memory.size() < num_rows) report.memory.resize(num_rows);
  for (uint64_t i = 0; i < num_rows; ++i) {
    StepReport::Row& row = report.memory[i];
    from.get_array(row.drawn);
    from.get_array(row.path);
    report.rows.push_back({.drawn = row.drawn, .path = row.path});
  }
  return from.finish();
}

void put_statuses(Writer& to, const std::vector<Status>& statuses) {
  to.put_list(statuses, [&](const Status& status) { to.put_status(status); });
}

Status get_statuses(std::span<const std::byte> message, std::vector<Status>& statuses) {
  Reader from(message);
  statuses = read_statuses(from);
  return from.finish();
}

void put_times(Writer& to, const std::vector<exec::OpTime>& times) {
  to.put_list(times, [&](const exec::OpTime& time) {
    to.put_text(time.op);
    to.put_text(time.kernel);
    to.put_text(time.shape);
    to.put(time.num_calls);
    to.put(time.seconds);
    to.put(time.bytes);
  });
}

Status get_times(std::span<const std::byte> message, std::vector<exec::OpTime>& times) {
  Reader from(message);
  from.get_list(times, [&] {
    exec::OpTime time;
    time.op = from.get_text();
    time.kernel = from.get_text();
    time.shape = from.get_text();
    time.num_calls = from.get<int64_t>();
    time.seconds = from.get<double>();
    time.bytes = from.get<uint64_t>();
    return time;
  });
  return from.finish();
}

uint64_t next_history(uint64_t history, std::span<const std::byte> message) {
  return hash64(message.data(), message.size(), history);
}

}  // namespace nereid::runtime
