// Backend "tensorrtllm": its entry points.
#include "backend/common/backend_model.h"
#include "backend/tensorrtllm/model.h"

NEREID_DEFINE_BACKEND(nereid::backend::TensorrtLlmModel)

bool NEREID_LendsThread(TRITONBACKEND_Model* model) {
  void* state = nullptr;
  if (auto* error = TRITONBACKEND_ModelState(model, &state)) {
    TRITONSERVER_ErrorDelete(error);
    return false;
  }
  return static_cast<nereid::backend::TensorrtLlmModel*>(state)->lends_thread();
}
