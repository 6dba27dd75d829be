// GGUF files: config.json from metadata, tensor names. Sources: gguf-py/gguf/constants.py and
// convert_hf_to_gguf.py of ggml-org/llama.cpp.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "graph/ir.h"
#include "models/family.h"

namespace nereid::models {

// The Hugging Face config.json equivalent to the file's metadata. InvalidArgument with file, key
// and value; Unimplemented: an unsupported architecture (lists the supported ones).
StatusOr<json::object> read_gguf_config(const std::filesystem::path& path, GgufLayout& layout);

// Replaces the weights' parts by the file's tensors. Unimplemented: a weight has no GGUF name.
Status use_gguf_tensors(graph::Graph& graph, const Traits& traits, const GgufLayout& layout);

// Whether a tensor is derived from others or was read with the metadata.
bool is_gguf_extra(std::string_view tensor, const GgufLayout& layout);

}  // namespace nereid::models
