#include "text/grammar/char_runs.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace nereid::text {
namespace {

constexpr int32_t kMostChars = 24;    // of a run with an end
constexpr int64_t kWorkOfOne = 1000;  // about the steps of targets_of()

}  // namespace

CharRuns::Run CharRuns::of(int32_t set, bool may_make) {
  const auto index = static_cast<size_t>(set);
  if (index < runs_.size() && runs_[index].is_made) return runs_[index].run;
  if (!may_make) return {};
  const Run run = make(set);
  if (sets_.failed()) return {};
  if (index >= runs_.size()) runs_.resize(std::max(index + 1, 2 * runs_.size()));
  runs_[index] = {.is_made = true, .run = run};
  return run;
}

// The largest class set with one common target, and for how many characters it stays so.
CharRuns::Run CharRuns::make(int32_t set) {
  Targets targets = targets_of(set);
  Run run;
  for (const int32_t candidate : targets) {
    if (candidate == kNone) continue;
    CharKinds kinds = 0;
    for (size_t k = 0; k < targets.size(); ++k)
      if (targets[k] == candidate) kinds = static_cast<CharKinds>(kinds | 1u << k);
    if (std::popcount(kinds) > std::popcount(run.kinds)) run.kinds = kinds;
  }
  if (run.kinds == 0) return run;
  const auto first = static_cast<size_t>(std::countr_zero(run.kinds));
  while (run.length < kMostChars) {
    const int32_t target = targets[first];
    bool is_alike = target != kNone;
    for (size_t k = 0; k < targets.size(); ++k)
      is_alike = is_alike && ((run.kinds >> k & 1) == 0 || targets[k] == target);
    if (!is_alike) {
      run.is_longest = is_end(set, run.kinds);
      break;
    }
    ++run.length;
    if (target == set) {
      run.length = std::numeric_limits<int32_t>::max();
      break;
    }
    set = target;
    targets = targets_of(set);
  }
  return run;
}

// Whether no character of these classes can follow.
bool CharRuns::is_end(int32_t set, CharKinds kinds) {
  for (int byte = 0; byte < 0x100; ++byte) {
    const auto b = static_cast<uint8_t>(byte);
    const CharKinds kind = byte < 0x80 ? kind_of_ascii(b) : kWide;
    if ((kind & kinds) != 0 && sets_.step(set, b) != StateSets::kDead) return false;
  }
  return true;
}

CharRuns::Targets CharRuns::targets_of(int32_t set) {
  constexpr int32_t kUnseen = -2;
  Targets targets;
  targets.fill(kUnseen);
  if (!sets_.spend(kWorkOfOne)) targets.fill(kNone);
  for (int byte = 0; byte < 0x80 && !sets_.failed(); ++byte) {
    const auto b = static_cast<uint8_t>(byte);
    int32_t& target = targets[static_cast<size_t>(std::countr_zero(kind_of_ascii(b)))];
    if (target == kNone) continue;
    const int32_t next = sets_.step(set, b);
    const bool goes_on = next != StateSets::kDead && !sets_.leaves(next);
    target = goes_on && (target == kUnseen || target == next) ? next : kNone;
  }
  targets[static_cast<size_t>(std::countr_zero(kWide))] = behind_wide(set);
  return targets;
}

// Visits each position inside a character, in each state set that reaches it, once.
int32_t CharRuns::behind_wide(int32_t set) {
  int32_t target = kNone;
  std::vector<std::pair<int32_t, Utf8Place>> open = {{set, Utf8Place::kBetween}}, seen = open;
  while (!open.empty()) {
    const auto [from, place] = open.back();
    open.pop_back();
    for (int byte = 0x80; byte < 0x100; ++byte) {
      const auto b = static_cast<uint8_t>(byte);
      const Utf8Place next_at = next_place(place, b);
      if (next_at == Utf8Place::kBroken) continue;
      const int32_t next = sets_.step(from, b);
      if (next == StateSets::kDead || sets_.leaves(next) || sets_.failed()) return kNone;
      if (next_at == Utf8Place::kBetween) {
        if (target != kNone && target != next) return kNone;
        target = next;
        continue;
      }
      const std::pair<int32_t, Utf8Place> reached = {next, next_at};
      if (std::ranges::find(seen, reached) != seen.end()) continue;
      seen.push_back(reached);
      open.push_back(reached);
    }
  }
  return target;
}

}  // namespace nereid::text
