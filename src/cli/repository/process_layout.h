// The ranks, processes and devices that a model asks for, and whether this machine has them.
#pragma once

#include <filesystem>
#include <string>

#include "base/status.h"
#include "nereid/config.h"

namespace nereid::cli {

struct ProcessLayout {
  std::string text;  // "2 ranks (tensor_parallel 2), threads of the server's process, on cpu"
  Status fault;      // the error with which the model's load would end
};

// Opens the devices, as a load does; neither reads weights nor builds an engine.
ProcessLayout process_layout(const std::filesystem::path& model_dir, ExecutorConfig config);

// "machine: 8 cores, cuda:0 NVIDIA H200 (GPU-...), process 0 of 2 (Open MPI)"
std::string machine_line();

}  // namespace nereid::cli
