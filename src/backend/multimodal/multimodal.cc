// Backend "multimodal_encoders": pictures to rows of a prompt table, by the vision encoder of a
// model of pictures.
#include <fmt/ranges.h>

#include <thread>
#include <utility>

#include "backend/common/backend_model.h"
#include "backend/common/check_parameters.h"
#include "backend/executor_config/executor_config.h"
#include "backend/multimodal/pixel_input.h"
#include "base/clock.h"
#include "base/queue.h"
#include "runtime/prompts/picture_encoder.h"

namespace nereid::backend {
namespace {

class EncoderModel {
 public:
  static constexpr uint64_t kQuickBytes = 0;  // an encoder takes longer

  static StatusOr<std::unique_ptr<EncoderModel>> create(TRITONBACKEND_Model* model) {
    auto m = std::make_unique<EncoderModel>();
    ASSIGN_OR_RETURN(m->settings_, ModelSettings::read(model));
    const ModelSettings& settings = m->settings_;
    RETURN_IF_ERROR(check_parameters(settings, "multimodal_encoders"));
    warn_without_effect(settings, "multimodal_encoders");
    std::optional<std::string> dir = settings.parameter("multimodal_model_path");
    if (!dir) dir = settings.parameter("visual_model_path");
    if (!dir)
      return invalid_argument("model '{}': parameter 'multimodal_model_path' is mandatory",
                              settings.name);
    ASSIGN_OR_RETURN(const ExecutorConfig config, read_device_config(settings));
    auto encoder = runtime::PictureEncoder::create(*dir, config);
    if (!encoder.ok())
      return annotate(encoder.status(),
                      fmt::format("model '{}': parameter 'multimodal_model_path'", settings.name));
    m->encoder_ = *std::move(encoder);
    if (const auto* table = settings.output("OUT_PROMPT_EMBEDDING_TABLE"))
      m->table_type_ = table->datatype;
    m->thread_ = std::thread([model = m.get()] { model->answer_requests(); });
    return m;
  }

  ~EncoderModel() {
    requests_.close();
    if (thread_.joinable()) thread_.join();
  }

  // One after the other: a request's pictures are encoded together.
  void execute(std::unique_ptr<Request> request) {
    static_cast<void>(requests_.push(std::move(request)));
  }

 private:
  void answer_requests() {
    while (auto request = requests_.take()) {
      const Status status = guarded([&] {
        answer(**request);
        return ok();
      });
      if (!status.ok()) log_warning(message(status));
    }
  }

  void answer(Request& request) {
    const uint64_t start = now_ns();
    Responder responder(request);
    StatusOr<std::vector<Output>> outputs;
    Status status = guarded([&]() -> Status {
      outputs = run(request);
      return outputs.status();
    });
    request.set_times(start, now_ns());
    if (status.ok()) status = responder.send(*outputs, true);
    if (!status.ok()) responder.fail(status);
  }

  StatusOr<std::vector<Output>> run(const Request& request) {
    if (request.is_cancelled()) return cancelled("request was cancelled");
    ASSIGN_OR_RETURN(const PixelValues pixels, read_pixel_values(request, encoder_->side()));
    const int64_t num_rows = pixels.batch * pixels.pictures * encoder_->rows_of_picture();
    // Rows as bf16, as f32 and as bytes of the output.
    RETURN_IF_ERROR(request.hold(static_cast<uint64_t>(num_rows * encoder_->width()) * 10));
    ASSIGN_OR_RETURN(const std::vector<uint16_t> rows, encoder_->encode(pixels.values));
    ASSIGN_OR_RETURN(auto outputs,
                     table_outputs(rows, pixels.batch, encoder_->width(), table_type_));
    std::erase_if(outputs, [&](const Output& o) { return !request.wants_output(o.name); });
    return outputs;
  }

  ModelSettings settings_;
  std::unique_ptr<runtime::PictureEncoder> encoder_;
  TRITONSERVER_DataType table_type_ = TRITONSERVER_TYPE_FP16;
  Queue<std::unique_ptr<Request>> requests_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace
}  // namespace nereid::backend

NEREID_DEFINE_BACKEND(nereid::backend::EncoderModel)
