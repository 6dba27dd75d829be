// Binding of plan calls to kernels and memory, and their execution.
#include "exec/bound_plan.h"

#include <algorithm>
#include <optional>

#include "base/clock.h"
#include "exec/fused_calls.h"
#include "exec/memory.h"
#include "kernels/api/pack.h"
#include "kernels/api/validate.h"
#include "tensor/thread_pool.h"

namespace nereid::exec {
namespace {

template <class Op>
constexpr bool kIsObserved =
    std::is_same_v<Op, kernels::Linear> || std::is_same_v<Op, kernels::ExpertLinear>;

bool show(const ProductObserver& observer, const std::string& weight, kernels::Linear& call) {
  return observer(weight, call);
}

// Shows each expert as a Linear over a copy of the rows routed to it.
bool show(const ProductObserver& observer, const std::string& weight,
          const kernels::ExpertLinear& call) {
  const size_t size = size_of(call.x.dtype), width = static_cast<size_t>(call.weight.k) * size;
  std::vector<std::vector<std::byte>> rows(static_cast<size_t>(call.weight.experts));
  for (int64_t row = 0; row < call.x.rows; ++row)
    for (int64_t j = 0; j < call.experts.cols; ++j) {
      // x has the rows of all experts, or one k-wide piece per picked expert.
      const int64_t first =
          row * call.x.stride + (call.x.cols == call.weight.k ? 0 : j * call.weight.k);
      const auto* const x =
          static_cast<const std::byte*>(call.x.data) + static_cast<size_t>(first) * size;
      const auto expert = static_cast<size_t>(call.experts.row<int32_t>(row)[j]);
      if (expert >= rows.size()) continue;  // no expert: the kernel's result is 0
      auto& seen = rows[expert];
      seen.insert(seen.end(), x, x + width);
    }
  for (size_t e = 0; e < rows.size(); ++e) {
    kernels::Linear one;
    one.x = View::matrix(rows[e].data(), call.x.dtype, static_cast<int64_t>(rows[e].size() / width),
                         call.weight.k);
    one.weight = kernels::expert_of(call.weight, static_cast<int64_t>(e));
    if (!observer(fmt::format("{}[{}]", weight, e), one)) return false;
  }
  return true;
}

// Bytes of weights and cached positions that a call reads: a product's matrix (at most one per
// picked expert of each row) and the KV of its rows.
template <class Op>
uint64_t bytes_read(const Op& op, const StepData& step) {
  uint64_t bytes = 0;
  kernels::for_fields(op, [&](const auto& field, const auto& operand) {
    constexpr kernels::Role kRole = std::remove_cvref_t<decltype(field)>::kRole;
    if constexpr (kRole == kernels::Role::kMatrix && Op::kRowsIndependent) {
      uint64_t matrices = 1;
      const auto stored = static_cast<uint64_t>(operand.experts);
      if constexpr (requires { op.experts; })
        matrices = std::min(stored, static_cast<uint64_t>(op.experts.rows * op.experts.cols));
      bytes += kernels::stored_bytes(operand) / stored * matrices;
    }
    if constexpr (kRole == kernels::Role::kCache)
      bytes += static_cast<uint64_t>(step.num_positions) * (op.heads.latent > 0 ? 1 : 2) *
               op.heads.num_kv * op.heads.dim * size_of(operand.type);
  });
  return bytes;
}

// Operations of a product; on CPUs, whose arrays the host can read, of attention too.
template <class Op>
double flops_of(const Op& op, bool is_on_cpu) {
  double flops = 0;
  if constexpr (kIsObserved<Op>) {
    int64_t rows = op.x.rows;
    if constexpr (requires { op.experts; }) rows = op.experts.rows * op.experts.cols;
    flops = 2.0 * static_cast<double>(rows) * static_cast<double>(op.weight.n * op.weight.k);
  } else if constexpr (std::is_same_v<Op, kernels::Attention>) {
    if (!is_on_cpu) return 0;
    for (int64_t token = 0; token < op.qkv.rows; ++token) {
      const int64_t seen = op.step.positions[token] + int64_t{1};
      flops += static_cast<double>(op.window > 0 ? std::min<int64_t>(seen, op.window) : seen);
    }
    flops *= 2.0 * op.heads.num * (op.heads.dim + op.heads.value_dim());
  }
  return flops;
}

// Shape "[n, k]" of a product in reports.
template <class Op>
std::string shape_of(const Op& op) {
  std::string shape;
  kernels::for_fields(op, [&](const auto& field, const auto& operand) {
    if constexpr (std::remove_cvref_t<decltype(field)>::kRole == kernels::Role::kMatrix &&
                  Op::kRowsIndependent)
      shape = kernels::operand_text(operand);
  });
  return shape;
}

kernels::BatchView view_of(const StepData& step, const int32_t* slot_tokens) {
  return {.tokens = step.tokens,
          .slot_tokens = slot_tokens,
          .positions = step.positions,
          .row_of_token = step.row_of_token,
          .row_begin = step.row_begin,
          .block_table = step.block_tables,
          .logit_tokens = step.logit_tokens,
          .blends = reinterpret_cast<const kernels::BlendedRow*>(step.blends),
          .embeddings = step.embeddings,
          .features = step.features,
          .components = step.components,
          .num_rows = step.num_rows,
          .max_blocks = step.max_blocks,
          .num_embeddings = step.embeddings ? step.num_embeddings : 0,
          .num_features = step.num_features,
          .feature_width = step.feature_width,
          .after = step.after,
          .cells = step.cells,
          .last = step.last,
          .cross_lengths = step.cross_lengths,
          .cross_table = step.cross_table,
          .max_cross_blocks = step.max_cross_blocks,
          .cross_mask = reinterpret_cast<const uint32_t*>(step.cross_mask),
          .cross_mask_words = step.cross_mask_words};
}

}  // namespace

// Resolves operands to addresses (interface of kernels::look_up()) and names to kernels.
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

  // Binds the plan's own calls.
  Status bind_plan() {
    for (size_t i = 0; i < plan_.calls.size(); ++i) {
      RETURN_IF_ERROR(add_call(i, out_.calls_));
      std::string& product = out_.products_.emplace_back();
      std::visit(
          [&]<class Op>(const Op& ids) {
            if constexpr (kIsObserved<kernels::in_form<Op, kernels::Views>>)
              product = plan_.weights[static_cast<size_t>(ids.weight)].name;
          },
          plan_.calls[i].op);
    }
    return ok();
  }

  // Binds a list of calls with fused products for each row count up to kMaxFusedRows; as many
  // products are fused as the kernels support.
  Status bind_few() {
    const FusionSites places(plan_);
    std::vector<FusedValue> last;
    for (int32_t rows = 1; rows <= std::min(kMaxFusedRows, limits_.max_tokens); ++rows) {
      const auto can = [&](const kernels::ids::FusedLinear& ids, const std::string& kernel,
                           const std::vector<FusedValue>& values) {
        fused_ = &values;
        auto op = kernels::look_up(ids, *this);
        fused_ = nullptr;
        kernels::set_rows(op, rows, rows);
        const auto* const found = find_fused(kernel);
        return found && found->can(op, device_);
      };
      const FusedCalls calls = places.choose(can);
      if (rows > 1 && calls.values == last) {  // equal values: the same fused calls
        out_.few_.push_back(out_.few_.back());
        continue;
      }
      last = calls.values;
      std::shared_ptr<Calls> bound;
      if (!calls.calls.empty()) bound = std::make_shared<Calls>();
      fused_ = &calls.values;
      for (const FusedCalls::Call& call : calls.calls) {
        if (!call.linear) {
          RETURN_IF_ERROR(add_call(call.index, *bound));
          continue;
        }
        add(kernels::look_up(*call.linear, *this), *find_fused(plan_.calls[call.index].kernel),
            extent_of(*call.linear), call.index, *bound);
      }
      fused_ = nullptr;
      out_.few_.push_back(std::move(bound));
    }
    return ok();
  }

  View value(io::ValueId id) const {
    if (const FusedValue* const v = fused_ ? &(*fused_)[static_cast<size_t>(id)] : nullptr;
        v && v->offset != io::kNone)
      return {memory_.fused + v->offset, v->dtype, 0, v->cols, v->cols};
    const io::Value& v = plan_.values[static_cast<size_t>(id)];
    const auto extent = static_cast<int>(v.extent);
    std::byte* const data = memory_.arenas[extent] + v.offset * max_rows(v.extent) +
                            v.column * static_cast<int64_t>(size_of(v.dtype));
    return {data, v.dtype, 0, v.cols, v.stride};
  }
  kernels::WeightView weight(io::WeightId id) const {
    return io::view_of(plan_.weights[static_cast<size_t>(id)], memory_.weights);
  }
  kernels::AnglesView angles(int32_t id) const {
    const float* data = memory_.rope_table;
    for (int32_t i = 0; i < id; ++i) data += rope_table_floats(rope(i), limits_);
    const int32_t* components = memory_.rope_components;
    for (int32_t i = 0; i < id; ++i) components += rope(i).components.size();
    const bool has_components = !rope(id).components.empty();
    return {data, static_cast<int64_t>(2 * rope(id).inverse_frequencies.size()), has_components,
            has_components ? components : nullptr};
  }
  template <class Op>
  kernels::CacheView cache(int32_t layer, const Op&) const {
    return (io::kIsCross<Op> ? memory_.cross_cache : memory_.kv_cache)->view(layer);
  }

 private:
  int64_t max_rows(io::RowCount extent) const {
    return extent == io::RowCount::kTokens ? limits_.max_tokens : limits_.num_logits_rows();
  }
  Status add_call(size_t index, Calls& calls) {
    const io::Call& call = plan_.calls[index];
    const auto add_op = [&](const auto& ids) -> Status {
      auto op = kernels::look_up(ids, *this);
      const io::RowCount extent = extent_of(ids);
      if constexpr (kernels::kIsExchange<decltype(op)>) {
        if (!memory_.exchange)
          return invalid_argument("'{}' is a call of several ranks", decltype(op)::kName);
        add(op, {}, extent, index, calls);
      } else {
        ASSIGN_OR_RETURN(const auto* const kernel, choose(op, extent, call.kernel));
        auto& bound = add(op, *kernel, extent, index, calls);
        if constexpr (requires { ids.cache; })
          bound.cache_group = io::kIsCross<std::remove_cvref_t<decltype(ids)>>
                                  ? ids.cache.index
                                  : memory_.kv_cache->group_of(ids.cache);
        if constexpr (std::is_same_v<decltype(op), kernels::CrossAttention>)
          if (!out_.scores_) RETURN_IF_ERROR(bind_scores(op, extent));
      }
      return ok();
    };
    const Status status = std::visit(add_op, call.op);
    return status.ok() ? status : annotate(status, fmt::format("call {}", index));
  }

  // The kernel of scores is that for the longest encoder output.
  Status bind_scores(const kernels::CrossAttention& call, io::RowCount extent) {
    kernels::CrossScores op{.q = call.q, .heads = call.heads, .cache = call.cache};
    op.scale = call.scale;
    op.out = {nullptr, DType::kF32, 0, limits_.cross_length(), limits_.cross_length()};
    ASSIGN_OR_RETURN(const auto* const kernel, choose(op, extent, ""));
    out_.scores_ = kernel->run;
    return ok();
  }

  template <class K>
  Bound<K>& add(const K& op, const kernels::Kernel<K>& kernel, io::RowCount extent, size_t index,
                Calls& calls) {
    const ProfileEntry entry{std::string(K::kName), std::string(kernel.name), shape_of(op)};
    auto& entries = out_.profile_entries_;
    auto it = std::find(entries.begin(), entries.end(), entry);
    if (it == entries.end()) it = entries.insert(it, entry);
    Bound<K> bound{.run = kernel.run, .op = op, .extent = extent};
    bound.profile_entry = static_cast<int32_t>(it - entries.begin());
    bound.index = index;
    return std::get<Bound<K>>(calls.emplace_back(bound));
  }

  // The FusedLinear kernel with the name of a Linear kernel.
  const kernels::Kernel<kernels::FusedLinear>* find_fused(const std::string& name) const {
    const auto& table = registry_.table<kernels::FusedLinear>();
    const auto found = std::ranges::find_if(
        table, [&](const auto& row) { return row.device == device_.kind && row.name == name; });
    return found == table.end() ? nullptr : &*found;
  }

  const io::RopeTable& rope(int32_t id) const { return plan_.model.ropes[static_cast<size_t>(id)]; }

  // The extent of the op's first output; without outputs, of its first input.
  template <class Op>
  io::RowCount extent_of(const Op& ids) const {
    std::optional<io::RowCount> extents[2];
    kernels::for_fields(ids, [&](const auto& field, const auto& id) {
      constexpr kernels::Role kRole = std::remove_cvref_t<decltype(field)>::kRole;
      if constexpr (kRole == kernels::Role::kOut || kRole == kernels::Role::kIn)
        if (auto& extent = extents[kRole == kernels::Role::kIn]; !extent && id != io::kNone)
          extent = plan_.values[static_cast<size_t>(id)].extent;
    });
    return extents[0] ? *extents[0] : *extents[1];
  }

  template <class K>
  bool can_all_rows(const kernels::Kernel<K>& kernel, K op, io::RowCount extent) const {
    for (const bool most : {false, true}) {
      kernels::set_rows(op, most ? max_rows(extent) : 1, most ? limits_.max_tokens : 1);
      if (!kernel.can(op, device_)) return false;
    }
    return true;
  }

  // The kernel named, or without a name the cheapest one that can run the op.
  template <class K>
  StatusOr<const kernels::Kernel<K>*> choose(const K& op, io::RowCount extent,
                                             const std::string& name) const {
    const kernels::Kernel<K>* best = nullptr;
    double best_cost = 0;
    for (const kernels::Kernel<K>& kernel : registry_.template table<K>()) {
      if (kernel.device != device_.kind || (!name.empty() && kernel.name != name)) continue;
      if (!can_all_rows(kernel, op, extent)) {
        if (name.empty()) continue;
        return invalid_argument(
            "kernel '{}:{}' cannot run {} on {} ({}, isa {}); an engine built for other "
            "instructions must be rebuilt",
            K::kName, name, kernels::operands_text(op), device_.id(), device_.name,
            name_of(device_.isa));
      }
      const double cost = kernel.cost(op, device_);
      if (!best || cost < best_cost) best = &kernel, best_cost = cost;
    }
    if (best) return best;
    if (name.empty())
      return unsupported("no '{}' kernel can run {} on {}", K::kName, kernels::operands_text(op),
                         device_.id());
    return invalid_argument("kernel '{}:{}' is not known on {}; known: {}", K::kName, name,
                            device_.id(), known<K>());
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
  const std::vector<FusedValue>* fused_ = nullptr;  // memory of values, while a fused call is bound
};

StatusOr<BoundPlan> BoundPlan::bind(const io::Plan& plan, const RunnerLimits& limits,
                                    const DeviceInfo& device, const kernels::Registry& registry,
                                    const DeviceMemory& memory) {
  BoundPlan out;
  Binder binder(plan, limits, device, registry, memory, out);
  RETURN_IF_ERROR(binder.bind_plan());
  if (memory.fused) RETURN_IF_ERROR(binder.bind_few());
  out.slot_tokens_ = memory.slot_tokens;
  out.adapters_ = memory.adapters;
  out.first_adapter_module_ = memory.first_adapter_module;
  out.exchange_ = memory.exchange;
  if (plan.logits != io::kNone) out.logits_ = binder.value(plan.logits);
  for (const io::ValueId id : plan.hidden) out.hidden_.push_back(binder.value(id));
  return out;
}

Status BoundPlan::run(const StepData& step, Stream& stream, Profile* profile,
                      const ProductObserver& observer, const StepData* windows,
                      ExpertCounter* experts) const {
  const kernels::BatchView arrays = view_of(step, slot_tokens_);
  const auto few = static_cast<size_t>(std::max(step.num_tokens, step.num_logits)) - 1;
  const bool is_few = !observer && few < few_.size() && few_[few];
  const Calls& calls = is_few ? *few_[few] : calls_;
  bool goes_on = true;
  ThreadPool* const pool = profile && stream.device().info().kind == DeviceKind::kCpu
                               ? static_cast<ThreadPool*>(stream.native())
                               : nullptr;
  if (pool) pool->count_busy(true);
  const auto run_call = [&](const auto& bound) -> Status {
    const int64_t rows = bound.extent == io::RowCount::kTokens ? step.num_tokens : step.num_logits;
    if (rows == 0) return ok();
    auto op = bound.op;
    // The other ranks wait for the exchanges of a step that an observer ends.
    if (!goes_on && !kernels::kIsExchange<decltype(op)>) return ok();
    if constexpr (requires { op.first_module; })
      if (!step.adapters) return ok();
    kernels::set_rows(op, rows, step.num_tokens);
    if constexpr (requires { op.step; }) op.step = arrays;
    if constexpr (requires { op.first_module; }) {
      adapters_->add_to(op.step);
      op.step.adapter_matrices += first_adapter_module_;
      op.step.adapters =
          bound.extent == io::RowCount::kTokens ? step.adapters : step.logit_adapters;
    }
    if constexpr (std::is_same_v<decltype(op), kernels::StoreKv>) {
      op.step.block_table = step.cross_table;
      op.step.max_blocks = step.max_cross_blocks;
    } else if constexpr (requires { op.cache; } &&
                         !std::is_same_v<decltype(op), kernels::CrossAttention>) {
      op.step.block_table = step.block_table(bound.cache_group);
    }
    if constexpr (requires { op.in_windows; })
      if (op.in_windows) {
        op.step = view_of(*windows, slot_tokens_);
        op.step.block_table = windows->block_table(bound.cache_group);
      }
    if constexpr (kIsObserved<decltype(op)>)
      if (observer) {
        RETURN_IF_ERROR(stream.synchronize());
        goes_on = show(observer, products_[bound.index], op);
        if (!goes_on) return ok();
      }
    if constexpr (std::is_same_v<decltype(op), kernels::CrossAttention>)
      RETURN_IF_ERROR(run_scores(op, bound.cache_group, step, stream));
    const std::vector<double> busy_before = pool ? pool->busy_seconds() : std::vector<double>();
    const Time start = profile ? now() : Time();
    if constexpr (kernels::kIsExchange<decltype(op)>) {
      RETURN_IF_ERROR(exchange_->run(op, stream));
    } else {
      RETURN_IF_ERROR(bound.run(op, stream));
    }
    if constexpr (std::is_same_v<decltype(op), kernels::Route>)
      if (experts) experts->add(bound.index, op.experts);
    stream.device().health().made_progress();  // for kernels outside the thread pool
    if (profile) {
      RETURN_IF_ERROR(stream.synchronize());
      const double time = seconds(now() - start);
      std::vector<double> busy = pool ? pool->busy_seconds() : std::vector<double>();
      for (size_t i = 0; i < busy.size(); ++i) busy[i] -= busy_before[i];
      profile->add(bound.profile_entry, time, bytes_read(op, step), flops_of(op, pool != nullptr),
                   busy);
    }
    return ok();
  };
  for (size_t i = 0; i < calls.size(); ++i)
    if (Status status = std::visit(run_call, calls[i]); !status.ok()) {
      const size_t index = std::visit([](const auto& bound) { return bound.index; }, calls[i]);
      return annotate(status, fmt::format("call {}", index));
    }
  if (pool) pool->count_busy(false);
  return ok();
}

// The scores that rows ask for of the layer's heads.
Status BoundPlan::run_scores(const kernels::CrossAttention& call, int32_t layer,
                             const StepData& step, Stream& stream) const {
  for (const ScoreCall& score : step.scores) {
    if (score.layer != layer) continue;
    kernels::CrossScores op{.q = call.q, .heads = call.heads, .head = score.head};
    op.cache = call.cache;
    op.scale = call.scale;
    op.q.data = call.q.row<float>(score.first_token);
    op.q.rows = score.num_tokens;
    op.out = View::matrix(score.out, DType::kF32, score.num_tokens, score.num_positions);
    op.step = call.step;
    op.step.row_of_token += score.first_token;
    RETURN_IF_ERROR(scores_(op, stream));
  }
  return ok();
}

View BoundPlan::logits(int64_t num_rows) const {
  View view = logits_;
  view.rows = num_rows;
  return view;
}

}  // namespace nereid::exec
