// Models in a GGUF file: config.json's fields out of the metadata, and where the weights are.
// Sources: gguf-py/gguf/constants.py and convert_hf_to_gguf.py of ggml-org/llama.cpp.
#pragma once

#include <filesystem>

#include "base/json.h"
#include "base/status.h"
#include "graph/ir.h"

namespace nereid::models {

// The Hugging Face config.json that the file's metadata stand for. InvalidArgument naming file, key
// and value; Unimplemented for an architecture outside of the list, which the error gives.
StatusOr<json::object> read_gguf_config(const std::filesystem::path& path);

// Makes the weights' parts the tensors of such a file. `config` is what read_gguf_config() gave.
// Unimplemented: a weight that has no name there.
Status use_gguf_tensors(graph::Graph& graph, const json::object& config);

}  // namespace nereid::models
