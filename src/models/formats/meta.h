// Llama in Meta's layout: params.json and consolidated.00.pth, .01.pth, ..., one file per
// tensor-parallel rank. Sources: the readers of meta-llama/llama and llama-models.
#pragma once

#include <filesystem>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "graph/ir.h"
#include "models/family.h"

namespace nereid::models {

// Whether `dir` has params.json and consolidated.00.pth, and no config.json.
bool is_meta_dir(const std::filesystem::path& dir);

// "consolidated.03.pth"
std::string meta_file_name(int32_t file);

// The equivalent config.json, from params.json and the embedding in the first file; sets `shares`.
// Errors have file, field, value and what is allowed.
StatusOr<json::object> read_meta_config(const std::filesystem::path& dir, MetaShares& shares);

// Replaces the weights' parts by the files' tensors; with several files "@rankN" is appended to
// names. InvalidArgument: a weight cannot be split equally.
Status use_meta_tensors(graph::Graph& graph, const MetaShares& shares, bool tied_head);

// Whether a tensor is unused: RoPE angles, or replicated in every file.
bool is_meta_extra(std::string_view tensor, size_t file);

}  // namespace nereid::models
