// Sends, cancels, and checks what comes back.
#include "traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status.h"

namespace nereid::soak {
namespace {

constexpr size_t kMaxComplaints = 20;

bool ends_early(FinishReason reason) {
  return reason == FinishReason::kCancelled || reason == FinishReason::kTimedOut;
}

std::string describe(const Request& r) {
  const SamplingConfig& s = r.sampling;
  return fmt::format(
      "{} prompt tokens, {} new, {}{}beam_width {}, returns {}, best_of {}, top_k {}, top_p {}, "
      "temperature {}, seed {}",
      r.input_token_ids.size(), r.max_tokens, r.streaming ? "streaming, " : "",
      r.return_all_generated_tokens ? "whole, " : "", s.beam_width,
      s.num_return_sequences.value_or(0), s.best_of.value_or(0), s.top_k.value_or(0),
      s.top_p.value_or(0), s.temperature.value_or(1), s.seed.value_or(0));
}

}  // namespace

Traffic::Traffic(Executor& executor, RequestMaker& maker, int num_references)
    : executor_(executor), maker_(maker) {
  for (int i = 0; i < num_references; ++i) {
    references_.push_back({.request = maker_.make_repeatable()});
    send({references_.back().request, std::nullopt}, references_.size() - 1);
    drain(std::chrono::seconds(60));
  }
}

void Traffic::send(Order order, std::optional<size_t> reference) {
  auto pending = std::make_shared<Pending>();
  pending->request = order.request;
  pending->replaces =
      order.request.return_all_generated_tokens || order.request.sampling.beam_width > 1;
  pending->reference = reference;
  {
    std::lock_guard lock(mutex_);
    ++counts_.sent;
  }
  const auto id = executor_.enqueue(std::move(order.request), [this, pending](Response response) {
    take(*pending, std::move(response));
  });
  if (!id.ok()) {
    std::lock_guard lock(mutex_);
    ++counts_.done;
    complain(*pending, fmt::format("refused: {}", message(id.status())));
  } else if (order.cancel_after) {
    cancellations_.push({now() + *order.cancel_after, *id});
  }
}

bool Traffic::warm_up(int count) {
  for (std::vector<Request>& burst : maker_.peaks(count)) {
    for (Request& request : burst) send({std::move(request), std::nullopt}, std::nullopt);
    if (!drain(std::chrono::seconds(120))) return false;
  }
  return true;
}

void Traffic::run(Time end, int num_clients) {
  while (now() < end) {
    cancel_those_due();
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::milliseconds(5),
                        [&] { return counts_.sent - counts_.done < num_clients; });
      if (counts_.sent - counts_.done >= num_clients) continue;
    }
    Order order = maker_.make();
    const auto pick = order.request.input_token_ids.size() * 31 + counts_.sent;
    if (!references_.empty() && pick % 5 == 0) {
      const size_t i = pick / 5 % references_.size();
      send({references_[i].request, std::nullopt}, i);
    } else {
      send(std::move(order), std::nullopt);
    }
  }
}

void Traffic::cancel_those_due() {
  while (!cancellations_.empty() && cancellations_.top().time <= now()) {
    executor_.cancel(cancellations_.top().id);
    cancellations_.pop();
  }
}

bool Traffic::drain(std::chrono::seconds timeout) {
  const Time end = now() + timeout;
  while (now() < end) {
    cancel_those_due();
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, std::chrono::milliseconds(5),
                          [&] { return counts_.sent == counts_.done; }))
      return true;
  }
  return false;
}

void Traffic::take(Pending& pending, Response response) {
  {
    std::lock_guard lock(mutex_);
    if (pending.done) complain(pending, "a response after the final one");
    if (!response.status.ok()) {
      complain(pending, fmt::format("failed: {}", message(response.status)));
    } else {
      check_shape(pending, response);
      const auto index = static_cast<size_t>(response.sequence_index);
      if (pending.tokens.size() <= index) {
        pending.tokens.resize(index + 1);
        pending.reasons.resize(index + 1);
      }
      auto& beams = pending.tokens[index];
      if (pending.replaces) beams.clear();
      beams.resize(response.outputs.size());
      for (size_t b = 0; b < beams.size(); ++b) {
        const auto& ids = response.outputs[b].token_ids;
        beams[b].insert(beams[b].end(), ids.begin(), ids.end());
        pending.ended_early |= ends_early(response.outputs[b].finish_reason);
        if (b == 0) pending.reasons[index] = response.outputs[b].finish_reason;
      }
    }
    if (response.is_final) finish(pending);
  }
  changed_.notify_all();
}

void Traffic::check_shape(const Pending& pending, const Response& response) {
  const Request& r = pending.request;
  const SamplingConfig& s = r.sampling;
  const int32_t returned = s.num_return_sequences.value_or(s.beam_width);
  const bool has_beams = s.beam_width > 1;
  if (response.sequence_index < 0 || response.sequence_index >= (has_beams ? 1 : returned))
    complain(pending, fmt::format("sequence_index {}", response.sequence_index));
  for (const SequenceOutput& out : response.outputs) {
    if (ends_early(out.finish_reason)) continue;
    if (out.num_output_tokens > r.max_tokens)
      complain(pending, fmt::format("{} of {} tokens", out.num_output_tokens, r.max_tokens));
    if (std::ranges::any_of(out.token_ids, [](TokenId t) { return t < 0; }))
      complain(pending, "a token below 0");
    if (r.output.return_log_probs && r.output.exclude_input_from_output &&
        out.log_probs.size() != out.token_ids.size())
      complain(pending, fmt::format("{} log-probs of {} tokens", out.log_probs.size(),
                                    out.token_ids.size()));
    for (const float p : out.log_probs)
      if (!(p <= 1e-5f) || !std::isfinite(p)) complain(pending, fmt::format("log-prob {}", p));
  }
  if (has_beams && response.is_final && !pending.ended_early &&
      response.outputs.size() > static_cast<size_t>(returned))
    complain(pending, fmt::format("{} beams, {} asked for", response.outputs.size(), returned));
}

void Traffic::finish(Pending& pending) {
  pending.done = true;
  ++counts_.done;
  for (const auto& beams : pending.tokens)
    for (const auto& ids : beams) counts_.tokens += static_cast<int64_t>(ids.size());
  if (pending.ended_early) {
    const bool timed_out = std::ranges::count(pending.reasons, FinishReason::kTimedOut) > 0;
    ++(timed_out ? counts_.timed_out : counts_.cancelled);
  }
  if (!pending.reference) return;
  Reference& reference = references_[*pending.reference];
  if (reference.reasons.empty()) {
    reference.tokens = std::move(pending.tokens);
    reference.reasons = std::move(pending.reasons);
  } else {
    ++counts_.compared;
    if (reference.tokens != pending.tokens || reference.reasons != pending.reasons)
      complain(pending, "not the result that the same request had alone");
  }
}

void Traffic::complain(const Pending& pending, std::string what) {
  if (complaints_.size() < kMaxComplaints)
    complaints_.push_back(fmt::format("{} ({})", what, describe(pending.request)));
}

Counts Traffic::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

std::vector<std::string> Traffic::complaints() const {
  std::lock_guard lock(mutex_);
  return complaints_;
}

}  // namespace nereid::soak
