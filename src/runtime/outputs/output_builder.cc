// OutputBuilder: stop strings, alignment of the lists, streaming.
#include "runtime/outputs/output_builder.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace nereid::runtime {

OutputBuilder::OutputBuilder(const Subscription& subscription,
                             const std::shared_ptr<const text::Tokenizer>& tokenizer)
    : subscription_(subscription),
      detokenizer_(tokenizer, /*skip_special_tokens=*/true, /*continues=*/true),
      stops_(subscription.stop_strings) {}

void OutputBuilder::add(EngineUpdate& update, Time time) {
  sched::SequenceUpdate& row = update.row;
  const int32_t before = num_output_;
  const size_t longest = longest_;
  for (size_t i = 0; i < row.tokens.size() && !stopped_by_text_; ++i) add_token(update, i);
  if (!row.beams.empty()) add_beams(row.beams, row.finished);
  if (stopped_by_text_) {
    reason_ = FinishReason::kStopWords;
  } else if (row.finished) {
    reason_ = row.reason;
  }
  if (row.finished || row.metrics.arrival != Time()) {
    const Time first = metrics_.first_token, last = metrics_.last_token;
    metrics_ = row.metrics;
    metrics_.first_token = first;
    metrics_.last_token = last;
  }
  if (num_output_ == before && longest_ == longest) return;
  grown_ = true;
  if (metrics_.first_token == Time()) metrics_.first_token = time;
  metrics_.last_token = time;
}

void OutputBuilder::add_token(EngineUpdate& update, size_t index) {
  sched::SequenceUpdate& row = update.row;
  const TokenId token = row.tokens[index];
  ++num_output_;
  kept_.token_ids.push_back(token);
  if (index < row.full_log_probs.size()) cum_log_prob_ += row.full_log_probs[index];
  if (subscription_.log_probs && index < row.log_probs.size())
    kept_.log_probs.push_back(row.log_probs[index]);
  if (index < row.top_log_probs.size())
    kept_.top_log_probs.push_back(std::move(row.top_log_probs[index]));
  if (!update.generation_logits.empty()) {
    const size_t vocab = update.generation_logits.size() / row.tokens.size();
    const auto from = update.generation_logits.begin() + static_cast<ptrdiff_t>(index * vocab);
    kept_.generation_logits.insert(kept_.generation_logits.end(), from,
                                   from + static_cast<ptrdiff_t>(vocab));
  }
  stopped_by_text_ = completes_stop_string(token);
}

bool OutputBuilder::completes_stop_string(TokenId token) {
  if (subscription_.stop_strings.empty()) return false;
  const std::string piece = detokenizer_.push(token);
  if (num_output_ <= subscription_.min_tokens) return false;
  return stops_.push(piece, /*final=*/false).stopped;
}

// A preempted beam search restarts and repeats itself: updates not longer than before are skipped.
void OutputBuilder::add_beams(std::vector<sched::BeamUpdate>& beams, bool finished) {
  size_t longest = 0;
  for (const sched::BeamUpdate& beam : beams) longest = std::max(longest, beam.tokens.size());
  if (longest <= longest_ && !finished) return;
  longest_ = std::max(longest, longest_);
  beams_ = std::move(beams);
}

std::vector<SequenceOutput> OutputBuilder::take() {
  grown_ = false;
  if (subscription_.beam_width > 1) return take_beams();
  const bool more = subscription_.streaming && !over();
  if (cut_off()) kept_ = {};
  SequenceOutput out;
  if (more && subscription_.whole) {
    out = kept_;
  } else {
    out = std::exchange(kept_, {});
  }
  if (!echoed_ || subscription_.whole)
    out.token_ids.insert(out.token_ids.begin(), subscription_.echo.begin(),
                         subscription_.echo.end());
  echoed_ = true;
  out.finish_reason = reason_;
  out.num_output_tokens = num_output_;
  if (subscription_.log_probs && !cut_off()) out.cum_log_prob = static_cast<float>(cum_log_prob_);
  return {std::move(out)};
}

std::vector<SequenceOutput> OutputBuilder::take_beams() {
  if (cut_off()) beams_.clear();
  beams_.resize(static_cast<size_t>(subscription_.num_returned), {.reason = reason_});
  std::vector<SequenceOutput> outputs;
  outputs.reserve(beams_.size());
  for (const sched::BeamUpdate& beam : beams_) {
    SequenceOutput& out = outputs.emplace_back();
    out.token_ids = subscription_.echo;
    out.token_ids.insert(out.token_ids.end(), beam.tokens.begin(), beam.tokens.end());
    out.finish_reason = beam.reason;
    out.num_output_tokens = static_cast<int32_t>(beam.tokens.size());
    if (!subscription_.log_probs || cut_off()) continue;
    out.log_probs = beam.log_probs;
    out.cum_log_prob = beam.cum_log_prob;
  }
  return outputs;
}

float OutputBuilder::score() const {
  return cut_off() ? -std::numeric_limits<float>::infinity() : static_cast<float>(cum_log_prob_);
}

}  // namespace nereid::runtime
