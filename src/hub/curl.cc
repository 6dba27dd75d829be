// See curl.h.
#include "hub/curl.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace nereid::hub {
namespace {

template <class Function>
bool find(void* library, const char* name, Function& to) {
  to = reinterpret_cast<Function>(dlsym(library, name));
  return to != nullptr;
}

StatusOr<Curl> open_curl() {
  std::string tried;
  for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4"}) {
    void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      const char* const reason = dlerror();
      tried += fmt::format("{}{}", tried.empty() ? "" : "; ", reason ? reason : name);
      continue;
    }
    Curl curl{};
    if (find(library, "curl_global_init", curl.global_init) &&
        find(library, "curl_easy_init", curl.easy_init) &&
        find(library, "curl_easy_setopt", curl.easy_setopt) &&
        find(library, "curl_easy_getinfo", curl.easy_getinfo) &&
        find(library, "curl_easy_perform", curl.easy_perform) &&
        find(library, "curl_easy_reset", curl.easy_reset) &&
        find(library, "curl_easy_cleanup", curl.easy_cleanup) &&
        find(library, "curl_easy_strerror", curl.easy_strerror) &&
        find(library, "curl_slist_append", curl.slist_append) &&
        find(library, "curl_slist_free_all", curl.slist_free_all) &&
        find(library, "curl_url", curl.url) && find(library, "curl_url_set", curl.url_set) &&
        find(library, "curl_url_get", curl.url_get) &&
        find(library, "curl_url_cleanup", curl.url_cleanup) &&
        find(library, "curl_free", curl.free) && curl.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK)
      return curl;
    tried += fmt::format("{}{} is too old", tried.empty() ? "" : "; ", name);
    dlclose(library);
  }
  return unavailable(
      "downloads are made by libcurl, which this machine lacks ({}); install it (Debian, Ubuntu: "
      "apt-get install libcurl4), or give the file or folder itself",
      tried);
}

}  // namespace

StatusOr<const Curl*> load_curl() {
  static const auto* const kCurl = new StatusOr<Curl>(open_curl());
  if (!kCurl->ok()) return kCurl->status();
  return &**kCurl;
}

std::string certificates() {
  for (const char* name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"})
    if (const char* value = std::getenv(name); value && *value) return value;
  std::error_code error;
  for (const char* path : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"})
    if (std::filesystem::exists(path, error)) return path;
  return "";
}

}  // namespace nereid::hub
