// Launcher of LowRank (LoRA).
#include <algorithm>
#include <vector>

#include "kernels/api/validate.h"
#include "kernels/cpu/launch.h"

namespace nereid::kernels::cpu {
namespace {

static_assert(kMaxLowRank >= kMaxAdapterRank);

// A piece of a row with an adapter.
struct Piece {
  const LoraMatrix* matrices = nullptr;  // [num_modules]
  const uint16_t* x = nullptr;           // null: the token's row of a
  float* y = nullptr;
  int64_t token = -1;
};

bool adds_nothing(const LoraMatrix* matrices, int64_t num_modules) {
  return std::all_of(matrices, matrices + num_modules, [](const auto& m) { return m.rank == 0; });
}

// All such pieces, sorted by matrices.
std::vector<Piece> pieces_of(const LowRank& a) {
  const int64_t num = LowRank::pieces_of(a), width = a.out.cols / num;
  const int64_t x_step = a.x.cols == a.k ? 0 : a.k;
  std::vector<Piece> pieces;
  for (int64_t i = 0; i < a.out.rows; ++i)
    for (int64_t j = 0; j < num; ++j) {
      Piece piece{LowRank::matrices_of(a, i, j)};
      if (!piece.matrices || adds_nothing(piece.matrices, a.num_modules)) continue;
      piece.y = a.out.row<float>(i) + j * width;
      if (is_given(a.x))
        piece.x = a.x.as<uint16_t>() + i * a.x.stride + j * x_step;
      else if (piece.token = LowRank::token_of(a, i); piece.token < 0)
        continue;
      pieces.push_back(piece);
    }
  std::ranges::stable_sort(pieces, {}, &Piece::matrices);
  return pieces;
}

// Pieces of one raw kernel call.
struct Group {
  int64_t first = 0, count = 0;
};
std::vector<Group> groups_of(const std::vector<Piece>& pieces) {
  std::vector<Group> groups;
  for (int64_t i = 0; i < std::ssize(pieces); ++i) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    const bool joins = !groups.empty() && groups.back().count < kLowRankRows && piece.x &&
                       pieces[static_cast<size_t>(i - 1)].matrices == piece.matrices;
    if (joins)
      ++groups.back().count;
    else
      groups.push_back({i, 1});
  }
  return groups;
}

void run_group(void (*kernel)(const LowRankRaw&), const LowRank& a, const Piece* pieces,
               int64_t count, int64_t module) {
  const LoraMatrix& m = pieces->matrices[module];
  if (m.rank == 0) return;
  const auto* const weights = reinterpret_cast<const uint16_t*>(a.step.adapter_weights);
  LowRankRaw raw{.x = {},
                 .a = weights + m.a + (pieces->x ? 0 : pieces->token * m.rank),
                 .b = weights + m.b,
                 .gain = m.gain < 0 ? nullptr : weights + m.gain,
                 .y = {},
                 .rows = count,
                 .k = a.k,
                 .n = m.cols,
                 .rank = m.rank,
                 .scale = m.scale * a.scale};
  for (int64_t r = 0; r < count; ++r) raw.x[r] = pieces[r].x, raw.y[r] = pieces[r].y + m.column;
  kernel(raw);
}

// A task is a group of pieces x a module.
Status launch_low_rank(void (*kernel)(const LowRankRaw&), const LowRank& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  if (!a.step.adapters) return ok();
  const std::vector<Piece> pieces = pieces_of(a);
  const std::vector<Group> groups = groups_of(pieces);
  constexpr int64_t kProducts = 1 << 15, kUsualRank = 16;
  const int64_t tasks = std::ssize(groups) * a.num_modules;
  const int64_t width = is_given(a.x) ? a.k + a.out.cols : a.out.cols;
  const int64_t grain =
      std::max<int64_t>(1, kProducts / (kUsualRank * kLowRankRows * std::max<int64_t>(width, 1)));
  const auto work = [&](int64_t begin, int64_t end, int) {
    for (; begin < end; ++begin) {
      const Group& group = groups[static_cast<size_t>(begin / a.num_modules)];
      run_group(kernel, a, &pieces[static_cast<size_t>(group.first)], group.count,
                begin % a.num_modules);
    }
  };
  if (tasks <= grain)
    work(0, tasks, 0);
  else
    pool.parallel_for(tasks, grain, work);
  return ok();
}

Status launch_vectors(const Raw& raw, const LowRank& a, ThreadPool& pool) {
  return launch_low_rank(raw.low_rank, a, pool);
}
Status launch_pairs(const LowRank& a, ThreadPool& pool) {
  return launch_low_rank(low_rank_avx512_bf16, a, pool);
}

}  // namespace

template <>
Table<LowRank> table<LowRank>() {
  Table<LowRank> rows = vectors<LowRank, launch_vectors>();
  rows.push_back({"avx512_bf16", DeviceKind::kCpu,
                  [](const LowRank&, const DeviceInfo& d) { return d.has_avx512_bf16; },
                  [](const LowRank&, const DeviceInfo&) { return pairs_are_fast() ? 0.5 : 20; },
                  run<LowRank, launch_pairs>});
  return rows;
}

}  // namespace nereid::kernels::cpu
