// Outbox: one Client per request, with an OutputBuilder per sequence.
#include "runtime/outputs/outbox.h"

#include <algorithm>
#include <exception>
#include <new>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "runtime/outputs/output_builder.h"
#include "runtime/prompts/prompt_scorer.h"

namespace nereid::runtime {

struct Outbox::Client {
  Client(Subscription s, const std::shared_ptr<const text::Tokenizer>& tokenizer)
      : subscription(std::move(s)) {
    sequences.reserve(static_cast<size_t>(subscription.num_sequences));
    for (int32_t i = 0; i < subscription.num_sequences; ++i)
      sequences.emplace_back(subscription, tokenizer);
  }

  // Responding sequences; beams respond together.
  int32_t num_responding() const {
    return std::min(subscription.num_sequences, subscription.num_returned);
  }
  // best_of: responses wait until all sequences have ended.
  bool selects() const { return subscription.num_sequences > subscription.num_returned; }

  void respond(int32_t index, int32_t as_index);
  void respond_with_best();
  void fail(const Status& status);
  void give_up(const Status& status);
  void call(Response response);

  Subscription subscription;
  std::vector<OutputBuilder> sequences;
  std::shared_ptr<const std::vector<float>> context_logits;  // until sent
  std::shared_ptr<const PromptLogProbs> prompt_log_probs;    // until sent
  std::shared_ptr<const AttentionScores> attention_scores;   // until sent
  std::shared_ptr<const EncoderOutput> encoder_output;       // until sent
  std::vector<float> embedding;                              // until sent
  bool waits_for_scores = false;
  std::vector<std::pair<EngineUpdate, Time>> parked;  // held for prompt scores, oldest first
  int32_t num_over = 0;                               // ended sequences
  int32_t num_finals = 0;                             // responses with is_sequence_final
  bool ended = false;  // the final response was sent; updates may still arrive
};

Outbox::Outbox(std::shared_ptr<const text::Tokenizer> tokenizer, Inbox& inbox, Progress& progress)
    : tokenizer_(std::move(tokenizer)),
      inbox_(inbox),
      progress_(progress),
      thread_([this] { run(); }) {}

Outbox::~Outbox() {
  items_.close();
  thread_.join();
}

void Outbox::open(Subscription subscription) {
  NEREID_CHECK(tokenizer_ || subscription.stop_strings.empty());
  items_.push(std::move(subscription));
}

void Outbox::post(UpdateBatch batch) { items_.push(std::move(batch)); }

void Outbox::scored(RequestId id) { items_.push(Scored{id}); }

void Outbox::end_all(const Status& status) { items_.push(EndAll{status}); }

void Outbox::run() {
  std::vector<Item> items;
  while (items_.take_all(items, /*may_sleep=*/true)) {
    for (Item& item : items) {
      if (auto* subscription = std::get_if<Subscription>(&item)) {
        begin(std::move(*subscription));
        continue;
      }
      if (const auto* scored = std::get_if<Scored>(&item)) {
        deliver_parked(scored->id);
        continue;
      }
      if (const auto* all = std::get_if<EndAll>(&item)) {
        ended_ = all->status;
        for (const auto& [id, client] : std::exchange(clients_, {})) end(*client, ended_);
        continue;
      }
      auto& batch = std::get<UpdateBatch>(item);
      for (EngineUpdate& update : batch.updates) deliver(update, batch.time);
      keep_list(std::move(batch.updates));
    }
    items.clear();
  }
}

std::vector<EngineUpdate> Outbox::take_list() {
  std::lock_guard lock(lists_mutex_);
  if (lists_.empty()) return {};
  std::vector<EngineUpdate> list = std::move(lists_.back());
  lists_.pop_back();
  return list;
}

void Outbox::keep_list(std::vector<EngineUpdate> list) {
  list.clear();
  std::lock_guard lock(lists_mutex_);
  if (lists_.size() < kMostLists) lists_.push_back(std::move(list));
}

void Outbox::begin(Subscription subscription) {
  const RequestId first = subscription.id;
  const auto count = static_cast<RequestId>(subscription.num_sequences);
  const auto client = std::make_shared<Client>(std::move(subscription), tokenizer_);
  if (!ended_.ok()) return end(*client, ended_);
  for (RequestId id = first; id < first + count; ++id) clients_.emplace(id, client);
}

void Outbox::deliver(EngineUpdate& update, Time time) {
  const auto found = clients_.find(update.row.id);
  if (found == clients_.end() && !ended_.ok()) return;
  NEREID_CHECK(found != clients_.end());
  // A callback may open requests, but these are queued: neither `client` nor the map changes.
  const std::shared_ptr<Client> holder = found->second;
  Client& client = *holder;
  client.waits_for_scores |= update.prompt_scores && !update.prompt_scores->done;
  if (client.waits_for_scores) {
    client.parked.emplace_back(std::move(update), time);
    return;
  }
  if (update.row.finished) clients_.erase(found);
  const auto index = static_cast<size_t>(update.row.id - client.subscription.id);
  if (client.ended || client.sequences[index].over()) return;
  Status status;
  try {
    take_in(client, update, time);
  } catch (const std::bad_alloc&) {
    status = resource_exhausted("there is no memory for a response");
    if (client.subscription.logits_bytes > 0)
      status = annotate(status, fmt::format("logits of up to {} bytes were asked for",
                                            client.subscription.logits_bytes));
  } catch (const std::exception& e) {
    status = internal_error("a response was not taken: {}", e.what());
  } catch (...) {
    status = internal_error("a response was not taken");
  }
  if (!status.ok()) {
    log_error("request {}: {}", client.subscription.id, message(status));
    inbox_.push(Cancel{client.subscription.id});
    client.give_up(status);
  }
  if (client.ended) close(client);
}

void Outbox::end(Client& client, const Status& status) {
  if (client.ended) return;
  client.give_up(status);
  close(client);
}

void Outbox::close(Client& client) {
  client.subscription.callback = nullptr;  // captures are released before drain() returns
  progress_.closed(client.subscription.logits_bytes);
}

void Outbox::deliver_parked(RequestId id) {
  const auto found = clients_.find(id);
  if (found == clients_.end() || !found->second->waits_for_scores) return;
  const std::shared_ptr<Client> client = found->second;
  client->waits_for_scores = false;
  for (auto& [update, time] : std::exchange(client->parked, {})) deliver(update, time);
}

void Outbox::take_in(Client& client, EngineUpdate& update, Time time) {
  const auto index = static_cast<int32_t>(update.row.id - client.subscription.id);
  OutputBuilder& sequence = client.sequences[static_cast<size_t>(index)];
  const PromptScores* const scores = update.prompt_scores.get();
  const bool is_unscored = scores && !scores->status.ok();
  if (!update.row.status.ok() || is_unscored) {
    // Ends the request's other sequences.
    if (client.subscription.num_sequences > 1 || (is_unscored && !update.row.finished))
      inbox_.push(Cancel{client.subscription.id});
    return client.fail(is_unscored ? scores->status : update.row.status);
  }
  if (update.context_logits) client.context_logits = std::move(update.context_logits);
  if (scores) client.prompt_log_probs = {std::move(update.prompt_scores), &scores->values};
  if (update.attention_scores) client.attention_scores = std::move(update.attention_scores);
  if (update.encoder_output) client.encoder_output = std::move(update.encoder_output);
  if (!update.embedding.empty()) client.embedding = std::move(update.embedding);
  sequence.add(update, time);
  if (sequence.stopped_by_text() && !update.row.finished)
    inbox_.push(StopStringFound{update.row.id});
  client.num_over += sequence.over();
  if (!client.selects()) {
    if (sequence.over() || (client.subscription.streaming && sequence.grown()))
      client.respond(index, index);
  } else if (client.num_over == client.subscription.num_sequences) {
    client.respond_with_best();
  }
}

void Outbox::Client::respond(int32_t index, int32_t as_index) {
  OutputBuilder& sequence = sequences[static_cast<size_t>(index)];
  Response response;
  response.sequence_index = as_index;
  response.outputs = sequence.take();
  response.num_input_tokens = subscription.num_input_tokens;
  if (as_index == 0) {
    response.context_logits = std::exchange(context_logits, nullptr);
    response.prompt_log_probs = std::exchange(prompt_log_probs, nullptr);
    response.attention_scores = std::exchange(attention_scores, nullptr);
    response.encoder_output = std::exchange(encoder_output, nullptr);
  }
  response.embedding = std::move(embedding);
  response.metrics = sequence.metrics();
  if (sequence.over()) {
    response.is_sequence_final = true;
    response.is_final = ended = ++num_finals == num_responding();
  }
  call(std::move(response));
}

// Best score first; ties by index.
void Outbox::Client::respond_with_best() {
  std::vector<int32_t> order(sequences.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](int32_t i) { return sequences[static_cast<size_t>(i)].score(); });
  for (int32_t rank = 0; rank < subscription.num_returned; ++rank)
    respond(order[static_cast<size_t>(rank)], rank);
}

void Outbox::Client::fail(const Status& status) {
  Response response;
  response.status = status;
  response.is_final = response.is_sequence_final = ended = true;
  response.num_input_tokens = subscription.num_input_tokens;
  call(std::move(response));
}

// Replaces all further responses.
void Outbox::Client::give_up(const Status& status) {
  ended = true;
  try {
    sequences.clear();
    context_logits = nullptr;
    prompt_log_probs = nullptr;
    attention_scores = nullptr;
    encoder_output = nullptr;
    fail(status);
  } catch (...) {
    log_error("the callback of request {} does not take its error either", subscription.id);
  }
}

void Outbox::Client::call(Response response) {
  response.request_id = subscription.id;
  response.client_id = subscription.client_id;
  subscription.callback(std::move(response));
}

}  // namespace nereid::runtime
