// Backend "tensorrtllm": its entry points.
#include "backend/common/backend_model.h"
#include "backend/tensorrtllm/model.h"

NEREID_DEFINE_BACKEND(nereid::backend::TensorrtLlmModel)
