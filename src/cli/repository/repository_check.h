// nereid check: all faults of a model repository at once.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/repository/text_config.h"

namespace nereid::cli {

struct RepositoryCheck {
  size_t num_models = 0;
  std::vector<Problem> problems;  // by model and line
  // "NAME: 2 ranks ..." of each configuration of a tensorrt_llm model; see process_layout.h.
  std::vector<std::string> layouts;
};

// `backend_dir` is searched for libtriton_*.so. NotFound / InvalidArgument:
// `repository` is no folder.
StatusOr<RepositoryCheck> check_repository(const std::filesystem::path& repository,
                                           const std::filesystem::path& backend_dir);

// "file:line: field: text"
std::string problem_text(const Problem& problem);

}  // namespace nereid::cli
