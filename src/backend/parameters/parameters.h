// The parameters that config.pbtxt of our models may have: one table for the backends, which read
// them, for the templates, which name them, and for `nereid check`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace nereid::backend {

enum class ParameterKind {
  kInteger,  // within [low, high]
  kNumber,   // within [low, high]
  kBoolean,  // true, 1, t, y, yes / false, 0, f, n, no; in any case
  kWord,     // one of `words`, which are separated by '|'
  kText,
  kFolder,  // that exists
};

enum class ParameterUse {
  kActs,  // changes what the model does
  // Changes nothing, for the reason in `why_none`; named once at load unless it says `words`.
  // Without a reason it belongs to another model, and is not named.
  kNone,
  kRefused,  // not supported: the load fails unless it is unset or says `words`
};

struct Parameter {
  const char* key;
  const char* placeholder = "";  // of the template; "" = none, an old or additional name
  ParameterKind kind = ParameterKind::kText;
  ParameterUse use = ParameterUse::kActs;
  double low = 0, high = 0;
  const char* words = "";
  bool is_mandatory = false;
  bool zero_is_default = false;  // 0 counts as unset
  const char* why_none = "";
  const char* help = "";  // those of the engine's options are in config/engine_options.cc
};

// The parameters of a model that `backend` ("tensorrtllm", "preprocessing", "postprocessing",
// "tensorrt_llm_bls") runs; empty for others.
std::span<const Parameter> parameters_of(std::string_view backend);

const Parameter* find_parameter(std::string_view backend, std::string_view key);
std::set<std::string> parameter_keys(std::string_view backend);

// "" and an unfilled ${placeholder} count as unset.
bool is_unset(std::string_view value);

// "'multi_block_mode' is 'true': attention kernels choose ..." of the set parameters that change
// nothing, with "; " between them; "" when there are none. `value_of` has the text of a key;
// nullopt and unset values do not count.
std::string without_effect(
    std::string_view backend,
    const std::function<std::optional<std::string>(const char* key)>& value_of);

// OK for an unset value, too. InvalidArgument: "parameter 'K' is 'V', expected ..."; Unimplemented:
// "parameter 'K' is not supported ...". Folders are not looked at.
Status check_parameter(const Parameter& parameter, std::string_view value);

}  // namespace nereid::backend
