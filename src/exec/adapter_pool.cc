// Adapter pool: checks, loads and moves.
#include "exec/adapter_pool.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/copy_bytes.h"
#include "base/round_up.h"

namespace nereid::exec {
namespace {

// Size of a module's matrices in bf16 numbers, rounded up to the alignment of the next module.
int64_t numbers_of(const io::AdapterModule& m, const LoraMatrixInfo& matrix) {
  return round_up(matrix.rank * (m.k + m.n) + matrix.has_gain * 2 * m.n, kAdapterAlignment);
}

}  // namespace

int64_t max_load_weights(const RunnerLimits& limits) {
  constexpr int64_t kMost = 4 << 20;
  return std::min(kMost, limits.num_adapter_pages * limits.adapter_page_numbers);
}

int64_t adapter_numbers(std::span<const io::AdapterModule> modules,
                        std::span<const LoraMatrixInfo> matrices) {
  int64_t numbers = 0;
  for (const LoraMatrixInfo& matrix : matrices)
    numbers += numbers_of(modules[static_cast<size_t>(matrix.module)], matrix);
  return numbers;
}

int64_t adapter_pages(int64_t numbers, int64_t page_numbers) {
  return std::max<int64_t>(1, round_up(numbers, page_numbers) / page_numbers);
}

size_t AdapterPool::bytes(std::span<const io::AdapterModule> modules, const RunnerLimits& limits) {
  const size_t table = modules.size() * sizeof(kernels::LoraMatrix);
  return static_cast<size_t>(limits.num_adapters) * table +
         static_cast<size_t>(limits.num_adapter_pages * limits.adapter_page_numbers) * sizeof(BF16);
}

size_t AdapterPool::staging_bytes(std::span<const io::AdapterModule> modules,
                                  const RunnerLimits& limits) {
  if (limits.num_adapters == 0) return 0;
  const size_t table = modules.size() * sizeof(kernels::LoraMatrix);
  return static_cast<size_t>(limits.depth) *
         (static_cast<size_t>(max_load_weights(limits)) * sizeof(BF16) +
          kMaxAdapterChanges * table);
}

StatusOr<AdapterPool> AdapterPool::create(std::span<const io::AdapterModule> modules,
                                          const RunnerLimits& limits, Device& device,
                                          std::span<const io::ModulePart> parts, bool has_parts) {
  AdapterPool pool;
  pool.limits_ = limits;
  pool.areas_.resize(static_cast<size_t>(limits.depth));
  if (limits.num_adapters == 0) return pool;
  const auto places = static_cast<size_t>(limits.num_adapters);
  pool.modules_.assign(modules.begin(), modules.end());
  pool.parts_.assign(parts.begin(), parts.end());
  for (size_t i = 0; !has_parts && i < modules.size(); ++i)
    pool.parts_.push_back({static_cast<int32_t>(i), modules[i].column, {{0, modules[i].n, 1}}});
  pool.part_of_.assign(modules.size(), -1);
  for (size_t i = 0; i < pool.parts_.size(); ++i)
    pool.part_of_[static_cast<size_t>(pool.parts_[i].module)] = static_cast<int32_t>(i);
  pool.held_.resize(places);
  pool.matrices_.resize(places);
  ASSIGN_OR_RETURN(pool.weights_,
                   device.allocate(bytes(modules, limits) - places * pool.table_bytes()));
  ASSIGN_OR_RETURN(pool.table_, device.allocate(places * pool.table_bytes()));
  for (Area& area : pool.areas_) {
    ASSIGN_OR_RETURN(area.staging, device.allocate_host(staging_bytes(modules, limits) /
                                                        static_cast<size_t>(limits.depth)));
  }
  return pool;
}

int64_t AdapterPool::num_weights(const LoraMatrixInfo& matrix) const {
  const io::AdapterModule& m = modules_[static_cast<size_t>(matrix.module)];
  return matrix.rank * (m.k + m.n) + matrix.has_gain * 2 * m.n;
}

Status AdapterPool::check(const LoraMatrixInfo& matrix, int32_t former) const {
  if (matrix.module <= former || static_cast<size_t>(matrix.module) >= modules_.size())
    return invalid_argument("module {} is not in [{}, {})", matrix.module, former + 1,
                            modules_.size());
  if (matrix.rank < 1 || matrix.rank > limits_.max_adapter_rank)
    return invalid_argument("module {}: rank {} is not in [1, {}]", matrix.module, matrix.rank,
                            limits_.max_adapter_rank);
  if (!std::isfinite(matrix.scale))
    return invalid_argument("module {}: the scale is not a number", matrix.module);
  if (matrix.has_gain != 0 && matrix.has_gain != 1)
    return invalid_argument("module {}: has_gain is {}, not 0 or 1", matrix.module,
                            matrix.has_gain);
  return ok();
}

StatusOr<AdapterPool::LoadParts> AdapterPool::take(const AdapterLoad& load,
                                                   std::span<const LoraMatrixInfo>& matrices,
                                                   size_t& weights) const {
  if (load.num_matrices < 0 || static_cast<size_t>(load.num_matrices) > matrices.size())
    return invalid_argument("{} matrices, {} are left", load.num_matrices, matrices.size());
  LoadParts parts{.matrices = matrices.first(static_cast<size_t>(load.num_matrices))};
  int32_t former = -1;
  for (const LoraMatrixInfo& matrix : parts.matrices) {
    RETURN_IF_ERROR(check(matrix, former));
    parts.num_weights += num_weights(matrix);
    former = matrix.module;
  }
  matrices = matrices.subspan(parts.matrices.size());
  if (load.first_weight < 0 || load.first_weight > parts.num_weights || load.num_weights < 0 ||
      load.num_weights > parts.num_weights - load.first_weight)
    return invalid_argument("weights [{}, {} + {}) are not in [0, {})", load.first_weight,
                            load.first_weight, load.num_weights, parts.num_weights);
  if (static_cast<size_t>(load.num_weights) > weights)
    return invalid_argument("the message has {} of its {} weights left", weights, load.num_weights);
  weights -= static_cast<size_t>(load.num_weights);
  const int64_t pages =
      adapter_pages(adapter_numbers(modules_, parts.matrices), limits_.adapter_page_numbers);
  if (load.first_page < 0 || pages > limits_.num_adapter_pages - load.first_page)
    return invalid_argument("pages [{}, {} + {}) are not in [0, {})", load.first_page,
                            load.first_page, pages, limits_.num_adapter_pages);
  parts.pages = {load.first_page, static_cast<int32_t>(pages)};
  return parts;
}

Status AdapterPool::move(const AdapterMove& move, std::vector<Held>& held) const {
  if (move.adapter < 0 || move.adapter >= limits_.num_adapters)
    return invalid_argument("it is not in [0, {})", limits_.num_adapters);
  Held& own = held[static_cast<size_t>(move.adapter)];
  if (!own.is_whole) return invalid_argument("it is not completely loaded");
  const Pages to{move.to_page, own.pages.count};
  if (to.first < 0 || to.end() > limits_.num_adapter_pages)
    return invalid_argument("pages [{}, {} + {}) are not in [0, {})", to.first, to.first, to.count,
                            limits_.num_adapter_pages);
  // Adapters in the target pages are lost, as with a load.
  for (Held& other : held)
    if (&other != &own && other.pages.overlap(to)) other = {};
  own.pages = to;
  return ok();
}

Status AdapterPool::load(const AdapterLoad& load, const LoadParts& parts,
                         std::vector<Held>& held) const {
  Held& own = held[static_cast<size_t>(load.adapter)];
  if (load.first_weight == 0) {
    for (Held& other : held)
      if (other.pages.overlap(parts.pages)) other = {};
    own = {.pages = parts.pages};
  } else if (own.is_whole || own.pages != parts.pages || own.num_loaded != load.first_weight) {
    return invalid_argument("weights from {} on do not continue the {} in its pages",
                            load.first_weight, own.is_whole ? 0 : own.num_loaded);
  }
  own.num_loaded += load.num_weights;
  own.is_whole = own.num_loaded == parts.num_weights;
  return ok();
}

Status AdapterPool::change(const StepMessageView& step, std::vector<Held>& held) const {
  const auto of = [](std::string_view what, int32_t adapter, const Status& status) {
    return annotate(status, fmt::format("{} of adapter {}", what, adapter));
  };
  for (const AdapterMove& one : step.adapter_moves)
    if (Status status = move(one, held); !status.ok()) return of("move", one.adapter, status);
  auto matrices = step.adapter_matrices;
  size_t left = step.adapter_weights.size();
  for (const AdapterLoad& one : step.adapter_loads) {
    if (one.adapter < 0 || one.adapter >= limits_.num_adapters)
      return invalid_argument("load of adapter {}, which is not in [0, {})", one.adapter,
                              limits_.num_adapters);
    const auto parts = take(one, matrices, left);
    if (!parts.ok()) return of("load", one.adapter, parts.status());
    if (Status status = load(one, *parts, held); !status.ok())
      return of("load", one.adapter, status);
  }
  if (!matrices.empty() || left > 0)
    return invalid_argument("{} matrices and {} weights belong to no adapter", matrices.size(),
                            left);
  return ok();
}

Status AdapterPool::check(const StepMessageView& step) const {
  const size_t num_moves = step.adapter_moves.size(), num_loads = step.adapter_loads.size();
  if (limits_.num_adapters == 0 && num_moves == 0 && num_loads == 0 &&
      step.adapter_matrices.empty() && step.adapter_weights.empty())
    return ok();  // rows with an adapter were refused by StepData::pack()
  if (num_moves > 0 && num_loads > 0)
    return invalid_argument("{} moves of adapters beside {} loads", num_moves, num_loads);
  const int64_t most = max_load_weights(limits_);
  if (num_moves + num_loads > kMaxAdapterChanges || std::ssize(step.adapter_weights) > most)
    return invalid_argument(
        "{} moves and loads of adapters and {} weights; at most {} and {} are allowed",
        num_moves + num_loads, step.adapter_weights.size(), kMaxAdapterChanges, most);
  for (size_t i = 0; i < num_moves; ++i)
    for (size_t j = 0; j < i; ++j)
      if (step.adapter_moves[i].adapter == step.adapter_moves[j].adapter)
        return invalid_argument("adapter {} moves twice", step.adapter_moves[i].adapter);
  std::vector<Held> held = held_;
  RETURN_IF_ERROR(change(step, held));
  for (const StepRow& row : step.rows)
    if (row.adapter >= 0 && !held[static_cast<size_t>(row.adapter)].is_whole)
      return invalid_argument("adapter {} of slot {} is not loaded", row.adapter, row.slot);
  for (const EncoderInput& input : step.encoder_inputs)
    if (input.adapter >= 0 && !held[static_cast<size_t>(input.adapter)].is_whole)
      return invalid_argument("adapter {} of an encoder input is not loaded", input.adapter);
  return ok();
}

void AdapterPool::stage(const StepMessageView& step, int32_t index) {
  Area& area = areas_[static_cast<size_t>(index)];
  area.moves.clear(), area.uploads.clear(), area.tables.clear();
  area.needs_loads = false;
  for (const AdapterMove& one : step.adapter_moves) stage_move(one, area);
  copy_bytes(area.staging.data(), step.adapter_weights.data(), step.adapter_weights.size_bytes());
  auto matrices = step.adapter_matrices;
  size_t from = 0;
  for (const AdapterLoad& one : step.adapter_loads) {
    const auto own = matrices.first(static_cast<size_t>(one.num_matrices));
    stage_load(one, own, from, area);
    matrices = matrices.subspan(own.size());
    from += static_cast<size_t>(one.num_weights);
    area.needs_loads |=
        std::ranges::find(step.rows, one.adapter, &StepRow::adapter) != step.rows.end() ||
        std::ranges::find(step.encoder_inputs, one.adapter, &EncoderInput::adapter) !=
            step.encoder_inputs.end();
  }
}

// Copies pages in pieces whose source and target do not overlap.
void AdapterPool::stage_move(const AdapterMove& move, Area& area) {
  const auto place = static_cast<size_t>(move.adapter);
  const Pages& pages = held_[place].pages;
  const int32_t distance = std::abs(move.to_page - pages.first);
  if (distance == 0) return;
  const size_t page = static_cast<size_t>(limits_.adapter_page_numbers) * sizeof(BF16);
  const int32_t piece = std::min(distance, pages.count);
  const int32_t num_pieces = (pages.count + piece - 1) / piece;
  for (int32_t i = 0; i < num_pieces; ++i) {
    const int32_t first = (move.to_page < pages.first ? i : num_pieces - 1 - i) * piece;
    area.moves.push_back({static_cast<size_t>(move.to_page + first) * page,
                          static_cast<size_t>(pages.first + first) * page,
                          static_cast<size_t>(std::min(piece, pages.count - first)) * page});
  }
  stage_table(move.adapter, matrices_[place], move.to_page, area);
}

AdapterPool::KeptWeights AdapterPool::keep_columns(const LoraMatrixInfo& matrix, int64_t begin,
                                                   int64_t end, BF16* at) const {
  const auto module = static_cast<size_t>(matrix.module);
  const int64_t n = modules_[module].n, first_row = matrix.rank * modules_[module].k;
  if (part_of_[module] < 0) return {};
  const io::ModulePart& part = parts_[static_cast<size_t>(part_of_[module])];
  if (part.runs.size() == 1 && part.runs[0].size == n) return {begin, end - begin};
  KeptWeights kept;
  const auto keep = [&](int64_t from, int64_t to, int64_t size) {  // numbers of the matrix
    const int64_t first = std::max(begin, from), last = std::min(end, from + size);
    if (first >= last) return;
    if (kept.count == 0) kept.begin = to + first - from;
    std::memmove(at + kept.count, at + (first - begin),
                 static_cast<size_t>(last - first) * sizeof(BF16));
    kept.count += last - first;
  };
  keep(0, 0, first_row);
  const int64_t rows = matrix.rank + matrix.has_gain * 2, width = part.n();
  for (int64_t row = std::max<int64_t>(0, (begin - first_row) / n); row < rows; ++row) {
    int64_t to = first_row + row * width;
    if (first_row + row * n >= end) break;
    for (const io::RowRun& run : part.runs) {
      keep(first_row + row * n + run.first, to, run.size);
      to += run.size;
    }
  }
  return kept;
}

// A matrix's weights are contiguous in the message and in the pages.
void AdapterPool::stage_load(const AdapterLoad& load, std::span<const LoraMatrixInfo> matrices,
                             size_t from, Area& area) {
  const int64_t end = load.first_weight + load.num_weights;
  int64_t first = 0, to = load.first_page * limits_.adapter_page_numbers;
  for (const LoraMatrixInfo& matrix : matrices) {
    const int64_t count = num_weights(matrix);
    const int64_t begin = std::max(first, load.first_weight), last = std::min(first + count, end);
    if (begin < last) {
      const auto offset = from + static_cast<size_t>(begin - load.first_weight);
      auto* const staged = reinterpret_cast<BF16*>(area.staging.bytes()) + offset;
      const KeptWeights kept = keep_columns(matrix, begin - first, last - first, staged);
      if (kept.count > 0)
        area.uploads.push_back({static_cast<size_t>(to + kept.begin) * sizeof(BF16),
                                offset * sizeof(BF16),
                                static_cast<size_t>(kept.count) * sizeof(BF16)});
    }
    first += count;
    to += numbers_of(modules_[static_cast<size_t>(matrix.module)], matrix);
  }
  if (end == first) stage_table(load.adapter, matrices, load.first_page, area);
}

void AdapterPool::stage_table(int32_t adapter, std::span<const LoraMatrixInfo> matrices,
                              int32_t first_page, Area& area) {
  const size_t at = static_cast<size_t>(max_load_weights(limits_)) * sizeof(BF16) +
                    area.tables.size() * table_bytes();
  auto* const table = reinterpret_cast<kernels::LoraMatrix*>(area.staging.bytes() + at);
  std::fill_n(table, modules_.size(), kernels::LoraMatrix());
  int64_t begin = first_page * limits_.adapter_page_numbers;
  for (const LoraMatrixInfo& matrix : matrices) {
    const auto m = static_cast<size_t>(matrix.module);
    if (part_of_[m] >= 0) {
      const io::ModulePart& part = parts_[static_cast<size_t>(part_of_[m])];
      const int64_t b = begin + matrix.rank * modules_[m].k;
      table[part_of_[m]] = {.a = begin,
                            .b = b,
                            .gain = matrix.has_gain ? b + matrix.rank * part.n() : -1,
                            .rank = matrix.rank,
                            .column = static_cast<int32_t>(part.column),
                            .cols = static_cast<int32_t>(part.n()),
                            .scale = matrix.scale};
    }
    begin += numbers_of(modules_[m], matrix);
  }
  area.tables.push_back({static_cast<size_t>(adapter) * table_bytes(), at, table_bytes()});
}

void AdapterPool::keep(const StepMessageView& step) {
  change(step, held_).IgnoreError();  // cannot fail after check()
  auto matrices = step.adapter_matrices;
  for (const AdapterLoad& one : step.adapter_loads) {
    const auto own = matrices.first(static_cast<size_t>(one.num_matrices));
    matrices_[static_cast<size_t>(one.adapter)].assign(own.begin(), own.end());
    matrices = matrices.subspan(own.size());
  }
}

bool AdapterPool::has_loads(int32_t index) const {
  return !areas_[static_cast<size_t>(index)].uploads.empty();
}

bool AdapterPool::needs_loads(int32_t index) const {
  return areas_[static_cast<size_t>(index)].needs_loads;
}

Status AdapterPool::load(int32_t index, Stream& stream) const {
  const Area& area = areas_[static_cast<size_t>(index)];
  for (const Upload& u : area.uploads)
    RETURN_IF_ERROR(stream.copy(weights_.bytes() + u.to, area.staging.bytes() + u.offset, u.bytes));
  return ok();
}

Status AdapterPool::run(int32_t index, Stream& stream) const {
  const Area& area = areas_[static_cast<size_t>(index)];
  for (const Move& m : area.moves)
    RETURN_IF_ERROR(stream.copy(weights_.bytes() + m.to, weights_.bytes() + m.from, m.bytes));
  for (const Upload& u : area.tables)
    RETURN_IF_ERROR(stream.copy(table_.bytes() + u.to, area.staging.bytes() + u.offset, u.bytes));
  return ok();
}

void AdapterPool::add_to(kernels::BatchView& step) const {
  step.adapter_matrices = static_cast<const kernels::LoraMatrix*>(table_.data());
  step.adapter_weights = static_cast<const BF16*>(weights_.data());
  step.num_adapter_modules = static_cast<int32_t>(modules_.size());
}

}  // namespace nereid::exec
