// Backend "postprocessing": token ids to text. Streams stay whole because the tensorrt_llm backend
// sends tokens in groups that end where a character ends.
#include "backend/common/backend_model.h"
#include "base/clock.h"
#include "text/tokenizer.h"

namespace nereid::backend {
namespace {

class Postprocessing {
 public:
  static constexpr uint64_t kQuickBytes = 1024;  // some 250 tokens

  static StatusOr<std::unique_ptr<Postprocessing>> create(TRITONBACKEND_Model* model) {
    auto p = std::make_unique<Postprocessing>();
    ASSIGN_OR_RETURN(const ModelSettings settings, ModelSettings::read(model));
    const auto dir = settings.parameter("tokenizer_dir");
    if (!dir) {
      return invalid_argument("model '{}': parameter 'tokenizer_dir' is mandatory", settings.name);
    }
    ASSIGN_OR_RETURN(p->tokenizer_, text::Tokenizer::load(*dir));
    ASSIGN_OR_RETURN(p->skip_special_tokens_, settings.boolean("skip_special_tokens", true));
    return p;
  }

  void execute(std::unique_ptr<Request> request) {
    const uint64_t start = now_ns();
    Responder responder(*request);
    std::vector<Output> outputs;
    Status status = guarded([&]() -> Status { return run(*request, outputs); });
    request->set_times(start, start, now_ns());
    if (status.ok()) status = responder.send(outputs, true);
    if (!status.ok()) responder.fail(status);
  }

 private:
  // One string per (batch item, beam), in order, in a one-dimensional tensor.
  Status run(const Request& request, std::vector<Output>& outputs) const {
    ASSIGN_OR_RETURN(const auto view, request.input("TOKENS_BATCH"));
    ASSIGN_OR_RETURN(const auto tokens, request.values<int32_t>("TOKENS_BATCH"));
    ASSIGN_OR_RETURN(const auto lengths, request.values<int32_t>("SEQUENCE_LENGTH"));
    if (!tokens || !lengths) {
      return invalid_argument("TOKENS_BATCH and SEQUENCE_LENGTH must be present in the request");
    }
    if (view->shape.size() != 3) {
      return invalid_argument("TOKENS_BATCH must have 3 dimensions, got {}", view->shape.size());
    }
    const auto width = static_cast<size_t>(view->shape[2]);
    if (static_cast<size_t>(view->shape[0] * view->shape[1]) != lengths->size()) {
      return invalid_argument("SEQUENCE_LENGTH has {} values for {} sequences", lengths->size(),
                              view->shape[0] * view->shape[1]);
    }
    std::vector<std::string> texts;
    for (size_t i = 0; i < lengths->size(); ++i) {
      const int32_t length = (*lengths)[i];
      if (length < 0 || static_cast<size_t>(length) > width) {
        return invalid_argument("SEQUENCE_LENGTH {} is not in [0, {}]", length, width);
      }
      const std::span<const int32_t> ids(tokens->data() + i * width, static_cast<size_t>(length));
      texts.push_back(tokenizer_->decode(ids, skip_special_tokens_));
    }
    const auto count = static_cast<int64_t>(texts.size());
    outputs.push_back(make_output("OUTPUT", {count}, texts));
    return ok();
  }

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  bool skip_special_tokens_ = true;
};

}  // namespace
}  // namespace nereid::backend

NEREID_DEFINE_BACKEND(nereid::backend::Postprocessing)
