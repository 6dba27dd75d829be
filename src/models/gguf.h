// Models in a GGUF file: config.json's fields out of the metadata, and where the weights are.
// Sources: gguf-py/gguf/constants.py and convert_hf_to_gguf.py of ggml-org/llama.cpp.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "graph/ir.h"
#include "models/family.h"

namespace nereid::models {

// The Hugging Face config.json that the file's metadata stand for. InvalidArgument naming file, key
// and value; Unimplemented for an architecture outside of the list, which the error gives.
StatusOr<json::object> read_gguf_config(const std::filesystem::path& path, GgufLayout& layout);

// Makes the weights' parts the tensors of such a file. Unimplemented: a weight that has no name
// there.
Status use_gguf_tensors(graph::Graph& graph, const Traits& traits, const GgufLayout& layout);

// Whether a tensor follows from others or was read with the metadata.
bool is_gguf_extra(std::string_view tensor, const GgufLayout& layout);

}  // namespace nereid::models
