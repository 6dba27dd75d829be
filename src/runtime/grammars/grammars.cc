#include "runtime/grammars/grammars.h"

#include <openssl/sha.h>

#include <algorithm>
#include <new>
#include <string>

#include "base/check.h"
#include "kernels/api/sample.h"
#include "runtime/grammars/mask_worker.h"
#include "runtime/grammars/reasoning_part.h"

namespace nereid::runtime {
namespace {

// Limits of compiling on the caller's thread (about 1 ms): bytes of text, steps.
constexpr size_t kMostNowBytes = 1024;
constexpr int64_t kNowSteps = 10'000;
// Limit of the first mask on the caller's thread, in steps of text::StepBudget (less than 1 ms).
constexpr int64_t kNowMaskSteps = 200'000;
// Steps of the first attempt in a pool thread; each further attempt has kMoreSteps times as many.
constexpr int64_t kFirstSteps = 400'000, kMoreSteps = 5;
// Above this total size, grammars without users are dropped.
constexpr int64_t kManyBytes = int64_t{96} << 20;

text::GrammarKind grammar_kind(GuideType type) {
  switch (type) {
    case GuideType::kJson:
      return text::GrammarKind::kJsonObject;
    case GuideType::kJsonSchema:
      return text::GrammarKind::kJsonSchema;
    case GuideType::kRegex:
      return text::GrammarKind::kRegex;
    case GuideType::kEbnfGrammar:
      return text::GrammarKind::kEbnf;
    case GuideType::kStructuralTag:
      return text::GrammarKind::kStructuralTag;
  }
  return text::GrammarKind::kJsonObject;
}

Status needs_more() { return unavailable("this needs more steps"); }

Status too_many_wait() {
  return unavailable(
      "guided_decoding: {0} other texts wait to be compiled, {0} are allowed; try again later",
      Grammars::kMostWaiting);
}

}  // namespace

Grammars::Grammars(std::shared_ptr<const text::Tokenizer> tokenizer, int32_t vocab_size)
    : tokenizer_(std::move(tokenizer)), vocab_size_(vocab_size) {}

Grammars::~Grammars() {
  bin_->close();
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

int64_t Grammars::num_compiled() const {
  const std::lock_guard lock(mutex_);
  return num_compiled_;
}

Grammars::Key Grammars::key_of(const GuidedDecoding& wanted) {
  const std::string text = fmt::format("{} {}", static_cast<int>(wanted.type), wanted.guide);
  Key key;
  static_assert(sizeof(key) == SHA256_DIGEST_LENGTH);
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), key.data());
  return key;
}

// Null: not built yet, and may_make is false.
std::shared_ptr<const text::TokenTrie> Grammars::tokens(bool may_make) {
  std::unique_lock lock(tokens_mutex_, std::defer_lock);
  if (may_make)
    lock.lock();
  else if (!lock.try_lock())
    return nullptr;
  NEREID_CHECK(tokenizer_);
  if (!tokens_ && may_make) tokens_ = text::TokenTrie::of(*tokenizer_, vocab_size_);
  return tokens_;
}

Grammars::Wishes Grammars::wishes_of(const Request& request) const {
  Wishes wishes{.reasoning = request.reasoning,
                .end_ids = request.end_ids,
                .position = static_cast<int32_t>(request.input_token_ids.size())};
  if (may_ban(request))
    wishes.left = first_tokens_left(request, vocab_size_);
  else
    wishes.left.assign(static_cast<size_t>(kernels::mask_words(vocab_size_)), ~uint32_t{0});
  return wishes;
}

// Unavailable: the effort is used up.
Status Grammars::finish(const Wishes& wishes, std::shared_ptr<text::Grammar> grammar,
                        text::StepBudget& effort, text::OutputConstraint& guide) {
  guide.tokens = tokens(effort.waits);
  if (!guide.tokens) return needs_more();
  guide.grammar = std::move(grammar);
  if (wishes.reasoning) {
    ASSIGN_OR_RETURN(guide.reasoning, reasoning_part(*wishes.reasoning, *tokenizer_, vocab_size_));
    if (guide.grammar && !effort.waits) return needs_more();  // it looks at all tokens
    ASSIGN_OR_RETURN(guide.broken_ids, text::invalid_closing_tokens(guide));
  }
  text::ConstrainedOutput output(
      std::shared_ptr<const text::OutputConstraint>(std::shared_ptr<void>(), &guide));
  if (!output.limits_next()) return ok();
  TokenBits mask(wishes.left.size());
  const Status status = output.fill_mask(mask, wishes.end_ids, effort);
  if (absl::IsUnavailable(status)) return status;
  if (!status.ok()) return annotate(status, "guided_decoding");
  return check_some_left(wishes.left, mask, wishes.position);
}

// Unavailable: neither compiled nor refused before.
Grammars::GrammarOr Grammars::known(const Key& key) {
  const std::lock_guard lock(mutex_);
  if (const auto found = refused_.find(key); found != refused_.end()) return found->second;
  const auto found = kept_.find(key);
  if (found == kept_.end()) return needs_more();
  found->second.used = ++num_uses_;
  return found->second.grammar;
}

// Unavailable: the grammars in use exceed kMostBytes.
Grammars::GrammarOr Grammars::compile(const GuidedDecoding& wanted, text::WorkLimit& work) {
  {
    const std::lock_guard lock(mutex_);
    ++num_compiled_;
  }
  forget_unused();
  if (const int64_t bytes = *account_; bytes > kMostBytes)
    return unavailable(
        "guided_decoding: the grammars in use hold {} bytes, {} are allowed; try again later",
        bytes, kMostBytes);
  auto network = text::Grammar::parse(grammar_kind(wanted.type), wanted.guide, work);
  if (!network.ok()) return network.status();
  if (work.is_used_up()) return work.spend(0);
  const auto all = tokens(/*may_make=*/true);
  return text::Grammar::of(*std::move(network), all, account_);
}

// A guide is freed on a pool thread: it takes milliseconds, and the engine may be its last user.
std::shared_ptr<text::OutputConstraint> Grammars::new_guide() {
  {
    const std::lock_guard lock(mutex_);
    if (threads_.empty()) {
      for (const int64_t most : {kFirstSteps, text::WorkLimit::kMost})
        threads_.emplace_back([this, most] { run(most); });
      threads_.emplace_back([bin = bin_] {
        let_engine_run_first();
        while (bin->take()) continue;
      });
    }
  }
  return {new text::OutputConstraint, [bin = bin_](text::OutputConstraint* guide) {
            bin->push(std::unique_ptr<text::OutputConstraint>(guide));
          }};
}

// Caches the result, success or refusal.
Grammars::GrammarOr Grammars::keep(const Key& key, GrammarOr made) {
  if (absl::IsUnavailable(made.status())) return made;
  if (!made.ok()) made = annotate(made.status(), "guided_decoding");
  Kept oldest;  // freed after the lock is released
  const std::lock_guard lock(mutex_);
  if (made.ok()) {
    if (kept_.size() >= kMostKept) {
      const auto found =
          std::ranges::min_element(kept_, {}, [](const auto& entry) { return entry.second.used; });
      oldest = std::move(found->second);
      kept_.erase(found);
    }
    kept_[key] = {*made, ++num_uses_};
  } else if (refused_.emplace(key, made.status()).second) {
    refused_order_.push_back(key);
    if (refused_order_.size() > kMostRefused) {
      refused_.erase(refused_order_.front());
      refused_order_.pop_front();
    }
  }
  return made;
}

void Grammars::forget_unused() {
  std::vector<Kept> unused;  // freed after the lock is released
  const std::lock_guard lock(mutex_);
  if (*account_ <= kManyBytes) return;
  for (auto at = kept_.begin(); at != kept_.end();) {
    if (at->second.grammar.use_count() > 1) {
      ++at;
      continue;
    }
    unused.push_back(std::move(at->second));
    at = kept_.erase(at);
  }
}

// Unavailable: it needs more time.
Grammars::GrammarOr Grammars::try_now(const Key& key, const GuidedDecoding& wanted) {
  if (wanted.guide.size() > kMostNowBytes) return needs_more();
  const auto all = tokens(/*may_make=*/false);
  text::WorkLimit work(kNowSteps);
  {
    const std::lock_guard lock(mutex_);
    ++num_compiled_;
  }
  auto network = text::Grammar::parse(grammar_kind(wanted.type), wanted.guide, work);
  if (work.is_used_up() || (network.ok() && !all) || *account_ > kMostBytes) return needs_more();
  if (!network.ok()) return keep(key, network.status());
  return keep(key, text::Grammar::of(*std::move(network), all, account_));
}

StatusOr<Grammars::Order> Grammars::order(const Request& request) {
  const bool has_limit = request.reasoning && request.reasoning->max_tokens;
  if (!request.guided_decoding && !has_limit) {
    if (may_ban(request))
      RETURN_IF_ERROR(check_some_left(first_tokens_left(request, vocab_size_), {},
                                      static_cast<int32_t>(request.input_token_ids.size())));
    return Order{};
  }
  Order order{.guide = new_guide()};
  Wishes wishes = wishes_of(request);
  Job job{.compiles = false};
  if (request.guided_decoding) {
    job.wanted = *request.guided_decoding;
    job.key = key_of(job.wanted);
    GrammarOr found = known(job.key);
    if (absl::IsUnavailable(found.status())) found = try_now(job.key, job.wanted);
    job.compiles = absl::IsUnavailable(found.status());
    if (!found.ok() && !job.compiles) return found.status();
    if (found.ok()) job.grammar = *found;
  }
  if (!job.compiles) {
    text::StepBudget effort{.steps = kNowMaskSteps, .waits = false};
    const Status status = finish(wishes, job.grammar, effort, *order.guide);
    if (status.ok()) return order;
    if (!absl::IsUnavailable(status)) return status;
    *order.guide = {};
  }
  auto waiter = std::make_shared<Waiter>(
      Waiter{.guide = order.guide, .wishes = std::move(wishes), .tenant = request.tenant});
  RETURN_IF_ERROR(queue(std::move(job), waiter));
  order.waiter = std::move(waiter);
  return order;
}

bool Grammars::is_wanted(const Job& job) {
  return std::ranges::any_of(job.waiters,
                             [](const auto& waiter) { return !waiter->guide.expired(); });
}

void Grammars::drop_unwanted() {
  queue_.remove_if([&](const std::shared_ptr<Job>& job) {
    if (is_wanted(*job)) return false;
    if (job->compiles) compiling_.erase(job->key);
    return true;
  });
}

void Grammars::enter(const std::shared_ptr<Job>& job) {
  for (const std::shared_ptr<Waiter>& waiter : job->waiters)
    if (!waiter->guide.expired()) queue_.add(waiter->tenant, job->steps, job);
  wake_.notify_all();
}

// Makes room for a text of the tenant, with the caller's lock. Returns the waiters displaced.
StatusOr<std::vector<std::shared_ptr<Grammars::Waiter>>> Grammars::make_room(uint64_t tenant) {
  std::vector<std::shared_ptr<Waiter>> gone;
  if (queue_.size() >= kMostWaiting) drop_unwanted();
  if (queue_.size() < kMostWaiting) return gone;
  const auto displaced = queue_.displace(tenant);
  if (!displaced) return too_many_wait();
  const auto& [other, job] = *displaced;
  for (const std::shared_ptr<Waiter>& waiter : job->waiters)
    if (waiter->tenant == other) gone.push_back(waiter);
  std::erase_if(job->waiters, [&](const auto& waiter) { return waiter->tenant == other; });
  if (job->waiters.empty() && job->compiles) compiling_.erase(job->key);
  return gone;
}

Status Grammars::queue(Job job, const std::shared_ptr<Waiter>& waiter) {
  job.steps = kFirstSteps;
  job.waiters.push_back(waiter);
  std::vector<std::shared_ptr<Waiter>> gone;
  {
    const std::lock_guard lock(mutex_);
    if (const auto same = compiling_.find(job.key); job.compiles && same != compiling_.end()) {
      same->second->waiters.push_back(waiter);
      if (queue_.has(same->second)) enter(same->second);
      return ok();
    }
    ASSIGN_OR_RETURN(gone, make_room(waiter->tenant));
    auto shared = std::make_shared<Job>(std::move(job));
    if (shared->compiles) compiling_[shared->key] = shared;
    enter(shared);
  }
  for (const auto& other : gone) deliver(*other, too_many_wait());
  return ok();
}

void Grammars::start(const Order& order, Done done) {
  NEREID_CHECK(order.waiter);
  std::optional<Status> result;
  {
    const std::lock_guard lock(mutex_);
    result = order.waiter->result;
    if (!result) order.waiter->done = std::move(done);
  }
  if (result) done(*result);
}

// One thread runs jobs of few steps only, so that they never wait for long ones.
void Grammars::run(int64_t most_steps) {
  let_engine_run_first();
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return closing_ || queue_.has_up_to(most_steps); });
    if (closing_) return;
    const std::shared_ptr<Job> job = *queue_.take(most_steps);
    lock.unlock();
    try {
      work(job);
    } catch (const std::bad_alloc&) {
      deliver(*job, resource_exhausted("guided_decoding: there is no memory for this grammar"));
    }
    lock.lock();
  }
}

void Grammars::work(const std::shared_ptr<Job>& job) {
  if (!job->compiles) return deliver(*job, job->grammar);
  text::WorkLimit limit(job->steps, [&] {
    const std::lock_guard lock(mutex_);
    return !closing_ && is_wanted(*job);
  });
  GrammarOr made = limit.ask() ? compile(job->wanted, limit) : GrammarOr(needs_more());
  if (limit.is_used_up() && (job->steps < text::WorkLimit::kMost || limit.is_unwanted())) {
    const std::lock_guard lock(mutex_);
    if (!is_wanted(*job)) {  // a new waiter may have come
      compiling_.erase(job->key);
      return;
    }
    if (!limit.is_unwanted())
      job->steps = std::min(job->steps * kMoreSteps, text::WorkLimit::kMost);
    return enter(job);
  }
  deliver(*job, keep(job->key, std::move(made)));
}

void Grammars::deliver(Job& job, const GrammarOr& made) {
  std::vector<std::shared_ptr<Waiter>> waiters;
  {
    const std::lock_guard lock(mutex_);
    waiters = std::move(job.waiters);
    if (job.compiles) compiling_.erase(job.key);
  }
  for (const std::shared_ptr<Waiter>& waiter : waiters) {
    const std::shared_ptr<text::OutputConstraint> guide = waiter->guide.lock();
    if (!guide) continue;
    text::StepBudget effort;
    const Status status = made.ok() ? finish(waiter->wishes, *made, effort, *guide) : made.status();
    deliver(*waiter, status);
  }
}

void Grammars::deliver(Waiter& waiter, const Status& status) {
  Done done;
  {
    const std::lock_guard lock(mutex_);
    waiter.result = status;
    done = std::move(waiter.done);
  }
  if (done) done(status);
}

}  // namespace nereid::runtime
