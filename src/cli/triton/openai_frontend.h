// Triton's OpenAI front end (openai_frontend/main.py) in terms of tritonserver's options.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cli/triton/triton_flags.h"

namespace nereid::cli {

struct FrontendPlan {
  bool wants_help = false;
  std::vector<std::string> ignored;  // flags without effect
  TritonOptions options;
};

// `arguments` exclude the program's name. InvalidArgument: a wrong command line; Unimplemented: an
// unsupported value, by name.
StatusOr<FrontendPlan> plan_openai_frontend(const std::vector<std::string>& arguments);

}  // namespace nereid::cli
