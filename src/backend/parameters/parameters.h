// The parameters in config.pbtxt of our models: one table for the backends that read them, the
// templates that name them, and `nereid check`.
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
  kBoolean,  // true, 1, t, y, yes / false, 0, f, n, no; case ignored
  kWord,     // one of `words`, separated by '|'
  kText,
  kFolder,  // an existing folder
};

enum class ParameterUse {
  kActs,  // changes the model's behaviour
  // Has no effect, for the reason in `why_none`; the load warns of it once unless the value is in
  // `words`. Without a reason it belongs to another model and there is no warning.
  kNone,
  kRefused,  // not supported: the load fails unless it is unset or in `words`
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
  const char* help = "";  // help of the engine's options: config/engine_options.cc
};

// The parameters of the models that `backend` ("tensorrtllm", "preprocessing", "postprocessing",
// "tensorrt_llm_bls", "multimodal_encoders", "whisper_bls") runs; empty for other backends.
std::span<const Parameter> parameters_of(std::string_view backend);

const Parameter* find_parameter(std::string_view backend, std::string_view key);
std::set<std::string> parameter_keys(std::string_view backend);

// True for "" and an unfilled ${placeholder}.
bool is_unset(std::string_view value);

// "'multi_block_mode' is 'true': attention kernels choose ..." of the set parameters that change
// nothing, with "; " between them; "" when there are none. `value_of` has the text of a key;
// nullopt and unset values do not count.
std::string without_effect(
    std::string_view backend,
    const std::function<std::optional<std::string>(const char* key)>& value_of);

// OK also for an unset value. InvalidArgument: "parameter 'K' is 'V', expected ..."; Unimplemented:
// "parameter 'K' is not supported ...". Folders are not checked for existence.
Status check_parameter(const Parameter& parameter, std::string_view value);

}  // namespace nereid::backend
