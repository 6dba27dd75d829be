// launch_triton_server: the command line and environment for starting a model repository's server.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/flags/arg_table.h"

namespace nereid::cli {

struct LaunchPlan {
  std::vector<std::string> command;                // the server and its arguments
  std::map<std::string, std::string> environment;  // variables set for it
};

extern const ArgTable kLaunchTable;

// `bin` is the folder of this program: the server in it is the default. InvalidArgument names the
// option; Unimplemented: more than one rank is needed.
StatusOr<LaunchPlan> plan_launch(const Args& args, const std::string& bin);

}  // namespace nereid::cli
