// Model-based fuzz test of the pool alone: sequences of random texts come, grow, fork, slide, pause
// and go. A slow device with the contents of every position of both levels runs copies and rows
// late and in order, so a wrongly found, copied, shared or released block shows as a wrong cell.
// One to three groups of different windows. A mirror built from the events alone gives the expected
// result of match(). NEREID_FUZZ_SEEDS: number of seeds (default 10,000).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <list>
#include <map>
#include <random>

#include "sched/block_pool.h"
#include "sched/pool_mirror.h"
#include "sched/pool_traffic.h"

namespace nereid::sched {
namespace {

class PoolTraffic {
 public:
  explicit PoolTraffic(uint64_t seed)
      : rng_(seed), config_(random_config()), t_(config_.tokens_per_block), pool_(config_) {
    most_tokens_ = 1 << 20;
    for (const BlockGroupConfig& group : config_.groups) {
      cells_.emplace_back((group.num_blocks + group.num_host_blocks) * t_, kGarbage);
      most_tokens_ = std::min(most_tokens_, group.num_blocks * t_);
    }
    weak_keys_ = pick(0, 9) == 0;
    arrival_rate_ = pick(0, 2) == 0 ? 100 : pick(5, 60);
    retention_ = pick(0, 1);
    for (int i = 0; i < 2; ++i) prefixes_.push_back(random_tokens(pick(1, 20)));
  }

  void go(PoolTotals& totals) {
    const int turns = pick(20, 150);
    for (int turn = 0; turn < turns + 1000; ++turn) {
      if (turn >= turns && live_.empty() && flying_.empty() && arrivals_.empty()) break;
      plan(turn < turns);
      if (static_cast<int>(flying_.size()) > pick(0, 2) || turn >= turns) land();
      if (turn >= turns || pick(0, 99) < arrival_rate_) arrive();
      if (testing::Test::HasFatalFailure()) return;
      mirror_.apply(pool_.take_events(), next_event_);
      if (turn % 8 == 0) check();
    }
    ASSERT_TRUE(live_.empty());
    check();
    ASSERT_TRUE(all_free());
    count(totals);
  }

 private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng_); }

  std::vector<TokenId> random_tokens(int n) {
    std::vector<TokenId> tokens(n);
    for (TokenId& t : tokens) t = pick(0, 2);
    return tokens;
  }

  std::vector<BlockGroupConfig> random_groups() {
    std::vector<BlockGroupConfig> groups(pick(0, 1) ? 1 : pick(2, 3));
    int window = pick(0, 3) ? 0 : pick(1, 24);
    for (BlockGroupConfig& group : groups) {
      group.num_blocks = pick(2, 40);
      if (pick(0, 2)) group.num_host_blocks = pick(1, 30);
      group.window = window;
      if (window > 0 && pick(0, 1)) group.sink = pick(0, 5);
      if (pick(0, 4)) window = pick(1, window > 0 ? window : 12);
    }
    return groups;
  }

  bool all_free() const {
    for (size_t g = 0; g < pool_.num_groups(); ++g)
      if (pool_.num_free(g) != config_.groups[g].num_blocks) return false;
    return true;
  }

  PoolConfig random_config() {
    return {.groups = random_groups(),
            .tokens_per_block = 1 << pick(0, 3),
            .enable_reuse = pick(0, 15) != 0,
            .enable_partial_reuse = pick(0, 4) != 0,
            .offload_min_priority = pick(0, 3) ? 30 : pick(0, 100),
            .event_buffer_size = 1 << 20};
  }

  void set_keys(FuzzText& text) {
    text.keys.clear();
    BlockKey parent = root_key(text.root);
    for (size_t i = 0; (i + 1) * t_ <= text.tokens.size(); ++i) {
      parent = block_key(parent, run_of(text).subrun(i * t_, t_));
      if (weak_keys_) parent %= 5;
      text.keys.push_back(parent);
    }
    if (!text.input_keys.empty()) tell_mirror(text);
  }

  static TokenRun run_of(const FuzzText& text) { return {text.tokens, text.input_keys}; }

  // Adds the input keys of every block, and of every tail, under which the text can be cached.
  void tell_mirror(const FuzzText& text) {
    BlockKey parent = root_key(text.root);
    for (size_t begin = 0; begin < text.tokens.size(); begin += t_) {
      const size_t most = std::min<size_t>(t_, text.tokens.size() - begin);
      for (size_t n = 1; n <= most; ++n) {
        const TokenRun run = run_of(text).subrun(begin, n);
        if (std::ranges::any_of(run.keys, [](const InputKey& k) { return k != InputKey(); }))
          mirror_.input_keys[block_key(parent, run)].assign(run.keys.begin(), run.keys.end());
      }
      if (begin / t_ < text.keys.size()) parent = text.keys[begin / t_];
    }
  }

  FuzzText random_text() {
    FuzzText text;
    if (pick(0, 3) == 0) text.root = pick(0, 1) ? "red" : "blue";
    if (pick(0, 3)) text.tokens = prefixes_[pick(0, 1)];
    if (!ended_.empty() && pick(0, 2) == 0) text = ended_[pick(0, ended_.size() - 1)];
    if (pick(0, 3) == 0) text.tokens.resize(pick(0, text.tokens.size()));
    for (TokenId t : random_tokens(pick(text.tokens.empty() ? 1 : 0, 20))) text.tokens.push_back(t);
    if (static_cast<int>(text.tokens.size()) > most_tokens_) text.tokens.resize(most_tokens_);
    if (pick(0, 3) == 0) {
      text.input_keys.resize(text.tokens.size());
      text.input_keys[pick(0, text.tokens.size() - 1)].low = pick(0, 2);
    }
    text.input_keys.resize(std::min(text.input_keys.size(), text.tokens.size()));
    set_keys(text);
    text.retention = {};
    if (retention_ && pick(0, 1)) {
      auto& range = text.retention.token_ranges.emplace_back();
      range.token_end = pick(1, 20);
      range.priority = pick(0, 100);
      if (pick(0, 1)) range.duration = std::chrono::milliseconds(pick(0, 20));
      text.retention.decode_priority = pick(0, 3) ? 35 : pick(0, 100);
      if (pick(0, 3) == 0) text.retention.decode_duration = std::chrono::milliseconds(pick(0, 9));
    }
    return text;
  }

  // One step: some sequences go on, a new one comes, some end.
  void plan(bool more) {
    now_ += std::chrono::milliseconds(pick(0, 2));
    pool_.expire(now_);
    PlannedStep step;
    for (Seq& seq : live_) seq.earlier = seq.computed;
    for (Seq& seq : live_) {
      if (!more && seq.inflight == 0) seq.ending = true;
      if (seq.ending || pool_.is_arriving(seq.table) || pick(0, 3) == 0) continue;
      if (!go_on(seq, step) && pick(0, 2) == 0) seq.ending = true;
    }
    if (more && pick(0, 1)) {
      start(step);
    } else if (more && !live_.empty() && pick(0, 3) == 0) {
      fork(step);
    }
    if (!step.rows.empty() || pool_.has_onboards()) {
      step.copies = pool_.take_copies();
      step.onboards = pool_.take_onboards();
      flying_.push_back(std::move(step));
    }
    for (Seq& seq : live_) {
      if (seq.ending || pick(0, 19)) continue;
      seq.ending = true;
      seq.how = pick(0, 2) ? Release::kOffload : pick(0, 3) ? Release::kKeep : Release::kForget;
    }
    reap();
  }

  bool go_on(Seq& seq, PlannedStep& step) {
    const int left = static_cast<int>(seq.text.tokens.size()) - seq.computed;
    if (left == 0) return seq.ending = true;
    pool_.drop_unseen(seq.table, seq.computed);
    drops_ += has_holes(seq);
    const int n = pick(0, 1) ? 1 : pick(1, left);
    if (!pool_.reserve(seq.table, seq.computed, seq.computed + n)) return false;
    add_row(seq, step, n);
    return true;
  }

  static bool has_holes(const Seq& seq) {
    return std::ranges::any_of(seq.table.groups, &BlockTable::Group::has_holes);
  }

  void add_row(Seq& seq, PlannedStep& step, int n) {
    step.rows.push_back({&seq, seq.table.groups, seq.computed, seq.computed + n});
    seq.computed += n;
    ++seq.inflight;
  }

  void start(PlannedStep& step) {
    Seq& seq = live_.emplace_back();
    seq.text = random_text();
    const int length = static_cast<int>(seq.text.tokens.size());
    const Contents wanted = seq.text.contents(length - 1);
    const PrefixHit hit = pool_.match(wanted);
    expect_hit(hit, wanted);
    const int end = pick(hit.num_tokens + 1, length), headroom = pick(0, 3) ? 0 : pick(0, 5);
    const bool easy = all_free() && headroom == 0;
    std::vector<Reservation> reservations;
    std::vector<int> before;
    for (size_t g = 0; g < pool_.num_groups(); ++g) {
      reservations.push_back({config_.groups[g].window > 0 ? end : pick(end, length), headroom});
      before.push_back(pool_.num_free(g));
    }
    const bool admitted = pool_.admit(seq.table, hit, wanted, reservations);
    ASSERT_TRUE(admitted || !easy) << "an empty pool has room for every text";
    for (size_t g = 0; g < pool_.num_groups(); ++g)
      ASSERT_TRUE(admitted ? pool_.num_free(g) >= headroom : pool_.num_free(g) == before[g]);
    if (!admitted) return live_.pop_back();
    holes_ += has_holes(seq);
    seq.computed = seq.completed = hit.num_tokens;
    if (pool_.is_arriving(seq.table)) {
      ++late_;
    } else {
      add_row(seq, step, end - hit.num_tokens);
    }
  }

  void expect_hit(const PrefixHit& hit, const Contents& wanted) {
    mirror_.apply(pool_.take_events(), next_event_);
    if (weak_keys_ || !config_.enable_reuse) return;
    const auto [tokens, blocks] = mirror_.match(wanted, t_, config_);
    ASSERT_EQ(static_cast<int>(hit.blocks.size()), blocks);
    // The partly matching block may have a copy in flight.
    const bool waits = hit.num_tokens == blocks * t_ && num_arrivals() > 0;
    ASSERT_TRUE(hit.num_tokens == tokens || waits) << hit.num_tokens << " " << tokens;
    for (int i = 0; i < blocks; ++i)
      ASSERT_EQ(pool_.group(0).on_host(hit.blocks[i]),
                mirror_.groups[0].at(wanted.keys[i]).level == 1);
  }

  // The same text up to some computed position, then a different one.
  void fork(PlannedStep& step) {
    Seq& parent = *std::next(live_.begin(), pick(0, live_.size() - 1));
    if (parent.ending || parent.earlier == 0 || pool_.is_arriving(parent.table)) return;
    const int shared = pick(1, parent.earlier);
    Seq child{.text = parent.text};
    if (has_holes(parent) && shared < parent.earlier) return;  // its window lies behind
    child.text.tokens.resize(shared);
    child.text.input_keys.resize(
        std::min(child.text.input_keys.size(), static_cast<size_t>(shared)));
    for (TokenId t : random_tokens(pick(1, 8))) child.text.tokens.push_back(t);
    if (static_cast<int>(child.text.tokens.size()) > most_tokens_) return;
    set_keys(child.text);
    child.table = pool_.fork(parent.table, shared);
    child.computed = shared;
    child.completed = std::min(shared, parent.completed);
    if (!pool_.reserve(child.table, shared, shared + 1)) {
      pool_.release(child.table, Release::kKeep);
      return;
    }
    ++forks_;
    live_.push_back(std::move(child));
    add_row(live_.back(), step, 1);
  }

  void reap() {
    for (auto it = live_.begin(); it != live_.end();) {
      Seq& seq = *it;
      if (!seq.ending || seq.inflight > 0 || pool_.is_arriving(seq.table)) {
        ++it;
        continue;
      }
      const Contents known = seq.text.contents(seq.text.tokens.size());
      if (seq.how != Release::kForget && pick(0, 3))
        pool_.publish_tail(seq.table, known, seq.completed);
      swaps_ += seq.how == Release::kOffload;
      pool_.release(seq.table, seq.how);
      ended_.push_back(seq.text);
      if (ended_.size() > 8) ended_.pop_front();
      it = live_.erase(it);
    }
  }

  void land() {
    if (flying_.empty()) return;
    if (pick(0, 39) == 0) return fail();
    const PlannedStep step = std::move(flying_.front());
    flying_.pop_front();
    make(step.copies);
    if (!step.onboards.empty()) {
      arrivals_.push_back({.copies = step.onboards, .ok = pick(0, 19) > 0});
      if (pick(0, 1)) make_arrivals();
    }
    for (const PlannedRow& row : step.rows)
      for (size_t g = 0; g < pool_.num_groups(); ++g)
        for (int p = row.start; p < row.end; ++p) cell(row, g, p) = row.seq->text.cell(g, p);
    for (const PlannedRow& row : step.rows) {
      Seq& seq = *row.seq;
      for (size_t g = 0; g < pool_.num_groups(); ++g) {
        const BlockGroupConfig& group = config_.groups[g];
        for (int p = 0; p < row.end; ++p) {
          const bool seen = group.window == 0 || p < group.sink || p > row.start - group.window;
          ASSERT_TRUE(!seen || cell(row, g, p) == seq.text.cell(g, p))
              << "group " << g << ", position " << p;
        }
      }
      seq.completed = row.end;
      seq.has_run = true;
      --seq.inflight;
      if (pick(0, 7) || weak_keys_)
        pool_.publish(seq.table, seq.text.contents(seq.text.tokens.size()), seq.completed);
    }
    reap();
  }

  void make(const std::vector<PlanCopy>& copies, bool ok = true) {
    for (const PlanCopy& copy : copies) {
      ASSERT_TRUE(copy.from != copy.to);
      const auto cells = cells_.at(copy.group).begin();
      std::copy_n(cells + copy.from * t_, t_, cells + copy.to * t_);
      if (!ok) std::fill_n(cells + copy.to * t_, t_, kGarbage);
    }
  }

  void make_arrivals() {
    for (HostCopies& arrival : arrivals_)
      if (!std::exchange(arrival.made, true)) make(arrival.copies, arrival.ok);
  }

  size_t num_arrivals() const {
    return arrivals_.size() + std::ranges::count_if(flying_, [](const PlannedStep& step) {
             return !step.onboards.empty();
           });
  }

  // Ends the oldest host-pool copies, after those before them.
  void arrive() {
    if (arrivals_.empty()) return;
    if (HostCopies& first = arrivals_.front(); !std::exchange(first.made, true))
      make(first.copies, first.ok);
    const bool ok = arrivals_.front().ok;
    arrivals_.pop_front();
    lost_ += !ok;
    pool_.end_onboards(ok);
    for (Seq& seq : live_) seq.ending |= !ok && seq.inflight == 0 && pool_.any_tainted(seq.table);
    reap();
  }

  // The device is lost: no copy or row in flight was executed.
  void fail() {
    ++failures_;
    // Collected copies may depend on copies that never ran.
    for (Seq& seq : live_)
      if (!seq.has_run) seq.ending = true, seq.how = Release::kForget;
    for (const PlannedStep& step : flying_) {
      if (!step.onboards.empty()) arrivals_.push_back({.copies = step.onboards, .ok = false});
      for (const PlannedRow& row : step.rows) {
        for (size_t g = 0; g < pool_.num_groups(); ++g)
          for (int p = row.start; p < row.end; ++p) cell(row, g, p) = kGarbage;
        row.seq->inflight = 0;
        row.seq->ending = true;
        row.seq->how = Release::kForget;
      }
    }
    flying_.clear();
    pool_.forget_everything();
    ASSERT_EQ(pool_.num_cached(), 0);
    reap();
  }

  uint64_t& cell(const PlannedRow& row, size_t g, int p) {
    return cells_.at(g).at(row.groups.at(g).blocks.at(p / t_) * t_ + p % t_);
  }

  void check() {
    int64_t held = 0;
    for (const Seq& seq : live_) held += seq.table.num_held();
    pool_.check(held);
    ASSERT_EQ(pool_.num_cached(), static_cast<int>(mirror_.groups[0].size()));
  }

  void count(PoolTotals& totals) const {
    const PoolStats& s = pool_.stats();
    totals.stats.reused += s.reused;
    totals.stats.copied += s.copied;
    totals.stats.offloaded += s.offloaded;
    totals.stats.onboarded += s.onboarded;
    totals.stats.alloc_total += s.alloc_total;
    totals.forks += forks_;
    totals.failures += failures_;
    totals.swaps += swaps_;
    totals.drops += drops_;
    totals.holes += holes_;
    totals.late += late_;
    totals.lost += lost_;
    totals.collisions += weak_keys_;
    ASSERT_GE(s.alloc_total, s.alloc_new);
    ASSERT_EQ(s.alloc_total - s.alloc_new, s.onboarded);
  }

  std::mt19937_64 rng_;
  const PoolConfig config_;
  const int t_;
  BlockPool pool_;
  std::vector<std::vector<uint64_t>> cells_;  // [group][block of both levels, position]
  int most_tokens_ = 0;                       // maximum length of a text
  std::list<Seq> live_;
  std::deque<PlannedStep> flying_;
  std::deque<HostCopies> arrivals_;  // of steps that have completed
  std::deque<FuzzText> ended_;
  std::vector<std::vector<TokenId>> prefixes_;
  Mirror mirror_;
  uint64_t next_event_ = 0;
  Time now_{};
  bool weak_keys_ = false, retention_ = false;
  int arrival_rate_ = 100;  // percent per turn
  int64_t forks_ = 0, failures_ = 0, swaps_ = 0, drops_ = 0, holes_ = 0, late_ = 0, lost_ = 0;
};

TEST(BlockPoolFuzz, ContentsAndBooks) {
  const char* text = std::getenv("NEREID_FUZZ_SEEDS");
  const uint64_t num_seeds = text ? std::strtoull(text, nullptr, 10) : 10000;
  PoolTotals totals;
  for (uint64_t seed = 1; seed <= num_seeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    PoolTraffic(seed).go(totals);
    if (HasFailure()) return;
  }
  const PoolStats& s = totals.stats;
  std::printf(
      "%llu seeds: %lld blocks taken, %lld reused, %lld copied, %lld offloaded, %lld onboarded, "
      "%lld forks, %lld swaps, %lld windows, %lld hits behind a window, %lld failures, %lld waits "
      "for host blocks, %lld copies of them that failed\n",
      static_cast<unsigned long long>(num_seeds), static_cast<long long>(s.alloc_total),
      static_cast<long long>(s.reused), static_cast<long long>(s.copied),
      static_cast<long long>(s.offloaded), static_cast<long long>(s.onboarded),
      static_cast<long long>(totals.forks), static_cast<long long>(totals.swaps),
      static_cast<long long>(totals.drops), static_cast<long long>(totals.holes),
      static_cast<long long>(totals.failures), static_cast<long long>(totals.late),
      static_cast<long long>(totals.lost));
  if (num_seeds < 1000) return;
  // The fuzz test must reach the hard cases.
  const auto seeds = static_cast<int64_t>(num_seeds);
  EXPECT_GT(s.reused, 10 * seeds);
  EXPECT_GT(s.copied, 5 * seeds);
  EXPECT_GT(s.offloaded, 2 * seeds);
  EXPECT_GT(s.onboarded, seeds / 2);
  EXPECT_GT(totals.forks, seeds);
  EXPECT_GT(totals.swaps, seeds);
  EXPECT_GT(totals.drops, seeds);
  EXPECT_GT(totals.holes, seeds / 10);
  EXPECT_GT(totals.failures, seeds / 10);
  EXPECT_GT(totals.late, seeds / 2);
  EXPECT_GT(totals.lost, seeds / 100);
}

}  // namespace
}  // namespace nereid::sched
