#include "front/openai/audio/transcriber.h"

#include <algorithm>
#include <utility>

#include "front/openai/audio/pass_request.h"
#include "front/openai/requests/fields.h"
#include "front/trace/exchange_trace.h"
#include "speech/pauses.h"

namespace nereid::front {
namespace {

// Temperatures 0.2 apart, up to 1, from the requested one on.
std::vector<double> temperatures_from(double first) {
  std::vector<double> out;
  for (int i = 0; first + 0.2 * i <= 1 + 1e-6; ++i) out.push_back(first + 0.2 * i);
  return out;
}

}  // namespace

Transcriber::Transcriber(OpenAiContextPtr context, ExchangePtr exchange, LanguageModelPtr model,
                         AudioRequest request, Recording recording)
    : context_(std::move(context)),
      exchange_(std::move(exchange)),
      model_(std::move(model)),
      request_(std::move(request)),
      recording_(std::move(recording)) {
  if (model_->max_num_sequences > 0)
    most_running_ = std::min(most_running_, static_cast<size_t>(model_->max_num_sequences));
}

std::variant<std::shared_ptr<Transcriber>, ApiError> Transcriber::create(OpenAiContextPtr context,
                                                                         ExchangePtr exchange,
                                                                         LanguageModelPtr model,
                                                                         AudioRequest request,
                                                                         Recording recording) {
  const ServedSpeech& speech = **model->speech;
  auto mel = speech::LogMel::create(speech.num_mels);
  if (!mel.ok()) return api_error(mel.status());
  if (request.wants_words && !speech.has_words(*model->engine))
    return ApiError{
        400,
        fmt::format("'timestamp_granularities': model '{}' gives no times of words: its "
                    "engine has no input '{}', or neither generation_config.json nor config.json "
                    "tells its alignment_heads",
                    model->id, kAlignmentInput),
        "timestamp_granularities", "unsupported_parameter"};
  if (request.num_beams > speech.max_beams)
    return ApiError{
        400,
        fmt::format("'beam_size': {} is not in [1, {}], the largest beam width that the "
                    "engine of model '{}' was started with (--max-beam-width)",
                    request.num_beams, speech.max_beams, model->id),
        "beam_size", kInvalidValue};
  std::shared_ptr<Transcriber> out(new Transcriber(std::move(context), std::move(exchange),
                                                   std::move(model), std::move(request),
                                                   std::move(recording)));
  out->features_.emplace(*std::move(mel), out->recording_.sound.samples);
  // Made in advance, for the faults of the request that they find.
  const auto& vocabulary = speech.model.vocabulary;
  const std::string given = out->request_.language;
  const bool finds_language = given.empty() && vocabulary.is_multilingual();
  const std::string first = vocabulary.languages.empty() ? "" : vocabulary.languages[0].first;
  auto prompt = speech::prompt_tokens(speech.model, out->request_.prompt);
  if (!prompt.ok()) return api_error(prompt.status());
  out->prompt_ = *std::move(prompt);
  out->language_ = finds_language ? first : given.empty() ? "en" : given;
  auto parts = out->make_parts(out->language_);
  if (auto* const error = std::get_if<ApiError>(&parts)) return *std::move(error);
  if (!finds_language) {
    out->parts_ = std::move(std::get<Parts>(parts));
    return out;
  }
  out->parts_.push_back(std::make_unique<Part>());
  return out;
}

// Pages of hours of samples take long to free.
Transcriber::~Transcriber() {
  constexpr size_t kQuickSamples = size_t{1} << 20;
  if (recording_.sound.samples.size() <= kQuickSamples) return;
  context_->workers.push(
      [samples = std::make_shared<speech::Samples>(std::move(recording_.sound.samples))] {});
}

std::variant<Transcriber::Parts, ApiError> Transcriber::make_parts(
    const std::string& language) const {
  Parts parts;
  std::vector<std::pair<int64_t, int64_t>> stretches = {{0, features_->num_frames()}};
  if (request_.in_parts && features_->num_frames() > 0)
    stretches = speech::parts_at_pauses(recording_.sound.samples, speech().model.window_frames);
  for (const auto& [begin, end] : stretches) {
    speech::TranscriptionOptions options = {
        .language = language,
        .translates = request_.task == AudioTask::kTranslate,
        .prompt = prompt_,
        .temperatures = temperatures_from(request_.temperature),
        .wants_no_speech = request_.format == AudioFormat::kVerboseJson,
        .wants_words = request_.wants_words,
        .num_beams = request_.num_beams,
        .begin = begin,
        .end = end};
    auto made = speech::Transcription::create(speech().model, std::move(options));
    if (!made.ok()) return api_error(made.status());
    auto& part = parts.emplace_back(std::make_unique<Part>());
    part->transcription = *std::move(made);
    part->share = BudgetShare(context_->budget);
  }
  return parts;
}

void Transcriber::start() {
  exchange_->on_disconnect([self = shared_from_this()] { self->cancel(); });
  run_parts();
}

void Transcriber::run_parts() {
  while (!ended_ && next_part_ < parts_.size() && num_running_ < most_running_) {
    ++num_running_;
    advance(next_part_++);
  }
}

// The part's next pass, or its end.
void Transcriber::advance(size_t index) {
  if (ended_) return;
  Part& part = *parts_[index];
  if (!part.transcription) {
    part.pass = speech::language_pass(speech().model, features_->num_frames());
    return run_pass(index);
  }
  if (request_.common.stream) stream_segments();
  if (part.transcription->next()) {
    part.pass = *part.transcription->next();
    return run_pass(index);
  }
  part.is_done = true;
  --num_running_;
  if (request_.common.stream) stream_segments();
  const auto is_done = [](const auto& each) { return each->is_done; };
  if (std::ranges::all_of(parts_, is_done)) return answer();
  resume_refused();
  run_parts();
}

void Transcriber::run_pass(size_t index) {
  Part& part = *parts_[index];
  part.result = {};
  part.status = ok();
  // The features twice: as computed, and as the engine's tensor.
  const size_t bytes = 2 * sizeof(float) * static_cast<size_t>(speech().model.window_frames) *
                       static_cast<size_t>(speech().num_mels);
  if (const Status room = part.share.reserve(bytes); !room.ok()) return fail(api_error(room));
  context_->workers.run(
      exchange_, Lane::kWorker,
      [self = shared_from_this(), index] {
        auto spec = pass_request(self->speech(), *self->model_->engine, *self->features_,
                                 self->parts_[index]->pass);
        return std::make_shared<StatusOr<InferenceSpec>>(std::move(spec));
      },
      [self = shared_from_this(), index](const std::shared_ptr<StatusOr<InferenceSpec>>& spec) {
        if (self->ended_) return;
        if (!spec->ok()) return self->fail(api_error(spec->status()));
        self->start_call(index, std::move(**spec));
      });
}

void Transcriber::start_call(size_t index, InferenceSpec spec) {
  spec.model = model_->engine_name;
  spec.tenant = exchange_->request().tenant;
  spec.trace = trace_exchange(*context_->tracer, spec.model, *exchange_);
  if (const auto& permit = exchange_->request().permit)
    permit->charge(std::ssize(parts_[index]->pass.prompt));
  auto on_reply = [self = shared_from_this(), index](InferenceReply reply) {
    auto shared = std::make_shared<const InferenceReply>(std::move(reply));
    self->exchange_->post([self, index, shared] { self->take(index, *shared); });
  };
  auto call = InferenceCall::start(context_->models.server(), std::move(spec), std::move(on_reply));
  if (!call.ok()) return retry_or_fail(index, call.status());
  parts_[index]->call = *std::move(call);
}

void Transcriber::take(size_t index, const InferenceReply& reply) {
  if (ended_) return;
  Part& part = *parts_[index];
  if (part.status.ok()) part.status = reply.status;
  if (part.status.ok()) part.status = add_reply(reply, part.pass, part.result);
  if (!reply.final) return;
  part.call = nullptr;
  part.share.set(0);
  if (!part.status.ok()) return retry_or_fail(index, part.status);
  resume_refused();
  const std::string* const reason = reply.string_parameter("nereid_finish_reason");
  if (reason && *reason == "cancelled") return fail({503, "the inference was cancelled", "", ""});
  if (const auto& permit = exchange_->request().permit)
    permit->charge(std::ssize(part.result.tokens));
  end_pass(index);
}

// A pass that a full queue refuses is repeated when another pass or part of this request ends.
void Transcriber::retry_or_fail(size_t index, const Status& status) {
  const bool has_others = num_running_ > refused_.size() + 1;
  if (status.code() != absl::StatusCode::kUnavailable || !has_others)
    return fail(api_error(status));
  refused_.push_back(index);
  parts_[index]->share.set(0);
  most_running_ = std::max<size_t>(1, num_running_ - refused_.size());
}

void Transcriber::resume_refused() {
  if (refused_.empty()) return;
  const size_t next = refused_.back();
  refused_.pop_back();
  run_pass(next);
}

void Transcriber::end_pass(size_t index) {
  if (!parts_[index]->transcription) return take_language();
  context_->workers.run(
      exchange_, Lane::kWorker,
      [self = shared_from_this(), index] {
        Part& part = *self->parts_[index];
        return part.transcription->take(std::move(part.result));
      },
      [self = shared_from_this(), index](const Status& status) {
        if (self->ended_) return;
        if (!status.ok()) return self->fail(api_error(status));
        self->advance(index);
      });
}

void Transcriber::take_language() {
  const auto& tokens = parts_[0]->result.tokens;
  const std::string_view code =
      tokens.empty() ? "" : speech().model.vocabulary.language_of(tokens[0]);
  if (code.empty()) return fail({500, "the model gave no language for the recording", "", ""});
  language_ = code;
  context_->workers.run(
      exchange_, Lane::kWorker,
      [self = shared_from_this()] {
        return std::make_shared<std::variant<Parts, ApiError>>(self->make_parts(self->language_));
      },
      [self = shared_from_this()](const std::shared_ptr<std::variant<Parts, ApiError>>& parts) {
        if (self->ended_) return;
        if (const auto* const error = std::get_if<ApiError>(parts.get())) return self->fail(*error);
        self->parts_ = std::move(std::get<Parts>(*parts));
        self->next_part_ = self->num_running_ = 0;
        self->run_parts();
      });
}

// Segments of parts in order, as far as those before are done.
void Transcriber::stream_segments() {
  for (;; ++streamed_part_, streamed_segments_ = 0) {
    if (streamed_part_ == parts_.size() || !parts_[streamed_part_]->transcription) return;
    const auto& segments = parts_[streamed_part_]->transcription->segments();
    const std::string event =
        delta_event(request_, speech(), std::span(segments).subspan(streamed_segments_),
                    /*is_first=*/!has_streamed_);
    streamed_segments_ = segments.size();
    if (!event.empty()) {
      if (!std::exchange(has_streamed_, true)) begin_events(exchange_, warnings(request_.common));
      exchange_->write(event);
    }
    if (!parts_[streamed_part_]->is_done) return;
  }
}

void Transcriber::answer() {
  ended_ = true;
  auto transcript = std::make_shared<Transcript>();
  transcript->language = language_;
  transcript->seconds = recording_.sound.seconds();
  for (const auto& part : parts_) {
    const auto& segments = part->transcription->segments();
    transcript->segments.insert(transcript->segments.end(), segments.begin(), segments.end());
  }
  if (request_.common.stream) {
    if (!has_streamed_) begin_events(exchange_, warnings(request_.common));
    exchange_->write(done_event(request_, speech(), *transcript));
    exchange_->write(kSseDone);
    return exchange_->end();
  }
  context_->workers.run(
      exchange_, Lane::kWorker,
      [self = shared_from_this(), transcript] {
        return answer_of(self->request_, self->speech(), *transcript);
      },
      [self = shared_from_this()](std::string body) {
        self->exchange_->send({200, content_type_of(self->request_.format),
                               warnings(self->request_.common), std::move(body)});
      });
}

void Transcriber::fail(const ApiError& error) {
  if (ended_) return;
  cancel();
  send_failure(exchange_, has_streamed_, error);
}

void Transcriber::cancel() {
  ended_ = true;
  for (const auto& part : parts_)
    if (part->call) part->call->cancel();
}

}  // namespace nereid::front
