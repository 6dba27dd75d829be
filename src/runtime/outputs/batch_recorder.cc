#include "runtime/outputs/batch_recorder.h"

#include <algorithm>
#include <chrono>

namespace nereid::runtime {
namespace {

constexpr auto kWatched = std::chrono::seconds(10);
constexpr auto kKept = std::chrono::seconds(60);

}  // namespace

BatchTimeline BatchRecorder::take(Time now) {
  watched_until_ = (now + kWatched).time_since_epoch().count();
  std::lock_guard lock(mutex_);
  forget_before(now - kKept);
  BatchTimeline out{.seconds = seconds(kKept), .num_left_out = num_left_out_};
  for (const Entry& entry : entries_) {
    BatchSequence& to = out.sequences.emplace_back();
    to.id = entry.id;
    to.prompt_tokens = entry.prompt_tokens;
    to.generated_tokens = entry.generated_tokens;
    to.ended = entry.ended;
    for (const Span& span : entry.spans)
      to.spans.push_back({.kind = span.kind,
                          .begin = std::max(seconds(now - span.begin), 0.0),
                          .end = std::max(seconds(now - span.end), 0.0),
                          .tokens = span.tokens});
  }
  return out;
}

BatchRecorder::Entry* BatchRecorder::find(RequestId id) {
  const auto found = std::ranges::lower_bound(entries_, id, {}, &Entry::id);
  return found == entries_.end() || found->id != id ? nullptr : &*found;
}

void BatchRecorder::seen(RequestId id, Time since, int32_t prompt_tokens, bool waits,
                         bool was_started, Time now) {
  std::lock_guard lock(mutex_);
  Entry* entry = find(id);
  if (!entry) {
    if (entries_.size() >= kMaxBatchSequences) {
      const auto over = std::ranges::find_if(entries_, &Entry::ended);
      if (over == entries_.end()) {
        num_left_out_ += id > last_left_out_;
        last_left_out_ = std::max(last_left_out_, id);
        return;
      }
      entries_.erase(over);
    }
    const auto place = std::ranges::lower_bound(entries_, id, {}, &Entry::id);
    entry = &*entries_.insert(place, Entry{.id = id, .prompt_tokens = prompt_tokens});
  }
  if (!waits) return;
  const auto kind = was_started ? BatchSpan::Kind::kPaused : BatchSpan::Kind::kQueued;
  const Time begin = entry->spans.empty() ? std::min(since, now) : entry->spans.back().end;
  add(*entry, {kind, begin, now});
}

void BatchRecorder::ran(std::span<const Row> rows, Time begin, Time end) {
  std::lock_guard lock(mutex_);
  for (const Row& row : rows) {
    Entry* const entry = find(row.id);
    if (!entry) continue;
    const auto kind = row.is_prefill ? BatchSpan::Kind::kPrefill : BatchSpan::Kind::kDecode;
    // Overlapped steps: each ends after the one before it.
    const Time from = entry->spans.empty() ? begin : std::max(begin, entry->spans.back().end);
    add(*entry, {kind, std::min(from, end), end, row.tokens});
  }
}

// Spans of one kind are joined, but for the chunks of a prompt.
void BatchRecorder::add(Entry& entry, const Span& span) {
  const bool joins = !entry.spans.empty() && entry.spans.back().kind == span.kind &&
                     span.kind != BatchSpan::Kind::kPrefill;
  if (joins) {
    entry.spans.back().end = span.end;
    entry.spans.back().tokens += span.tokens;
    return;
  }
  if (entry.spans.size() == kMaxBatchSpans) {
    Span& second = entry.spans[1];
    second.begin = entry.spans[0].begin;
    second.tokens += entry.spans[0].tokens;
    entry.spans.pop_front();
  }
  entry.spans.push_back(span);
}

void BatchRecorder::generated(RequestId id, int32_t tokens) {
  std::lock_guard lock(mutex_);
  if (Entry* const entry = find(id)) entry->generated_tokens += tokens;
}

void BatchRecorder::ended(RequestId id) {
  std::lock_guard lock(mutex_);
  if (Entry* const entry = find(id)) entry->ended = true;
}

void BatchRecorder::stop() {
  std::lock_guard lock(mutex_);
  entries_.clear();
  num_left_out_ = 0;
  last_left_out_ = 0;
}

void BatchRecorder::forget_before(Time time) {
  for (Entry& entry : entries_)
    while (!entry.spans.empty() && entry.spans.front().end < time) entry.spans.pop_front();
  std::erase_if(entries_, [](const Entry& entry) { return entry.ended && entry.spans.empty(); });
}

}  // namespace nereid::runtime
