// Binding of plan calls to kernels and memory, and the walk over them.
#include "exec/bound_plan.h"

#include <algorithm>
#include <optional>

#include "base/clock.h"
#include "exec/kv_cache.h"
#include "exec/memory.h"
#include "kernels/api/keys.h"

namespace nereid::exec {
namespace {

using kernels::Add;
using kernels::Attention;
using kernels::Embed;
using kernels::GatherRows;
using kernels::Glu;
using kernels::Linear;
using kernels::Norm;
using kernels::Rope;

// What changes in a call's arguments from step to step; `rows` is the call's extent in this step.

void set_step(Embed::Args& a, int64_t rows, const StepData& step) {
  a.problem.tokens = a.out.rows = rows;
  a.tokens = step.tokens;
}

void set_step(Norm::Args& a, int64_t rows, const StepData&) {
  a.problem.tokens = a.residual.rows = a.out.rows = rows;
  if (a.problem.has_add) a.add.rows = rows;
}

void set_step(Linear::Args& a, int64_t rows, const StepData&) {
  a.problem.tokens = a.x.rows = a.out.rows = rows;
}

void set_step(Rope::Args& a, int64_t rows, const StepData& step) {
  a.problem.tokens = a.qkv.rows = rows;
  a.positions = step.positions;
}

void set_step(Attention::Args& a, int64_t rows, const StepData& step) {
  a.problem.tokens = a.qkv.rows = a.out.rows = rows;
  a.positions = step.positions;
  a.num_rows = step.num_rows;
  a.row_begin = step.row_begin;
  a.row_of_token = step.row_of_token;
  a.block_table = step.block_table;
  a.max_blocks = step.max_blocks;
  a.max_length = step.max_length;
}

void set_step(Glu::Args& a, int64_t rows, const StepData&) {
  a.problem.tokens = a.x.rows = a.out.rows = rows;
}

void set_step(Add::Args& a, int64_t rows, const StepData&) {
  a.problem.tokens = a.x.rows = a.y.rows = rows;
}

void set_step(GatherRows::Args& a, int64_t rows, const StepData& step) {
  a.problem.rows = a.out.rows = rows;
  a.x.rows = step.num_tokens;
  a.rows = step.logit_tokens;
}

void set_rows(GatherRows::Problem& problem, int64_t rows) { problem.rows = rows; }
template <class Problem>
void set_rows(Problem& problem, int64_t rows) {
  problem.tokens = rows;
}

uint64_t bytes_read(const Linear::Args& a, const StepData&) {
  return io::stored_bytes(DType::kBF16, a.weight.n, a.weight.k, a.weight.layout);
}
uint64_t bytes_read(const Attention::Args& a, const StepData& step) {
  return static_cast<uint64_t>(step.num_positions) * 2 * a.problem.num_kv_heads *
         a.problem.head_dim * size_of(a.problem.kv);
}
template <class Args>
uint64_t bytes_read(const Args&, const StepData&) {
  return 0;
}

std::string shape_of(const Linear::Problem& p) { return fmt::format("[{}, {}]", p.n, p.k); }
template <class Problem>
std::string shape_of(const Problem&) {
  return "";
}

}  // namespace

class BoundPlan::Binder {
 public:
  Binder(const io::Plan& plan, const RunnerLimits& limits, const DeviceInfo& device,
         const kernels::Registry& registry, const DeviceMemory& memory, BoundPlan& out)
      : plan_(plan),
        limits_(limits),
        device_(device),
        registry_(registry),
        memory_(memory),
        out_(out) {}

  Status operator()(const io::EmbedCall& c) {
    Embed::Args a;
    a.table = weight(c.table);
    a.out = view(c.out);
    a.problem = {1, a.table.n, a.table.k, a.table.layout};
    a.slot_tokens = memory_.slot_tokens;
    return add<Embed>(c, a, c.out);
  }
  Status operator()(const io::NormCall& c) {
    Norm::Args a;
    a.residual = view(c.residual);
    if (c.add != io::kNone) a.add = view(c.add);
    a.weight = weight(c.weight).data;
    a.eps = c.eps;
    a.out = view(c.out);
    a.problem = {1, a.residual.cols, c.add != io::kNone, a.out.dtype};
    return add<Norm>(c, a, c.out);
  }
  Status operator()(const io::LinearCall& c) {
    Linear::Args a;
    a.x = view(c.x);
    a.weight = weight(c.weight);
    if (c.bias != io::kNone) a.bias = weight(c.bias).data;
    a.out = view(c.out);
    a.problem = {1, a.weight.n, a.weight.k, a.weight.layout, c.bias != io::kNone, a.out.dtype};
    return add<Linear>(c, a, c.out);
  }
  Status operator()(const io::RopeCall& c) {
    Rope::Args a;
    a.problem = {1, c.num_heads, c.num_kv_heads, c.head_dim};
    a.qkv = view(c.qkv);
    a.table = memory_.rope_table;
    return add<Rope>(c, a, c.qkv);
  }
  Status operator()(const io::AttentionCall& c) {
    Attention::Args a;
    a.problem = {.num_heads = c.num_heads,
                 .num_kv_heads = c.num_kv_heads,
                 .head_dim = c.head_dim,
                 .block_tokens = limits_.block_tokens,
                 .window = window_of(c, limits_),
                 .has_rope = c.has_rope,
                 .sink = limits_.sink,
                 .kv = limits_.kv_type,
                 .keys = kernels::key_layout(device_.kind, c.head_dim, limits_.block_tokens)};
    a.qkv = view(c.qkv);
    const KvLayout cache = KvLayout::of(plan_, limits_, limits_.num_blocks);
    a.k_cache = memory_.kv_cache + cache.keys(c.layer);
    a.v_cache = memory_.kv_cache + cache.values(c.layer);
    if (kernels::has_kv_scales(limits_.kv_type)) {
      a.k_scales = reinterpret_cast<float*>(memory_.kv_cache + cache.key_scales(c.layer));
      a.v_scales = reinterpret_cast<float*>(memory_.kv_cache + cache.value_scales(c.layer));
    }
    a.scale = c.scale;
    a.rope_table = c.has_rope ? memory_.rope_table : nullptr;
    a.out = view(c.out);
    return add<Attention>(c, a, c.out);
  }
  Status operator()(const io::GluCall& c) {
    Glu::Args a;
    a.x = view(c.x);
    a.out = view(c.out);
    a.problem = {1, a.out.cols, c.activation};
    return add<Glu>(c, a, c.out);
  }
  Status operator()(const io::AddCall& c) {
    Add::Args a;
    a.x = view(c.x);
    a.y = view(c.y);
    a.problem = {1, a.x.cols};
    return add<Add>(c, a, c.x);
  }
  Status operator()(const io::GatherRowsCall& c) {
    GatherRows::Args a;
    a.x = view(c.x);
    a.out = view(c.out);
    a.problem = {1, a.x.cols};
    return add<GatherRows>(c, a, c.out);
  }

  View view(io::ValueId id) const {
    const io::Value& v = plan_.values[static_cast<size_t>(id)];
    const auto extent = static_cast<int>(v.extent);
    std::byte* const data = memory_.arenas[extent] + v.offset * max_rows(v.extent) +
                            v.column * static_cast<int64_t>(size_of(v.dtype));
    return {data, v.dtype, 0, v.cols, v.stride};
  }

 private:
  int64_t max_rows(io::Extent extent) const {
    return extent == io::Extent::kTokens ? limits_.max_tokens : limits_.num_logits_rows();
  }

  kernels::WeightView weight(io::WeightId id) const {
    const io::Weight& w = plan_.weights[static_cast<size_t>(id)];
    return {memory_.weights + w.offset, w.layout, w.n, w.k};
  }

  template <class Op, class Call>
  Status add(const Call& call, const typename Op::Args& args, io::ValueId rows_of) {
    const io::Extent extent = plan_.values[static_cast<size_t>(rows_of)].extent;
    const kernels::Kernel<Op>* const kernel = find<Op>(call.kernel);
    if (!kernel)
      return invalid_argument("kernel '{}:{}' is not known on {}; known: {}", Op::kName,
                              call.kernel, device_.id(), known<Op>());
    for (const int64_t rows : {int64_t{1}, max_rows(extent)}) {
      typename Op::Problem problem = args.problem;
      set_rows(problem, rows);
      if (!kernel->can(problem, device_))
        return invalid_argument("kernel '{}:{}' cannot run {} rows on {} ({}, isa {})", Op::kName,
                                call.kernel, rows, device_.id(), device_.name,
                                name_of(device_.isa));
    }
    const ProfileEntry entry{std::string(Op::kName), call.kernel, shape_of(args.problem)};
    auto& entries = out_.profile_entries_;
    auto it = std::find(entries.begin(), entries.end(), entry);
    if (it == entries.end()) it = entries.insert(it, entry);
    out_.calls_.push_back(
        Bound<Op>{kernel->run, args, extent, static_cast<int32_t>(it - entries.begin())});
    return ok();
  }

  template <class Op>
  const kernels::Kernel<Op>* find(std::string_view name) const {
    for (const kernels::Kernel<Op>& kernel : registry_.template table<Op>())
      if (kernel.device == device_.kind && kernel.name == name) return &kernel;
    return nullptr;
  }

  template <class Op>
  std::string known() const {
    std::string names;
    for (const kernels::Kernel<Op>& kernel : registry_.template table<Op>())
      if (kernel.device == device_.kind)
        names += (names.empty() ? "" : ", ") + std::string(kernel.name);
    return names;
  }

  const io::Plan& plan_;
  const RunnerLimits& limits_;
  const DeviceInfo& device_;
  const kernels::Registry& registry_;
  const DeviceMemory& memory_;
  BoundPlan& out_;
};

StatusOr<BoundPlan> BoundPlan::bind(const io::Plan& plan, const RunnerLimits& limits,
                                    const DeviceInfo& device, const kernels::Registry& registry,
                                    const DeviceMemory& memory) {
  BoundPlan out;
  Binder binder(plan, limits, device, registry, memory, out);
  out.calls_.reserve(plan.calls.size());
  for (size_t i = 0; i < plan.calls.size(); ++i)
    if (Status status = std::visit(binder, plan.calls[i]); !status.ok())
      return annotate(status, fmt::format("call {}", i));
  out.logits_ = binder.view(plan.logits);
  return out;
}

Status BoundPlan::run(const StepData& step, Stream& stream, Profile* profile) const {
  const auto run_call = [&](const auto& bound) -> Status {
    const int64_t rows = bound.extent == io::Extent::kTokens ? step.num_tokens : step.num_logits;
    if (rows == 0) return ok();
    auto args = bound.args;
    set_step(args, rows, step);
    const Time start = profile ? now() : Time();
    RETURN_IF_ERROR(bound.run(args, stream));
    if (profile) {
      RETURN_IF_ERROR(stream.synchronize());
      profile->add(bound.profile_entry, seconds(now() - start), bytes_read(args, step));
    }
    return ok();
  };
  for (size_t i = 0; i < calls_.size(); ++i)
    if (Status status = std::visit(run_call, calls_[i]); !status.ok())
      return annotate(status, fmt::format("call {}", i));
  return ok();
}

View BoundPlan::logits(int64_t num_rows) const {
  View view = logits_;
  view.rows = num_rows;
  return view;
}

}  // namespace nereid::exec
