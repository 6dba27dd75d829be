// Llama as Meta publishes it: params.json and consolidated.00.pth, .01.pth and so on, one for each
// of the ranks that the model ran on. Sources: the readers of meta-llama/llama and llama-models.
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

// What a config.json would say of the model, from params.json and from the embedding in the first
// file; `shares` is set. Errors name file, field, value and what is allowed.
StatusOr<json::object> read_meta_config(const std::filesystem::path& dir, MetaShares& shares);

// Makes the weights' parts those of the files' tensors; with several files a tensor's name is
// followed by "@rankN". InvalidArgument: the files cannot have equal parts of a weight.
Status use_meta_tensors(graph::Graph& graph, const MetaShares& shares, bool tied_head);

// Whether a file's tensor is not used: angles, which params.json says, and what other files have,
// too.
bool is_meta_extra(std::string_view tensor, size_t file);

}  // namespace nereid::models
