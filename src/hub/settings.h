// Where models come from and where they are kept: the environment variables of the Hugging Face
// hub's own tools, and nereid's cache folder.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/status.h"

namespace nereid::hub {

struct HubSettings {
  std::string endpoint = "https://huggingface.co";  // no '/' at its end
  std::string token;                                // empty: none
  std::string token_source;                         // the variable or file, for errors
  bool offline = false;                             // no request is sent
  std::filesystem::path models_dir;                 // of models that were pulled
  std::filesystem::path hub_cache;                  // of the hub's own tools; is only read
  std::string user_agent = "nereid";

  int files_at_once = 4;
  int attempts = 5;  // of a request that brings nothing, the first included
  std::chrono::milliseconds first_wait{500};  // doubles with each attempt
  std::chrono::seconds longest_wait{120};     // a hub that asks for more ends the pull
  std::chrono::seconds stall{60};  // less than 1 kB/s for so long: the connection is given up
};

// Reads HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE,
// HF_HUB_DISABLE_IMPLICIT_TOKEN and those of base's cache_dir(). `cache_dir`: in place of the
// latter; empty: not given. InvalidArgument names the variable.
StatusOr<HubSettings> settings_from_environment(const std::filesystem::path& cache_dir = {});

// Whether `text` is http[s]://HOST[:PORT][/PATH] without user, query and fragment.
bool is_endpoint(std::string_view text);

}  // namespace nereid::hub
