// Model-based fuzz: random traffic against one fake in-order device that stores real KV contents. A
// drawn token is a hash of the whole prefix as the device reads it back through the block table, so
// a wrong block, a stale hit or a lost write shows as a different text. NEREID_FUZZ_SEEDS sets how
// many seeds run (default 10,000).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <random>
#include <set>

#include "sched/scheduler.h"

namespace nereid::sched {
namespace {

constexpr TokenId kVocab = 24;
constexpr uint64_t kEmpty = 0x9E3779B97F4A7C15u;

uint64_t mix(uint64_t h, uint64_t value) {
  h = (h ^ value) * 0xD6E8FEB86659FD93u;
  return h ^ (h >> 32);
}

TokenId draw(uint64_t prefix_hash, std::span<const TokenId> banned) {
  auto token = static_cast<TokenId>(mix(prefix_hash, 7) % kVocab);
  while (std::ranges::find(banned, token) != banned.end()) token = (token + 1) % kVocab;
  return token;
}

// What one KV position holds: the token, and the hash of everything up to it as attention would see
// it.
struct Cell {
  TokenId token = -1;
  uint64_t prefix = 0;
};

// A row as it leaves the host: later changes of the sequence must not reach the device.
struct LaunchedRow {
  Row row;
  std::vector<TokenId> input;
  std::vector<BlockId> table;
  std::vector<TokenId> banned;
};

struct Step {
  StepPlan plan;
  std::vector<LaunchedRow> rows;
  bool fails = false;
};

class FakeDevice {
 public:
  explicit FakeDevice(const Limits& l)
      : t_(l.tokens_per_block),
        cells_(l.num_blocks * l.tokens_per_block),
        last_(l.max_batch_size) {}

  // Runs as late as possible, when the host waits for it: that is the worst case for blocks given
  // away too early.
  std::vector<TokenId> run(const Step& step) {
    std::vector<TokenId> drawn;
    for (const LaunchedRow& r : step.rows) drawn.push_back(run_row(r, step.fails));
    return drawn;
  }

 private:
  Cell& cell(const LaunchedRow& r, int position) {
    return cells_.at(r.table.at(position / t_) * t_ + position % t_);
  }

  TokenId run_row(const LaunchedRow& r, bool fails) {
    for (int p = r.row.start; p < r.row.end(); ++p) {
      const bool on_device = r.row.input_on_device && p == r.row.end() - 1;
      cell(r, p).token = fails       ? -2
                         : on_device ? last_.at(r.row.slot)
                                     : r.input.at(p - r.row.start);
    }
    uint64_t h = kEmpty;
    for (int p = 0; p < r.row.end(); ++p) {
      Cell& c = cell(r, p);
      h = mix(h, static_cast<uint64_t>(c.token));
      if (p >= r.row.start) c.prefix = h;
      if (c.prefix != h) h = mix(h, 0xBAD);  // written for another prefix
    }
    if (!r.row.samples) return -1;
    return last_.at(r.row.slot) = draw(h, r.banned);
  }

  int t_;
  std::vector<Cell> cells_;
  std::vector<TokenId> last_;  // per slot
};

struct Outcome {
  std::vector<TokenId> text;
  FinishReason reason = FinishReason::kNotFinished;
};

// The same request alone, without blocks, chunks or steps.
Outcome reference(const SequenceSpec& s, const Limits& l) {
  std::vector<TokenId> all = s.prompt;
  uint64_t h = kEmpty;
  for (TokenId t : all) h = mix(h, static_cast<uint64_t>(t));
  Outcome out;
  const int min_tokens = s.sampling.min_tokens.value_or(0);
  for (;;) {
    std::vector<TokenId> banned;
    if (static_cast<int>(out.text.size()) < min_tokens) {
      banned = s.end_ids;
      for (const auto& w : s.stop_words)
        if (w.size() == 1) banned.push_back(w[0]);
    }
    const TokenId t = draw(h, banned);
    if (banned.empty() && std::ranges::find(s.end_ids, t) != s.end_ids.end()) {
      out.reason = FinishReason::kEndId;
      return out;
    }
    all.push_back(t);
    out.text.push_back(t);
    h = mix(h, static_cast<uint64_t>(t));
    for (const auto& w : s.stop_words)
      if (static_cast<int>(out.text.size()) >= min_tokens && w.size() <= all.size() &&
          std::equal(w.rbegin(), w.rend(), all.rbegin()))
        out.reason = FinishReason::kStopWords;
    if (out.reason != FinishReason::kNotFinished) return out;
    if (static_cast<int>(out.text.size()) == s.max_new_tokens ||
        static_cast<int>(all.size()) == l.max_sequence_length) {
      out.reason = FinishReason::kLength;
      return out;
    }
  }
}

struct Client {
  SequenceSpec spec;
  std::vector<TokenId> text;
  RowNews last;
  bool ended_by_us = false;  // cancel or stop was sent
};

struct Totals {
  int64_t requests = 0, preemptions = 0, reused = 0, cancelled = 0, failed = 0, steps = 0,
          refused = 0;
};

class Traffic {
 public:
  explicit Traffic(uint64_t seed)
      : rng_(seed), limits_(random_limits()), sched_(limits_), device_(limits_) {
    depth_ = pick(1, 2);
    cancel_rate_ = pick(0, 2) * 4;
    fail_rate_ = pick(0, 3) == 0 ? 5 : 0;
    for (int i = 0; i < 3; ++i) prefixes_.push_back(random_tokens(pick(1, 24)));
  }

  void go(Totals& totals) {
    int to_send = pick(1, 40);
    int64_t work = 0;  // tokens that a fully serial run would compute
    for (int64_t turn = 0; to_send > 0 || !sched_.idle() || !flying_.empty(); ++turn) {
      ASSERT_LT(turn, 1000 + 40 * work) << "no progress";
      while (to_send > 0 && pick(0, 2) == 0) {
        --to_send;
        work += submit(totals);
      }
      if (pick(0, 99) < cancel_rate_) end_someone();
      launch(totals);
      while (static_cast<int>(flying_.size()) >= depth_ || (!flying_.empty() && !launched_)) {
        land();
        if (testing::Test::HasFatalFailure()) return;
      }
      if (sched_.idle() && flying_.empty()) {
        sched_.check();
        ASSERT_EQ(sched_.stats().blocks_free, limits_.num_blocks);
      }
      if (pick(0, 15) == 0) sched_.check();
    }
    finish(totals);
  }

 private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng_); }

  std::vector<TokenId> random_tokens(int n) {
    std::vector<TokenId> tokens(n);
    for (TokenId& t : tokens) t = pick(0, kVocab - 1);
    return tokens;
  }

  // Pools from just enough for one sequence to roomy.
  Limits random_limits() {
    Limits l{.max_batch_size = pick(1, 8),
             .max_num_tokens = pick(0, 1) ? pick(1, 8) : pick(4, 64),
             .max_queue_size = pick(2, 20),
             .max_sequence_length = pick(24, 72),
             .tokens_per_block = 1 << pick(0, 3),
             .enable_reuse = pick(0, 4) != 0};
    const int one = l.max_sequence_length / l.tokens_per_block + 1;
    l.num_blocks = pick(0, 1) ? one + pick(0, one) : pick(one, 6 * one);
    if (pick(0, 9) == 0) l.num_blocks = pick(1, one);  // some requests can never run
    return l;
  }

  SequenceSpec random_spec() {
    SequenceSpec s{.id = next_id_++, .max_new_tokens = pick(1, 48)};
    if (pick(0, 2) > 0) s.prompt = prefixes_[pick(0, 2)];
    if (pick(0, 5) == 0 && !clients_.empty()) {  // a conversation goes on
      const Client& c = std::next(clients_.begin(), pick(0, clients_.size() - 1))->second;
      s.prompt = c.spec.prompt;
      s.prompt.insert(s.prompt.end(), c.text.begin(), c.text.end());
    }
    for (TokenId t : random_tokens(pick(s.prompt.empty() ? 1 : 0, 12))) s.prompt.push_back(t);
    if (pick(0, 1)) s.end_ids = random_tokens(pick(1, 2));
    if (pick(0, 3) == 0) s.stop_words = {random_tokens(1), random_tokens(2)};
    if (pick(0, 3) == 0) s.sampling.min_tokens = pick(0, s.max_new_tokens);
    return s;
  }

  int64_t submit(Totals& totals) {
    SequenceSpec s = random_spec();
    const int queued = sched_.num_queued();
    const Status status = sched_.submit(s);
    if (!status.ok()) {
      const bool full = queued >= limits_.max_queue_size;
      const bool fits = Scheduler::validate(limits_, s.prompt.size(), s.max_new_tokens).ok();
      EXPECT_TRUE(full || !fits) << status;
      ++totals.refused;
      return 0;
    }
    const auto work = static_cast<int64_t>(s.prompt.size()) + s.max_new_tokens;
    clients_[s.id].spec = std::move(s);
    return work;
  }

  void end_someone() {
    if (clients_.empty()) return;
    auto& [id, client] = *std::next(clients_.begin(), pick(0, clients_.size() - 1));
    client.ended_by_us = true;
    auto news = pick(0, 1) ? sched_.cancel(id) : sched_.stop(id);
    if (news) deliver(*std::move(news));
  }

  void launch(Totals& totals) {
    Step step{.plan = sched_.plan(Time{})};
    launched_ = !step.plan.empty();
    if (!launched_) return;
    ++totals.steps;
    ASSERT_LE(step.plan.num_tokens, limits_.max_num_tokens);
    std::set<int> slots;
    for (const Row& row : step.plan.rows) {
      ASSERT_TRUE(slots.insert(row.slot).second);
      ASSERT_TRUE(row.slot >= 0 && row.slot < limits_.max_batch_size);
      const SequenceSpec& spec = clients_.at(row.sequence->id()).spec;
      ASSERT_GT(row.num_tokens, 0) << "a row without input has no logits";
      ASSERT_LT(row.end(), limits_.max_sequence_length);
      ASSERT_LT(row.end(), static_cast<int>(spec.prompt.size()) + spec.max_new_tokens);
      const auto known = row.sequence->tokens();
      LaunchedRow r{.row = row};
      for (int p = row.start; p < row.end() - row.input_on_device; ++p) r.input.push_back(known[p]);
      const auto table = row.sequence->block_table();
      r.table.assign(table.begin(), table.end());
      const auto banned = row.sequence->banned_ids(row.end());
      r.banned.assign(banned.begin(), banned.end());
      step.rows.push_back(std::move(r));
    }
    step.fails = pick(0, 99) < fail_rate_;
    flying_.push_back(std::move(step));
  }

  void land() {
    const Step step = std::move(flying_.front());
    flying_.pop_front();
    const std::vector<TokenId> drawn = device_.run(step);
    for (size_t i = 0; i < step.plan.rows.size(); ++i) {
      const Row& row = step.plan.rows[i];
      if (step.fails) {
        deliver(sched_.abort(row, internal_error("step failed")));
      } else {
        const Drawn token{.token = drawn[i]};
        deliver(sched_.commit(row, row.samples ? &token : nullptr));
      }
    }
  }

  void deliver(RowNews news) {
    if (news.empty()) return;
    Client& client = clients_.at(news.id);
    ASSERT_FALSE(client.last.finished) << "news after the final one";
    client.text.insert(client.text.end(), news.tokens.begin(), news.tokens.end());
    client.last = std::move(news);
  }

  void finish(Totals& totals) {
    for (const auto& [id, client] : clients_) {
      ASSERT_TRUE(client.last.finished) << "request " << id << " never ended";
      const Outcome expected = reference(client.spec, limits_);
      const bool failed = !client.last.status.ok();
      const bool cut = failed || (client.ended_by_us && client.last.reason != expected.reason) ||
                       client.text.size() < expected.text.size();
      if (cut) {
        ASSERT_TRUE(failed || client.ended_by_us) << "request " << id;
        ASSERT_LE(client.text.size(), expected.text.size());
        ASSERT_TRUE(std::equal(client.text.begin(), client.text.end(), expected.text.begin()))
            << "request " << id;
      } else {
        ASSERT_EQ(client.text, expected.text) << "request " << id;
        ASSERT_EQ(client.last.reason, expected.reason) << "request " << id;
      }
      totals.failed += failed;
      totals.cancelled += client.last.reason == FinishReason::kCancelled;
    }
    totals.requests += static_cast<int64_t>(clients_.size());
    totals.preemptions += sched_.stats().num_preemptions;
    totals.reused += sched_.stats().blocks_reused;
  }

  std::mt19937_64 rng_;
  Limits limits_;
  Scheduler sched_;
  FakeDevice device_;
  std::deque<Step> flying_;  // oldest first
  std::map<RequestId, Client> clients_;
  std::vector<std::vector<TokenId>> prefixes_;
  RequestId next_id_ = 1;
  int depth_ = 1;                        // steps in flight when the next one is planned, plus one
  int cancel_rate_ = 0, fail_rate_ = 0;  // percent per turn
  bool launched_ = false;
};

TEST(SchedulerFuzz, EveryTextEqualsTheReference) {
  const char* text = std::getenv("NEREID_FUZZ_SEEDS");
  const uint64_t num_seeds = text ? std::strtoull(text, nullptr, 10) : 10000;
  Totals totals;
  for (uint64_t seed = 1; seed <= num_seeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Traffic(seed).go(totals);
    if (HasFailure()) return;
  }
  std::printf(
      "%llu seeds: %lld requests, %lld refused, %lld steps, %lld preemptions, %lld blocks reused, "
      "%lld cancelled, "
      "%lld failed\n",
      static_cast<unsigned long long>(num_seeds), static_cast<long long>(totals.requests),
      static_cast<long long>(totals.refused), static_cast<long long>(totals.steps),
      static_cast<long long>(totals.preemptions), static_cast<long long>(totals.reused),
      static_cast<long long>(totals.cancelled), static_cast<long long>(totals.failed));
  if (num_seeds < 1000) return;
  // A fuzz that no longer reaches the hard cases proves nothing.
  EXPECT_GT(totals.preemptions, totals.requests / 100);
  EXPECT_GT(totals.reused, totals.requests / 10);
  EXPECT_GT(totals.cancelled, totals.requests / 100);
  EXPECT_GT(totals.failed, totals.requests / 100);
}

}  // namespace
}  // namespace nereid::sched
