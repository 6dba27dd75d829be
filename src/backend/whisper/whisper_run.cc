#include "backend/whisper/whisper_run.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "backend/common/float_tensors.h"
#include "backend/whisper/speech_input.h"
#include "base/clock.h"
#include "base/copy_bytes.h"
#include "speech/transcript.h"

namespace nereid::backend {
namespace {

constexpr char kLlmModel[] = "tensorrt_llm";
constexpr char kFeatures[] = "encoder_input_features";
constexpr char kPrefix[] = "<|startoftranscript|><|en|><|transcribe|><|notimestamps|>";
constexpr int32_t kMaxTokens = 50;

// Without the tokens that are written "<|...|>" on one line.
std::string without_marks(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t open = text.find("<|");
    const size_t close = open == text.npos ? text.npos : text.find("|>", open + 2);
    if (close == text.npos) break;
    const bool is_mark = text.substr(open, close - open).find('\n') == text.npos;
    out += text.substr(0, is_mark ? open : open + 2);
    text.remove_prefix(is_mark ? close + 2 : open + 2);
  }
  return out.append(text);
}

}  // namespace

WhisperRun::WhisperRun(const WhisperSettings& settings, std::unique_ptr<Request> request,
                       std::string id, std::function<void()> on_over)
    : settings_(settings),
      request_(std::move(request)),
      responder_(*request_),
      id_(std::move(id)),
      on_over_(std::move(on_over)),
      start_ns_(now_ns()) {}

// Runs `event` serially; an exception of it ends the request.
template <class Event>
void WhisperRun::post(Event event) {
  events_.post([self = shared_from_this(), event = std::move(event)]() mutable {
    const Status status = guarded([&] {
      event();
      return ok();
    });
    if (!status.ok()) self->fail(status);
    self->finish_if_over();
  });
}

void WhisperRun::start() {
  post([this] {
    is_started_ = true;
    auto made = inputs();
    if (!made.ok()) return fail(made.status());
    auto started = InferCall::start(settings_.server, kLlmModel, id_, request_->tenant(),
                                    *std::move(made), [self = shared_from_this()](Reply reply) {
                                      auto shared = std::make_shared<const Reply>(std::move(reply));
                                      self->post([self, shared] { self->on_generated(*shared); });
                                    });
    if (!started.ok()) return fail(started.status());
    call_ = *std::move(started);
  });
}

StatusOr<Output> WhisperRun::features() const {
  ASSIGN_OR_RETURN(const auto view, request_->input("WAV"));
  if (!view) return invalid_argument("input 'WAV' is required");
  if (view->shape.size() != 2 || view->shape[0] != 1)
    return invalid_argument(
        "input 'WAV' has the shape [{}], expected [1, samples]: Only support "
        "batch size 1",
        fmt::join(view->shape, ", "));
  ASSIGN_OR_RETURN(auto samples, request_->values<float>("WAV"));
  ASSIGN_OR_RETURN(const auto length, request_->scalar<int32_t>("WAV_LENS"));
  if (length && (*length < 0 || static_cast<size_t>(*length) > samples->size()))
    return invalid_argument("input 'WAV_LENS' is {}, expected 0 to {}, the samples of 'WAV'",
                            *length, samples->size());
  if (settings_.cuts && length) samples->resize(static_cast<size_t>(*length));
  ASSIGN_OR_RETURN(
      const std::vector<float> values,
      log_mel_features(*settings_.mel, *samples, settings_.cuts ? 0 : speech::kWindowFrames));
  const int64_t width = settings_.mel->num_mels();
  Output out = {kFeatures, TRITONSERVER_TYPE_FP16, {1, std::ssize(values) / width, width}, {}};
  const auto input = settings_.callees->input(kLlmModel, kFeatures);
  if (input && input->rank > 0) out.datatype = input->datatype;
  RETURN_IF_ERROR(request_->hold(values.size() * sizeof(float)));
  ASSIGN_OR_RETURN(out.bytes, float_bytes(fmt::format("model '{}': {}", kLlmModel, kFeatures),
                                          values, out.datatype));
  return out;
}

StatusOr<std::vector<Output>> WhisperRun::inputs() const {
  ASSIGN_OR_RETURN(const auto prefix, request_->strings("TEXT_PREFIX"));
  if (!prefix || prefix->size() != 1)
    return invalid_argument("input 'TEXT_PREFIX' has {} strings, expected 1",
                            prefix ? prefix->size() : 0);
  ASSIGN_OR_RETURN(Output sound, features());
  const auto frames = static_cast<int32_t>(sound.shape[1]);
  ASSIGN_OR_RETURN(
      const std::vector<int32_t> prompt,
      settings_.tokenizer->encode((*prefix)[0].empty() ? std::string_view(kPrefix) : (*prefix)[0],
                                  {.add_special_tokens = false,
                                   .is_unwanted = [this] { return request_->is_cancelled(); }}));
  const auto number = [](const char* name, int32_t value) {
    return make_output(name, {1, 1}, std::vector<int32_t>{value});
  };
  std::vector<Output> out;
  out.push_back(std::move(sound));
  out.push_back(number("request_output_len", kMaxTokens));
  out.push_back(number("end_id", settings_.end_id));
  out.push_back(number("pad_id", settings_.end_id));
  out.push_back(number("encoder_output_lengths", frames / 2));
  out.push_back(number("input_lengths", frames));
  out.push_back(make_output("decoder_input_ids", {1, std::ssize(prompt)}, prompt));
  out.push_back({"streaming",
                 TRITONSERVER_TYPE_BOOL,
                 {1, 1},
                 std::string(1, settings_.decoupled ? '\1' : '\0')});
  return out;
}

void WhisperRun::on_generated(const Reply& reply) {
  if (reply.is_final) call_.reset();
  if (failed_ || responder_.is_final()) return;
  if (!reply.status.ok()) return fail(reply.status);
  const Output* const ids = find_output(reply.outputs, "output_ids");
  if (ids != nullptr) {
    const size_t begin = tokens_.size();
    tokens_.resize(begin + ids->bytes.size() / sizeof(int32_t));
    copy_bytes(tokens_.data() + begin, ids->bytes.data(),
               (tokens_.size() - begin) * sizeof(int32_t));
    if (settings_.decoupled && tokens_.size() == begin) return;
    if (const Status sent = send_text(); !sent.ok()) return fail(sent);
  }
}

// Sends the text of all tokens so far.
Status WhisperRun::send_text() {
  const std::string text = settings_.tokenizer->decode(tokens_, /*skip_special_tokens=*/false);
  request_->set_times(start_ns_, now_ns());
  const std::string shown = without_marks(speech::stripped(text));
  // A decoupled model sends FINAL in a response of its own.
  return responder_.send({make_output("TRANSCRIPTS", {1}, std::vector<std::string>{shown})},
                         !settings_.decoupled);
}

void WhisperRun::check_cancelled() {
  if (!responder_.is_cancelled()) return;
  post([this] {
    if (!over_ && call_ != nullptr) call_->cancel();
  });
}

void WhisperRun::fail(const Status& status) {
  if (failed_) return;
  failed_ = true;
  request_->set_times(start_ns_, now_ns());
  responder_.fail(status);
  if (call_ != nullptr) call_->cancel();
}

void WhisperRun::finish_if_over() {
  if (over_ || !is_started_ || call_ != nullptr) return;
  over_ = true;
  request_->set_times(start_ns_, now_ns());
  if (!failed_ && !responder_.is_final()) {
    if (settings_.decoupled)
      responder_.finish();
    else
      responder_.fail(internal_error("model '{}' gave no output_ids", kLlmModel));
  }
  on_over_();
  request_->release();
}

}  // namespace nereid::backend
