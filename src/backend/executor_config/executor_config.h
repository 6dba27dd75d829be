// The executor's options from the parameters of a tensorrt_llm model.
#pragma once

#include <filesystem>

#include "backend/common/triton.h"
#include "base/status.h"
#include "nereid/config.h"

namespace nereid::backend {

// Whether gpt_model_type is "V1": static batching.
bool is_v1(const ModelSettings& settings);

// The engine or model folder. InvalidArgument: none is given.
StatusOr<std::filesystem::path> model_path(const ModelSettings& settings);

// Executor options from the model's parameters; errors name the parameter.
StatusOr<ExecutorConfig> read_executor_config(const ModelSettings& settings);

// Executor options of a model that has an encoder alone (backend multimodal_encoders): those that
// say where and how it computes.
StatusOr<ExecutorConfig> read_device_config(const ModelSettings& settings);

}  // namespace nereid::backend
