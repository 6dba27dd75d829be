// libcurl, opened when a model is pulled: serving does without it and the libraries that it brings.
#pragma once

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

#include <string>

#include "base/status.h"

namespace nereid::hub {

// The functions in use.
struct Curl {
  decltype(&curl_global_init) global_init;
  decltype(&curl_easy_init) easy_init;
  CURLcode (*easy_setopt)(CURL* handle, CURLoption option, ...);
  CURLcode (*easy_getinfo)(CURL* handle, CURLINFO info, ...);
  decltype(&curl_easy_perform) easy_perform;
  decltype(&curl_easy_reset) easy_reset;
  decltype(&curl_easy_cleanup) easy_cleanup;
  decltype(&curl_easy_strerror) easy_strerror;
  decltype(&curl_slist_append) slist_append;
  decltype(&curl_slist_free_all) slist_free_all;
  decltype(&curl_url) url;
  decltype(&curl_url_set) url_set;
  decltype(&curl_url_get) url_get;
  decltype(&curl_url_cleanup) url_cleanup;
  decltype(&curl_free) free;
};

// Unavailable, with the loader's reason and the package that has it. Loaded once, never unloaded.
StatusOr<const Curl*> load_curl();

// The bundle of certificates where it is not where libcurl looks: bundles run on other systems
// than that of their libraries. "": libcurl's own.
std::string certificates();

}  // namespace nereid::hub
