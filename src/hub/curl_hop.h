// One request of libcurl without redirects, whose answer goes to an object of ours.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>

#include "hub/curl.h"

namespace nereid::hub {

// Sets the URL, what is allowed, and callbacks that call the Hop:
//   Status on_header(std::string_view line); on_body(std::string_view piece);
//   Status on_socket(const sockaddr& address);  // before it is connected
//   bool is_unwanted() const;                   // true ends the transfer
//   Status fault;                               // the error of a call, which ends the transfer
// `hop` must outlive the transfer.
template <class Hop>
void set_hop(const Curl& curl, CURL* handle, const std::string& url, Hop& hop) {
  struct Callbacks {
    static size_t header(char* data, size_t one, size_t count, void* at) {
      auto& hop = *static_cast<Hop*>(at);
      hop.fault = hop.on_header(std::string_view(data, one * count));
      return hop.fault.ok() ? one * count : 0;
    }
    static size_t body(char* data, size_t one, size_t count, void* at) {
      auto& hop = *static_cast<Hop*>(at);
      hop.fault = hop.on_body(std::string_view(data, one * count));
      return hop.fault.ok() ? one * count : 0;
    }
    static int progress(void* at, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
      return static_cast<const Hop*>(at)->is_unwanted() ? 1 : 0;
    }
    static curl_socket_t open_socket(void* at, curlsocktype, curl_sockaddr* to) {
      auto& hop = *static_cast<Hop*>(at);
      hop.fault = hop.on_socket(to->addr);
      return hop.fault.ok() ? ::socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol)
                            : CURL_SOCKET_BAD;
    }
  };
  const auto set = [&](CURLoption option, auto value) { curl.easy_setopt(handle, option, value); };
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &Callbacks::progress);
  set(CURLOPT_XFERINFODATA, &hop);
  set(CURLOPT_OPENSOCKETFUNCTION, &Callbacks::open_socket);
  set(CURLOPT_OPENSOCKETDATA, &hop);
  set(CURLOPT_HEADERFUNCTION, &Callbacks::header);
  set(CURLOPT_HEADERDATA, &hop);
  set(CURLOPT_WRITEFUNCTION, &Callbacks::body);
  set(CURLOPT_WRITEDATA, &hop);
}

}  // namespace nereid::hub
