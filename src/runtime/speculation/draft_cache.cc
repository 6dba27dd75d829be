#include "runtime/speculation/draft_cache.h"

#include <algorithm>

#include "base/check.h"

namespace nereid::runtime {
namespace {

sched::PoolConfig pool_of(const exec::Runner& runner, bool copies_blocks) {
  sched::PoolConfig config{.tokens_per_block = runner.limits().block_tokens,
                           .enable_partial_reuse = copies_blocks};
  for (const exec::CacheGroup& group : runner.groups())
    config.groups.push_back({.num_blocks = runner.limits().num_blocks[config.groups.size()],
                             .window = group.window,
                             .sink = group.sink});
  return config;
}

}  // namespace

DraftCache::DraftCache(const exec::Runner& runner, bool copies_blocks)
    : pool_(pool_of(runner, copies_blocks)) {}

DraftCache::Entry& DraftCache::find(RequestId id, const Text& text) {
  std::unique_ptr<Entry>& entry = entries_[id];
  if (!entry) entry = std::make_unique<Entry>();
  entry->asked_at = num_calls_;
  if (!entry->table.empty()) return *entry;
  entry->root = text.root;
  entry->num_prompt = text.num_prompt;
  const auto tokens = text.tokens.first(text.tokens.size() - 1);
  add_keys(*entry, tokens);
  const sched::Contents wanted{
      .root = entry->root, .keys = entry->keys, .tokens = tokens, .num_prompt = entry->num_prompt};
  sched::PrefixHit hit = pool_.match(wanted);
  std::vector<sched::Reservation> reservations(pool_.num_groups(), {.num_tokens = hit.num_tokens});
  if (!pool_.admit(entry->table, hit, wanted,
                   reservations)) {  // no free block for the partial copy
    hit = {};
    reservations.assign(pool_.num_groups(), {});
    NEREID_CHECK(pool_.admit(entry->table, hit, wanted, reservations));
  }
  entry->num_known = static_cast<size_t>(hit.num_tokens);
  entry->tokens.assign(text.tokens.begin(), text.tokens.begin() + hit.num_tokens);
  return *entry;
}

void DraftCache::trim(Entry& entry, size_t num_tokens) {
  entry.tokens.resize(num_tokens);
  entry.num_known = num_tokens;
  pool_.trim(entry.table, static_cast<int32_t>(num_tokens));
}

bool DraftCache::reserve(sched::BlockTable& table, int32_t first_written, int32_t num_tokens) {
  while (!pool_.reserve(table, first_written, num_tokens))
    if (!give_up_oldest()) return false;
  return true;
}

// Entries asked about in the same call are evicted in order of id.
bool DraftCache::give_up_oldest() {
  const auto age = [](const auto& entry) { return entry.second->asked_at; };
  const auto oldest = std::ranges::min_element(entries_, {}, age);
  if (oldest == entries_.end() || oldest->second->asked_at == num_calls_) return false;
  release(*oldest->second);
  entries_.erase(oldest);
  return true;
}

// Extends the entry's keys to all full blocks of `tokens`, whose beginning has keys already.
void DraftCache::add_keys(Entry& entry, std::span<const TokenId> tokens) const {
  const auto size = static_cast<size_t>(pool_.tokens_per_block());
  while ((entry.keys.size() + 1) * size <= tokens.size()) {
    const sched::BlockKey parent =
        entry.keys.empty() ? sched::root_key(entry.root) : entry.keys.back();
    entry.keys.push_back(
        sched::block_key(parent, {tokens.subspan(entry.keys.size() * size, size)}));
  }
}

// The computed tokens that stay.
sched::Contents DraftCache::known(Entry& entry) const {
  const auto tokens = std::span(entry.tokens).first(entry.num_known);
  add_keys(entry, tokens);
  return {.root = entry.root,
          .keys = std::span(entry.keys).first(tokens.size() / pool_.tokens_per_block()),
          .tokens = tokens,
          .num_prompt = entry.num_prompt};
}

void DraftCache::publish(Entry& entry) {
  const auto num_known = static_cast<int32_t>(entry.num_known);
  if (num_known / pool_.tokens_per_block() > entry.table.num_published &&
      !entry.table.groups[0].has_holes && entry.num_missing == 0)
    pool_.publish(entry.table, known(entry), num_known);
  pool_.drop_unseen(entry.table, num_known - 1);
}

// Also publishes the last, partly filled block: similar prompts often differ inside a block.
void DraftCache::release(Entry& entry) {
  if (entry.table.empty()) return;
  if (entry.num_missing == 0)
    pool_.publish_tail(entry.table, known(entry), static_cast<int32_t>(entry.num_known));
  pool_.release(entry.table, sched::Release::kKeep);
}

void DraftCache::add_row(const sched::BlockTable& table, exec::StepRow row,
                         std::span<const TokenId> tokens, exec::StepMessage& step) const {
  exec::PerGroup<std::span<const int32_t>> tables;
  for (size_t g = 0; g < table.groups.size(); ++g) tables[g] = table.groups[g].blocks;
  step.add(row, tokens, tables, table.groups.size(), pool_.tokens_per_block());
}

void DraftCache::add_copies(exec::StepMessage& step) {
  for (const sched::PlanCopy& copy : pool_.take_copies())
    step.copies.push_back({copy.from, copy.to, copy.group});
}

void DraftCache::forget(RequestId id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  release(*found->second);
  entries_.erase(found);
}

void DraftCache::forget_all() {
  for (auto& [id, entry] : entries_)
    if (!entry->table.empty()) pool_.release(entry->table, sched::Release::kForget);
  entries_.clear();
}

}  // namespace nereid::runtime
