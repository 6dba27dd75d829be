// trtllm-serve: its command line and its guides' YAML files, translated to words of `nereid serve`.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "cli/flags/arg_table.h"

namespace nereid::cli {

// Flags of `trtllm-serve serve`, and the paths of the YAML file as flags with dots
// ("--kv_cache_config.dtype"); one that both have is one entry.
extern const std::span<const ArgFlag> kServeFlags;

// The command-line words of a YAML document. InvalidArgument: a path that no flag has, with the
// nearest one; `where` begins the message.
StatusOr<std::vector<std::string>> words_of_yaml(const json::value& document,
                                                 const std::string& where);

// The words for `nereid serve`, from the arguments behind trtllm-serve's name. Precedence, lowest
// first: defaults, the file of --config (--extra_llm_api_options), flags, --set PATH=VALUE.
struct ServePlan {
  std::vector<std::string> words;
  std::vector<std::string> ignored;  // given flags without effect
  std::string host;                  // as given
  bool wants_help = false;
};
// InvalidArgument, Unimplemented: name the flag or the file's path, its value and what is allowed.
StatusOr<ServePlan> plan_trtllm_serve(const std::vector<std::string>& arguments);

}  // namespace nereid::cli
