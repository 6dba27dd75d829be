// Model-based fuzz test: random traffic under every policy against a fake device with real KV
// contents. Asserts every text, exactly one final update per sequence, no lost block, and the
// bounds of waiting in README.md. NEREID_FUZZ_SEEDS: number of seeds (default 10,000).
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <set>

#include "sched/fake_model.h"
#include "sched/scheduler_traffic.h"

namespace nereid::sched {
namespace {

class Traffic : RandomRequests {
 public:
  explicit Traffic(uint64_t seed) : RandomRequests(seed), sched_(limits_), device_(limits_) {
    depth_ = pick(1, 4);
    draft_rate_ = pick(0, 2) == 0 ? 50 : 0;
    cancel_rate_ = pick(0, 2) * 4;
    fail_rate_ = pick(0, 3) == 0 ? 5 : 0;
    arrival_rate_ = pick(0, 2) == 0 ? 100 : pick(0, 1) ? pick(0, 10) : pick(10, 60);
    mixes_priorities_ = pick(0, 1);
    has_deadlines_ = pick(0, 3) == 0;
    limits_prefill_ = pick(0, 2) == 0;
    for (int i = 0; i < 3; ++i) prefixes_.push_back(random_tokens(pick(1, 24)));
  }

  void go(TrafficTotals& totals) {
    int to_send = pick(1, 40);
    int64_t work = 0;  // rows of a fully serial run
    for (int64_t turn = 0; to_send > 0 || !sched_.idle() || !flying_.empty(); ++turn) {
      if (pick(0, 99) < arrival_rate_) arrive(totals);
      ASSERT_LT(turn, 1000 + 40 * work) << "no progress";
      time_ += std::chrono::milliseconds(1);
      while (to_send > 0 && pick(0, 2) == 0) {
        --to_send;
        work += submit(totals);
      }
      if (pick(0, 99) < cancel_rate_) end_someone();
      if (pick(0, 99) < draft_rate_) draft_someone(totals);
      if (limits_prefill_ && pick(0, 3) == 0) sched_.limit_prefill(pick(0, 24));
      for (SequenceUpdate& update : sched_.expire(time_)) deliver(std::move(update));
      launch(totals);
      while (static_cast<int>(flying_.size()) >= depth_ || (!flying_.empty() && !launched_)) {
        land();
        if (testing::Test::HasFatalFailure()) return;
      }
      if (!launched_ && flying_.empty()) arrive(totals);
      if (sched_.idle() && flying_.empty()) {
        sched_.check();
        ASSERT_TRUE(arrivals_.empty());
        ASSERT_EQ(sched_.stats().blocks_free, sched_.stats().blocks_total);
      }
      if (pick(0, 15) == 0) sched_.check();
    }
    finish(totals);
  }

 private:
  SequenceSpec random_spec() {
    SequenceSpec s{.id = next_id_++, .max_new_tokens = pick(1, 48)};
    if (pick(0, 2) > 0) s.prompt = prefixes_[pick(0, 2)];
    if (pick(0, 5) == 0 && !clients_.empty()) {  // a conversation goes on
      const Client& c = std::next(clients_.begin(), pick(0, clients_.size() - 1))->second;
      s.prompt = c.spec.prompt;
      s.prompt.insert(s.prompt.end(), c.text.begin(), c.text.end());
      s.input_keys = c.spec.input_keys;
    }
    for (TokenId t : random_tokens(pick(s.prompt.empty() ? 1 : 0, 12))) s.prompt.push_back(t);
    if (pick(0, 3) == 0) {
      s.input_keys.resize(s.prompt.size());
      s.input_keys[pick(0, s.prompt.size() - 1)].low = pick(0, 2);
    }
    if (pick(0, 1)) s.end_ids = random_tokens(pick(1, 2));
    if (pick(0, 3) == 0) s.stop_words = {random_tokens(1), random_tokens(2)};
    if (pick(0, 3) == 0) s.sampling.min_tokens = pick(0, s.max_new_tokens);
    if (pick(0, 9) == 0) s.cache_salt = "other";
    if (limits_.max_adapters > 0 && pick(0, 2) > 0) {
      s.adapter = static_cast<uint64_t>(pick(1, 6));
      s.adapter_pages = static_cast<int32_t>(s.adapter) / 2;
      s.cache_salt += std::to_string(s.adapter);
    }
    if (pick(0, 7) == 0) s.output.return_context_logits = true;
    if (pick(0, 7) == 0) s.output.num_prompt_log_probs = pick(0, 3);
    if (mixes_priorities_) s.priority = static_cast<float>(pick(0, 2)) / 2;
    if (has_deadlines_ && pick(0, 2) == 0)
      s.deadline = time_ + std::chrono::milliseconds(pick(1, 80));
    if (pick(0, 5) == 0) {
      s.retention.emplace();
      s.retention->token_ranges.push_back({.priority = pick(0, 100)});
      if (pick(0, 1))
        s.retention->token_ranges[0].duration = std::chrono::milliseconds(pick(1, 50));
      s.retention->decode_priority = pick(0, 100);
    }
    s.arrival = time_;
    if (pick(0, 3) == 0) random_search(s);
    if (s.sampling.beam_width == 1 && pick(0, 7) == 0) {
      s.output = {.pooling = pick(0, 1) ? Pooling::kLast : Pooling::kMean};
      s.max_new_tokens = 0;
    }
    if (draft_rate_ > 0 && s.sampling.beam_width == 1 && pick(0, 2) == 0)
      s.drafts = make_drafts(s, 0);
    return s;
  }

  int64_t submit(TrafficTotals& totals) {
    std::vector<SequenceSpec> group = {random_spec()};
    const bool follows = group[0].sampling.beam_width == 1 && !group[0].output.pooling;
    const int num_followers = follows && pick(0, 4) == 0 ? pick(1, 4) : 0;
    for (int i = 1; i <= num_followers; ++i) {
      SequenceSpec& s = group.emplace_back(group[0]);
      s.id = next_id_++;
      s.leader = group[0].id;
      s.sampling.seed = i;
      s.output.return_context_logits = false;
      s.output.num_prompt_log_probs.reset();
    }
    const int queued = sched_.num_queued(), size = static_cast<int>(group.size());
    const SequenceSpec& first = group[0];
    const bool fits = Scheduler::validate(limits_, first.prompt.size(), first.max_new_tokens,
                                          first.sampling.beam_width, size)
                          .ok();
    const Status status = sched_.submit(group);
    if (!status.ok()) {
      EXPECT_TRUE(!fits || queued + size > limits_.max_queue_size) << status;
      ++totals.refused;
      return 0;
    }
    totals.followers += num_followers;
    totals.beams += first.sampling.beam_width > 1;
    totals.pooled += first.output.pooling.has_value();
    int64_t work = 0;
    uint64_t index = 0;
    for (SequenceSpec& s : group) {
      work += static_cast<int64_t>(s.prompt.size()) + s.max_new_tokens;
      Client& client = clients_[s.id];
      client.place = Scheduler::order_key(num_submitted_, index++);
      client.spec = std::move(s);
    }
    ++num_submitted_;
    return work;
  }

  // Half of the time a sequence with onboards in flight, if there is one: these are few.
  void end_someone() {
    if (clients_.empty()) return;
    std::vector<RequestId> on_their_way;
    for (const Sequence* sequence : sched_.running())
      if (is_arriving(*sequence) && !clients_.at(sequence->id()).last.finished)
        on_their_way.push_back(sequence->id());
    const bool arriving = !on_their_way.empty() && pick(0, 1);
    const RequestId id = arriving
                             ? on_their_way[pick(0, on_their_way.size() - 1)]
                             : std::next(clients_.begin(), pick(0, clients_.size() - 1))->first;
    ended_on_their_way_ += std::ranges::count(on_their_way, id) > 0;
    clients_.at(id).ended_by_us = true;
    auto update = pick(0, 1) ? sched_.cancel(id) : sched_.stop(id);
    if (update) deliver(*std::move(update));
  }

  void draft_someone(TrafficTotals& totals) {
    if (clients_.empty()) return;
    const auto& [id, client] = *std::next(clients_.begin(), pick(0, clients_.size() - 1));
    if (client.last.finished || client.spec.sampling.beam_width > 1) return;
    const std::vector<TokenId> chain = make_drafts(client.spec, client.text.size());
    if (pick(0, 1)) return sched_.draft(id, chain);
    // The same drafts, each with siblings.
    std::vector<TokenId> tree;
    std::vector<int32_t> parents;
    int32_t parent = -1;
    const auto add = [&](TokenId token) {
      tree.push_back(token % kVocab);
      parents.push_back(parent);
    };
    for (const TokenId token : chain) {
      const int before = pick(0, 2), behind = pick(0, 2);
      for (int i = 1; i <= before; ++i) add(token + i);
      const auto at = static_cast<int32_t>(tree.size());
      add(token);
      for (int i = 1; i <= behind; ++i) add(token + before + i);
      parent = at;
    }
    sched_.draft(id, tree, parents);
    ++totals.trees;
  }

  // The continuation of a request after `num_said` tokens, perhaps with a mistake.
  std::vector<TokenId> make_drafts(const SequenceSpec& spec, size_t num_said) {
    std::vector<TokenId> tokens = reference(spec, limits_).text;
    tokens.erase(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(num_said));
    if (pick(0, 3) == 0) tokens.push_back(pick(0, kVocab - 1));
    tokens.resize(std::min<size_t>(tokens.size(), pick(0, 12)));
    if (!tokens.empty() && pick(0, 1)) tokens[pick(0, tokens.size() - 1)] = pick(0, kVocab - 1);
    return tokens;
  }

  void launch(TrafficTotals& totals) {
    const bool is_limited = sched_.prefill_limit() > 0 && limits_.policy.enable_chunked_context &&
                            std::ranges::any_of(sched_.running(), [](const Sequence* s) {
                              return s->beam_width() == 1 && s->num_pending() == 1;
                            });
    LaunchedStep step(sched_.plan(time_), limits_.groups.size());
    launched_ = !step.plan.empty();
    ASSERT_TRUE(launched_ || step.plan.copies.empty());
    if (launched_) take_arrival(step.plan);
    watch_order(step.plan, totals);
    if (!launched_) return;
    ++totals.steps;
    totals.copies += static_cast<int64_t>(step.plan.copies.size());
    totals.arrivals += !step.plan.onboards.empty();
    totals.beside += !arrivals_.empty() && !step.plan.rows.empty();
    ASSERT_LE(step.plan.num_tokens, limits_.max_num_tokens);
    std::set<int> slots;
    int num_tokens = 0, num_logits = 0, num_scored = 0, num_prefill = 0;
    for (const ScheduledRow& row : step.plan.rows) {
      ASSERT_TRUE(slots.insert(row.slot).second);
      ASSERT_FALSE(is_arriving(*row.sequence)) << "its blocks are on their way";
      ASSERT_FALSE(awaits_host(row.sequence)) << "the row before needs the host";
      ASSERT_FALSE(row.input_on_device && limits_.num_stages > 1) << "the first stage lacks it";
      ASSERT_TRUE(row.num_drafts == 0 || (row.samples && row.needs_host));
      totals.drafted += row.num_drafts;
      ASSERT_TRUE(row.slot >= 0 && row.slot < limits_.max_batch_size);
      const SequenceSpec& spec = clients_.at(row.sequence->id()).spec;
      ASSERT_GT(row.num_tokens, 0) << "a row without input has no logits";
      const int last = spec.output.pooling ? 1 : 0;
      ASSERT_LT(row.end(), limits_.max_sequence_length + last);
      ASSERT_LT(row.end(), static_cast<int>(spec.prompt.size()) + spec.max_new_tokens + last);
      ASSERT_TRUE(!spec.output.pooling || (!row.samples && row.num_drafts == 0));
      ASSERT_TRUE(!row.all_logits || row.end() <= row.sequence->num_prompt());
      num_tokens += row.num_tokens;
      if (row.num_tokens > 1 + row.num_drafts) num_prefill += row.num_tokens - row.num_drafts;
      num_logits += row.num_logits();
      if (row.all_logits && spec.output.num_prompt_log_probs) num_scored += row.num_tokens;
    }
    ASSERT_TRUE(limits_.max_scored_tokens == 0 || num_scored <= limits_.max_scored_tokens);
    ASSERT_EQ(num_tokens, step.plan.num_tokens);
    if (is_limited) {
      ASSERT_LE(num_prefill, std::max(sched_.prefill_limit(), limits_.tokens_per_block));
      totals.limited += num_prefill > 0;
    }
    ASSERT_LE(num_logits, limits_.num_logits_rows());
    totals.in_stages += limits_.num_stages > 1 && !flying_.empty();
    step.fails = pick(0, 99) < fail_rate_;
    flying_.push_back(std::move(step));
  }

  void take_arrival(const StepPlan& plan) {
    ++num_launched_;
    if (!plan.copies.empty()) last_with_copies_ = num_launched_;
    if (plan.onboards.empty()) return;
    arrivals_.push_back({.copies = plan.onboards,
                         .after = last_with_copies_,
                         .early = pick(0, 1) == 0,
                         .ok = pick(0, 99) >= 4 * fail_rate_});
    make_arrivals();
  }

  // Whether copies to its blocks have not been reported by onboarded().
  bool is_arriving(const Sequence& sequence) const {
    for (const LateCopies& arrival : arrivals_)
      for (const PlanCopy& copy : arrival.copies)
        if (std::ranges::count(sequence.block_table(0, copy.group), copy.to)) return true;
    return false;
  }

  // Runs the early copies that may run by now, in order.
  void make_arrivals() {
    for (LateCopies& arrival : arrivals_) {
      if (arrival.made) continue;
      if (!arrival.early || arrival.after > num_landed_) return;
      device_.copy(arrival.copies, arrival.ok);
      arrival.made = true;
    }
  }

  void arrive(TrafficTotals& totals) {
    if (arrivals_.empty() || arrivals_.front().after > num_landed_) return;
    LateCopies arrival = std::move(arrivals_.front());
    arrivals_.pop_front();
    if (!arrival.made) device_.copy(arrival.copies, arrival.ok);
    totals.lost += !arrival.ok;
    sched_.onboarded(arrival.ok ? ok() : internal_error("a copy failed"));
    make_arrivals();
  }

  bool awaits_host(const Sequence* sequence) const {
    return std::ranges::any_of(flying_, [&](const LaunchedStep& step) {
      return std::ranges::any_of(step.plan.rows, [&](const ScheduledRow& row) {
        return row.sequence == sequence && row.needs_host;
      });
    });
  }

  // The bounds of waiting in README.md.
  void watch_order(const StepPlan& plan, TrafficTotals& totals) {
    std::set<RequestId> served, flying;
    const Client* last = nullptr;  // last in order of the sequences with a row
    for (const ScheduledRow& row : plan.rows) {
      const Client& client = clients_.at(row.sequence->id());
      served.insert(client.spec.id);
      if (!last || last->before(client)) last = &client;
    }
    for (const LaunchedStep& step : flying_)
      for (const ScheduledRow& row : step.plan.rows) flying.insert(row.sequence->id());
    for (const Sequence* sequence : sched_.running())
      if (is_arriving(*sequence)) flying.insert(sequence->id());
    for (auto& [id, client] : clients_) {
      if (client.last.finished) continue;
      if (served.contains(id) || flying.contains(id)) {
        client.num_overtaken = 0;
      } else if (last && client.before(*last)) {
        ++client.num_overtaken;
      }
      totals.most_overtaken = std::max(totals.most_overtaken, client.num_overtaken);
      ASSERT_LE(client.num_overtaken, max_overtaken()) << "request " << id << " starves";
    }
  }

  // README.md: waits for pending prefix blocks, then for all sequences admitted before it.
  int max_overtaken() const {
    return Scheduler::kMaxReuseDelays +
           (depth_ + 1) * limits_.max_batch_size * limits_.max_sequence_length;
  }

  void land() {
    const LaunchedStep step = std::move(flying_.front());
    flying_.pop_front();
    const std::vector<FakeResult> results = device_.run(step);
    ++num_landed_;
    make_arrivals();
    if (step.fails) {
      for (const ScheduledRow& row : step.plan.rows)
        clients_.at(row.sequence->id()).poisoned = true;
      for (SequenceUpdate& update : sched_.fail(step.plan, internal_error("step failed")))
        deliver(std::move(update));
      return;
    }
    for (size_t i = 0; i < step.plan.rows.size(); ++i) {
      const ScheduledRow& row = step.plan.rows[i];
      if (fail_rate_ > 0 && pick(0, 199) == 0) {  // logits not finite
        clients_.at(row.sequence->id()).poisoned = true;
        deliver(sched_.abort(row, internal_error("not finite")));
        continue;
      }
      watch_pooled(row, results[i]);
      std::vector<SampledTokens> drawn;
      for (const TokenId token : results[i].tokens) drawn.push_back({.token = token});
      if (!results[i].top.empty()) drawn = {{.top = results[i].top}};
      held_ += std::max<int64_t>(0, static_cast<int64_t>(drawn.size()) - 1);
      deliver(sched_.commit(row, drawn));
    }
  }

  // Rows of a pooled prompt (all positions wanted) cover each position once, in order.
  void watch_pooled(const ScheduledRow& row, const FakeResult& result) {
    Client& client = clients_.at(row.sequence->id());
    ASSERT_TRUE(result.whole || fail_rate_ > 0);
    if (client.spec.output.pooling != Pooling::kMean || client.last.finished) return;
    ASSERT_TRUE(row.all_logits);
    ASSERT_EQ(row.start, row.start == 0 ? 0 : client.num_pooled);
    client.num_pooled = row.end();
    ASSERT_EQ(row.ends_prompt, row.end() == static_cast<int>(client.spec.prompt.size()));
  }

  void deliver(SequenceUpdate update) {
    if (update.empty()) return;
    Client& client = clients_.at(update.id);
    ASSERT_FALSE(client.last.finished) << "update after the final one";
    client.text.insert(client.text.end(), update.tokens.begin(), update.tokens.end());
    client.last = std::move(update);
  }

  void finish(TrafficTotals& totals) {
    for (const auto& [id, client] : clients_) {
      ASSERT_TRUE(client.last.finished) << "request " << id << " never ended";
      SCOPED_TRACE(testing::Message() << "request " << id);
      const bool failed = !client.last.status.ok();
      const bool timed_out = client.last.reason == FinishReason::kTimedOut;
      ASSERT_TRUE(!failed || client.poisoned);
      ASSERT_TRUE(!timed_out || client.spec.deadline);
      const bool may_be_cut = failed || timed_out || client.ended_by_us;
      if (client.spec.sampling.beam_width > 1) {
        check_beams(client, may_be_cut);
      } else {
        check_text(client, may_be_cut);
      }
      totals.failed += failed;
      totals.timed_out += timed_out;
      totals.cancelled += client.last.reason == FinishReason::kCancelled;
    }
    const SchedulerStats stats = sched_.stats();
    ASSERT_EQ(stats.num_finished + stats.num_cancelled + stats.num_failed + stats.num_timed_out,
              static_cast<int64_t>(clients_.size()));
    totals.requests += static_cast<int64_t>(clients_.size());
    totals.preemptions += stats.num_preemptions;
    totals.reused += stats.blocks_reused;
    totals.offloaded += stats.blocks_offloaded;
    totals.onboarded += stats.blocks_onboarded;
    totals.held += held_;
    totals.ended_on_their_way += ended_on_their_way_;
    totals.windowed += limits_.any_window();
    totals.mixed += limits_.any_window() && limits_.groups[0].window == 0;
  }

  void check_text(const Client& client, bool may_be_cut) {
    const Outcome expected = reference(client.spec, limits_);
    const bool cut = !client.last.status.ok() || client.last.reason != expected.reason ||
                     client.text.size() < expected.text.size();
    ASSERT_TRUE(!cut || may_be_cut)
        << "of " << expected.text.size() << " tokens it has " << client.text.size();
    ASSERT_TRUE(cut || client.text == expected.text);
    ASSERT_LE(client.text.size(), expected.text.size());
    ASSERT_TRUE(std::equal(client.text.begin(), client.text.end(), expected.text.begin()));
  }

  void check_beams(const Client& client, bool may_be_cut) {
    ASSERT_TRUE(client.text.empty());
    const FinishReason reason = client.last.reason;
    if (may_be_cut && client.last.beams.empty()) return;
    const std::vector<Outcome> expected = reference_beams(client.spec, limits_);
    ASSERT_EQ(client.last.beams.size(), expected.size());
    ASSERT_EQ(reason, expected[0].reason);
    for (size_t i = 0; i < expected.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "beam " << i);
      ASSERT_EQ(client.last.beams[i].tokens, expected[i].text);
      ASSERT_EQ(client.last.beams[i].reason, expected[i].reason);
      ASSERT_EQ(client.last.beams[i].cum_log_prob, expected[i].cum_log_prob);
    }
  }

  Scheduler sched_;
  FakeDevice device_;
  std::deque<LaunchedStep> flying_;                                   // oldest first
  std::deque<LateCopies> arrivals_;                                   // oldest first
  int64_t num_launched_ = 0, num_landed_ = 0, last_with_copies_ = 0;  // steps
  std::map<RequestId, Client> clients_;
  std::vector<std::vector<TokenId>> prefixes_;
  RequestId next_id_ = 1;
  uint64_t num_submitted_ = 0;
  Time time_{};
  int depth_ = 1;  // 1 + steps in flight when the next one is planned
  int cancel_rate_ = 0, fail_rate_ = 0, draft_rate_ = 0, arrival_rate_ = 100;  // percent per turn
  int64_t ended_on_their_way_ = 0;
  int64_t held_ = 0;  // accepted drafts
  bool mixes_priorities_ = false, has_deadlines_ = false, limits_prefill_ = false;
  bool launched_ = false;
};

TEST(SchedulerFuzz, EveryTextEqualsTheReference) {
  const char* text = std::getenv("NEREID_FUZZ_SEEDS");
  const char* begin = std::getenv("NEREID_FUZZ_FIRST_SEED");
  const uint64_t num_seeds = text ? std::strtoull(text, nullptr, 10) : 10000;
  const uint64_t first = begin ? std::strtoull(begin, nullptr, 10) : 1;
  TrafficTotals t;
  for (uint64_t seed = first; seed < first + num_seeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Traffic(seed).go(t);
    if (HasFailure()) return;
  }
  std::cout << num_seeds << " seeds: " << t.requests << " sequences (" << t.beams << " searches, "
            << t.followers << " followers, " << t.pooled << " pooled), " << t.refused
            << " refused, " << t.steps << " steps, " << t.preemptions << " pauses, " << t.reused
            << " blocks reused, " << t.copies << " copied, " << t.offloaded << " offloaded, "
            << t.onboarded << " onboarded, " << t.arrivals << " plans with copies from the host, "
            << t.lost << " of them lost, " << t.beside << " steps beside them, "
            << t.ended_on_their_way << " requests ended on their way, " << t.drafted
            << " drafts of which " << t.held << " held, " << t.trees << " trees offered, "
            << t.cancelled << " cancelled, " << t.timed_out << " timed out, " << t.failed
            << " failed, " << t.windowed << " seeds with windows, " << t.mixed
            << " of them beside full groups, " << t.in_stages
            << " steps of models in stages beside others, " << t.limited
            << " steps with limited prefill; overtaken at most " << t.most_overtaken
            << " plans in a row\n";
  if (num_seeds < 1000) return;
  // The fuzz test must reach the hard cases.
  EXPECT_GT(t.preemptions, t.requests / 100);
  EXPECT_GT(t.reused, t.requests / 10);
  EXPECT_GT(t.beams, t.requests / 50);
  EXPECT_GT(t.followers, t.requests / 50);
  EXPECT_GT(t.pooled, t.requests / 50);
  EXPECT_GT(t.cancelled, t.requests / 100);
  EXPECT_GT(t.failed, t.requests / 100);
  EXPECT_GT(t.timed_out, t.requests / 200);
  EXPECT_GT(t.offloaded, t.requests / 100);
  EXPECT_GT(t.onboarded, t.requests / 100);
  EXPECT_GT(t.arrivals, t.requests / 100);
  EXPECT_GT(t.beside, t.arrivals);
  EXPECT_GT(t.lost, t.requests / 10000);
  EXPECT_GT(t.ended_on_their_way, t.requests / 10000);
  EXPECT_GT(t.held, t.requests / 10);
  EXPECT_GT(t.in_stages, t.requests / 10);
  EXPECT_GT(t.limited, t.requests / 10);
  EXPECT_GT(t.drafted - t.held, t.requests / 10) << "taken back";
}

}  // namespace
}  // namespace nereid::sched
