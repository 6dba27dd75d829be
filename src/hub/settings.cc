// See settings.h.
#include "hub/settings.h"

#include <algorithm>
#include <cstdlib>

#include "base/blanks.h"
#include "base/file.h"
#include "hub/model_name.h"
#include "hub/text.h"

namespace nereid::hub {
namespace {

constexpr size_t kMaxToken = 1024;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

bool is_set(const char* name) {
  const std::string value = lowered(variable(name));
  return value == "1" || value == "on" || value == "yes" || value == "true";
}

std::filesystem::path home_of_hub() {
  if (const std::string home = variable("HF_HOME"); !home.empty()) return home;
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty())
    return std::filesystem::path(cache) / "huggingface";
  if (const std::string home = variable("HOME"); !home.empty())
    return std::filesystem::path(home) / ".cache" / "huggingface";
  return {};
}

// A token stands in a header: anything but visible ASCII could end the line.
Status check_token(std::string_view token, std::string_view source) {
  if (token.size() <= kMaxToken &&
      std::ranges::all_of(token, [](char c) { return c > 0x20 && c < 0x7f; }))
    return ok();
  return invalid_argument("{}: a token has at most {} characters of visible ASCII", source,
                          kMaxToken);
}

Status read_token(const std::filesystem::path& home, HubSettings& settings) {
  if (is_set("HF_HUB_DISABLE_IMPLICIT_TOKEN")) return ok();
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (settings.token = without_blanks(variable(name)); settings.token.empty()) continue;
    settings.token_source = name;
    return check_token(settings.token, name);
  }
  const std::string path = variable("HF_TOKEN_PATH");
  if (path.empty() && home.empty()) return ok();
  const std::filesystem::path file = path.empty() ? home / "token" : std::filesystem::path(path);
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return ok();
  ASSIGN_OR_RETURN(const std::string text, read_file(file, size_t{64} << 10));
  settings.token = without_blanks(text);
  settings.token_source = file.string();
  return check_token(settings.token, file.string());
}

}  // namespace

bool is_endpoint(std::string_view text) {
  const size_t scheme = text.find("://");
  if (scheme == text.npos ||
      (text.substr(0, scheme) != "https" && text.substr(0, scheme) != "http"))
    return false;
  const std::string_view rest = text.substr(scheme + 3);
  return !rest.empty() && rest.front() != '/' && rest.front() != ':' &&
         std::ranges::all_of(rest, [](char c) {
           return c > 0x20 && c < 0x7f &&
                  std::string_view("@?#\\\"<>^`{|}").find(c) == std::string_view::npos;
         });
}

StatusOr<HubSettings> settings_from_environment(const std::filesystem::path& given_cache) {
  HubSettings settings;
  settings.models_dir = (given_cache.empty() ? cache_dir() : given_cache) / "models";
  const std::filesystem::path home = home_of_hub();
  if (!home.empty()) settings.hub_cache = home / "hub";
  for (const char* name : {"HUGGINGFACE_HUB_CACHE", "HF_HUB_CACHE"})
    if (const std::string cache = variable(name); !cache.empty()) settings.hub_cache = cache;
  settings.offline = is_set("HF_HUB_OFFLINE");
  if (const std::string endpoint = variable("HF_ENDPOINT"); !endpoint.empty()) {
    if (!is_endpoint(endpoint))
      return invalid_argument("HF_ENDPOINT: '{}' is not http[s]://HOST[:PORT][/PATH]",
                              quoted_name(endpoint));
    settings.endpoint = endpoint;
    while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  }
  RETURN_IF_ERROR(read_token(home, settings));
  return settings;
}

}  // namespace nereid::hub
