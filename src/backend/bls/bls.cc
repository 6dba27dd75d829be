// Backend "tensorrt_llm_bls": preprocessing, the generating model and postprocessing, called from
// code instead of an ensemble.
#include "backend/bls/bls_run.h"
#include "backend/common/backend_model.h"
#include "backend/common/callee.h"
#include "backend/common/run_watch.h"
#include "backend/parameters/parameters.h"

namespace nereid::backend {
namespace {

class BlsModel {
 public:
  static constexpr uint64_t kQuickBytes = 64 << 10;  // inputs are only passed on

  static StatusOr<std::unique_ptr<BlsModel>> create(TRITONBACKEND_Model* model) {
    ASSIGN_OR_RETURN(const ModelSettings config, ModelSettings::read(model));
    BlsSettings s;
    RETURN_IF_ERROR(take(TRITONBACKEND_ModelServer(model, &s.server)));
    s.decoupled = config.decoupled;
    s.llm_model = config.parameter("tensorrt_llm_model_name").value_or(s.llm_model);
    s.draft_model = config.parameter("tensorrt_llm_draft_model_name").value_or("");
    s.encoders_model = config.parameter("multimodal_encoders_name").value_or("");
    ASSIGN_OR_RETURN(s.accumulate_tokens, config.boolean("accumulate_tokens", false));
    return std::make_unique<BlsModel>(std::move(s));
  }

  explicit BlsModel(BlsSettings settings)
      : settings_(std::move(settings)), callees_(settings_.server) {
    settings_.callees = &callees_;
  }

  void execute(std::unique_ptr<Request> request) {
    runs_
        .add([&](uint64_t number, std::function<void()> on_over) {
          return std::make_shared<BlsRun>(settings_, std::move(request),
                                          fmt::format("bls-{}", number), std::move(on_over));
        })
        ->start();
  }

 private:
  BlsSettings settings_;
  Callees callees_;
  RunWatch<BlsRun> runs_;  // first to be destroyed
};

}  // namespace
}  // namespace nereid::backend

NEREID_DEFINE_BACKEND(nereid::backend::BlsModel)
