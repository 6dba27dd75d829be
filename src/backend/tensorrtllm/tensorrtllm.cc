// Entry points of the backend "tensorrtllm".
#include "backend/common/backend_model.h"
#include "backend/tensorrtllm/model.h"

NEREID_DEFINE_BACKEND(nereid::backend::TensorrtLlmModel)

namespace {

// The state that ModelInitialize set.
nereid::backend::TensorrtLlmModel* model_of(TRITONBACKEND_Model* model) {
  void* state = nullptr;
  TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelState(model, &state));
  return static_cast<nereid::backend::TensorrtLlmModel*>(state);
}

}  // namespace

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReady(TRITONBACKEND_ModelInstance* instance) {
  TRITONBACKEND_Model* model = nullptr;
  if (auto* error = TRITONBACKEND_ModelInstanceModel(instance, &model)) return error;
  return nereid::backend::give(model_of(model)->health());
}

bool NEREID_LendsThread(TRITONBACKEND_Model* model) { return model_of(model)->lends_thread(); }

const char* NEREID_OpenParameters(TRITONBACKEND_Model* model) {
  return model_of(model)->open_parameters().c_str();
}

TRITONSERVER_Error* NEREID_ModelView(TRITONBACKEND_Model* model, uint32_t view,
                                     TRITONSERVER_Message** message) {
  std::string text;
  if (auto* error = nereid::backend::give(nereid::backend::guarded([&]() -> nereid::Status {
        ASSIGN_OR_RETURN(text, model_of(model)->view(view));
        return nereid::ok();
      })))
    return error;
  return TRITONSERVER_MessageNewFromSerializedJson(message, text.data(), text.size());
}
