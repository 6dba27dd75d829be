// Backend "postprocessing": token ids to text. Each request is decoded alone: the tensorrt_llm
// backend sends tokens in groups that end at a character boundary.
#include <algorithm>

#include "backend/common/backend_model.h"
#include "backend/common/check_parameters.h"
#include "base/clock.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::backend {
namespace {

class Postprocessing {
 public:
  static constexpr uint64_t kQuickBytes = 1024;  // about 250 tokens
  // A shape can name any number of empty rows at no bytes.
  static constexpr size_t kMaxEmptyRows = 1024;

  static StatusOr<std::unique_ptr<Postprocessing>> create(TRITONBACKEND_Model* model) {
    auto p = std::make_unique<Postprocessing>();
    ModelSettings& settings = p->settings_;
    ASSIGN_OR_RETURN(settings, ModelSettings::read(model));
    RETURN_IF_ERROR(check_parameters(settings, "postprocessing"));
    warn_without_effect(settings, "postprocessing");
    RETURN_IF_ERROR(settings.check_type("OUTPUT", TRITONSERVER_TYPE_BYTES));
    const auto dir = settings.parameter("tokenizer_dir");
    if (!dir) {
      return invalid_argument("model '{}': parameter 'tokenizer_dir' is mandatory", settings.name);
    }
    ASSIGN_OR_RETURN(p->tokenizer_, text::Tokenizer::load(*dir));
    ASSIGN_OR_RETURN(p->skip_special_tokens_, settings.boolean("skip_special_tokens", true));
    for (const auto& output : settings.outputs) {
      if (output.name.starts_with(kPassed)) p->passed_.push_back(output);
    }
    return p;
  }

  void execute(std::unique_ptr<Request> request) {
    const uint64_t start = now_ns();
    Responder responder(*request);
    std::vector<Output> outputs;
    Status status = guarded([&]() -> Status { return run(*request, outputs); });
    request->set_times(start, now_ns());
    if (status.ok()) status = responder.send(outputs, true);
    if (!status.ok()) responder.fail(status);
  }

 private:
  static constexpr std::string_view kPassed = "OUT_";

  // One string for each (batch item, beam), in order, in a one-dimensional tensor.
  Status run(const Request& request, std::vector<Output>& outputs) const {
    ASSIGN_OR_RETURN(const auto view, request.input("TOKENS_BATCH"));
    ASSIGN_OR_RETURN(const auto tokens, request.values<int32_t>("TOKENS_BATCH"));
    if (!tokens) return invalid_argument("TOKENS_BATCH must be present in the request");
    if (view->shape.size() != 3) {
      return invalid_argument("TOKENS_BATCH must have 3 dimensions, got {}", view->shape.size());
    }
    const auto width = static_cast<size_t>(view->shape[2]);
    ASSIGN_OR_RETURN(auto lengths, request.values<int32_t>("SEQUENCE_LENGTH"));
    const auto rows = static_cast<size_t>(view->shape[0] * view->shape[1]);
    if (!lengths && rows > tokens->size() + kMaxEmptyRows) {
      return invalid_argument(
          "TOKENS_BATCH has {} sequences without tokens, at most {} are allowed", rows,
          kMaxEmptyRows);
    }
    if (!lengths) lengths = lengths_of(*tokens, rows, width);
    if (rows != lengths->size()) {
      return invalid_argument("SEQUENCE_LENGTH has {} values for {} sequences", lengths->size(),
                              rows);
    }
    std::vector<std::string> texts;
    for (size_t i = 0; i < lengths->size(); ++i) {
      const int32_t length = (*lengths)[i];
      if (length < 0 || static_cast<size_t>(length) > width) {
        return invalid_argument("SEQUENCE_LENGTH {} is not in [0, {}]", length, width);
      }
      const std::span<const int32_t> ids(tokens->data() + i * width, static_cast<size_t>(length));
      // Counted twice: the text and its copy in the tensor.
      RETURN_IF_ERROR(request.hold(2 * tokenizer_->text_bytes(ids)));
      texts.push_back(tokenizer_->decode(ids, skip_special_tokens_));
    }
    const auto count = static_cast<int64_t>(texts.size());
    outputs.push_back(make_output("OUTPUT", {count}, texts));
    return pass_on(request, outputs);
  }

  // Row lengths for the oldest configurations, which have no SEQUENCE_LENGTH: a row ends where
  // its padding begins.
  static std::vector<int32_t> lengths_of(const std::vector<int32_t>& tokens, size_t rows,
                                         size_t width) {
    std::vector<int32_t> lengths;
    for (size_t i = 0; i < rows; ++i) {
      const std::span<const int32_t> row(tokens.data() + i * width, width);
      lengths.push_back(static_cast<int32_t>(std::ranges::find(row, -1) - row.begin()));
    }
    return lengths;
  }

  // Pass-through outputs of v0.6 to v0.13, whose ensembles route log-probabilities, logits and the
  // batch index through this model: OUT_X is input X, or a single zero without that input.
  Status pass_on(const Request& request, std::vector<Output>& outputs) const {
    for (const auto& spec : passed_) {
      if (!request.wants_output(spec.name)) continue;
      ASSIGN_OR_RETURN(const auto view, request.input(spec.name.c_str() + kPassed.size()));
      if (view) {
        RETURN_IF_ERROR(request.hold(view->bytes.size()));
        outputs.push_back(settings_.as_declared(
            {spec.name, view->datatype, view->shape, std::string(view->bytes)}));
        continue;
      }
      outputs.push_back({spec.name, spec.datatype, Shape(spec.rank + 1, 1),
                         std::string(TRITONSERVER_DataTypeByteSize(spec.datatype), '\0')});
    }
    return ok();
  }

  ModelSettings settings_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  bool skip_special_tokens_ = true;
  std::vector<ModelSettings::OutputSpec> passed_;  // declared outputs OUT_*
};

}  // namespace
}  // namespace nereid::backend

NEREID_DEFINE_BACKEND(nereid::backend::Postprocessing)
