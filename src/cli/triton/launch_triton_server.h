// launch_triton_server: the command line and environment that a model repository is started with.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/flags/arguments.h"

namespace nereid::cli {

struct LaunchPlan {
  std::vector<std::string> command;                // the server and its arguments
  std::map<std::string, std::string> environment;  // variables set for it
};

// The options of the launcher.
std::vector<ArgumentSpec> launch_options();

// `bin` is the folder of this program: the server beside it is the default. InvalidArgument names
// the option; Unimplemented for what needs more than one rank.
StatusOr<LaunchPlan> plan_launch(const ParsedArguments& arguments, const std::string& bin);

}  // namespace nereid::cli
