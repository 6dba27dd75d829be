// Requests by libcurl; see media_fetch.h.
#include "front/media/media_fetch.h"

#include <arpa/inet.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "hub/client.h"
#include "hub/curl_hop.h"
#include "hub/text.h"
#include "hub/urls.h"

namespace nereid::front {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxUrlBytes = 8 << 10;
constexpr size_t kMaxHeaderBytes = 64 << 10;

struct Target {
  std::string scheme, host, port;  // host without brackets
  std::string name() const { return host + ":" + port; }
};

// The parts of a URL, as libcurl reads it.
StatusOr<Target> target_of(const hub::Curl& curl, const std::string& url) {
  const std::unique_ptr<CURLU, decltype(curl.url_cleanup)> parsed(curl.url(), curl.url_cleanup);
  if (!parsed || curl.url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK)
    return invalid_argument("the URL cannot be read, or its scheme is neither https nor http");
  const auto part = [&](CURLUPart which, unsigned flags = 0) {
    char* text = nullptr;
    std::string out;
    if (curl.url_get(parsed.get(), which, &text, flags) == CURLUE_OK && text) out = text;
    curl.free(text);
    return out;
  };
  Target out{part(CURLUPART_SCHEME), hub::lowered(part(CURLUPART_HOST)),
             part(CURLUPART_PORT, CURLU_DEFAULT_PORT)};
  if (out.scheme != "https" && out.scheme != "http")
    return invalid_argument("the URL's scheme is '{}'; allowed are https, http and data",
                            out.scheme.substr(0, 20));
  if (!part(CURLUPART_USER).empty() || !part(CURLUPART_PASSWORD).empty())
    return invalid_argument("the URL has a user's name or password");
  if (out.host.ends_with('.')) out.host.pop_back();
  if (out.host.size() > 2 && out.host.front() == '[' && out.host.back() == ']')
    out.host = out.host.substr(1, out.host.size() - 2);
  return out;
}

Status check_allowed(const std::vector<std::string>& domains, const Target& target) {
  const bool is_usual = target.port == (target.scheme == "https" ? "443" : "80");
  const auto has = [&](const std::string& name) {
    return std::ranges::find(domains, name) != domains.end();
  };
  if ((is_usual && has(target.host)) || has(target.name())) return ok();
  return invalid_argument(
      "this server does not fetch from '{}': send the file itself as a data URL, or start the "
      "server with --allow-media-domain {}",
      is_usual ? target.host : target.name(), is_usual ? target.host : target.name());
}

StatusOr<hub::Reach> reach_of_address(const std::string& address) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST;
  if (::getaddrinfo(address.c_str(), nullptr, &hints, &found) != 0)
    return invalid_argument("'{}' is no address", address);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> held(found, ::freeaddrinfo);
  return hub::reach_of(*found->ai_addr);
}

// One hop: a request and its answer.
struct Hop {
  const FetchOptions& options;
  const hub::Reach farthest;
  const MediaLimits& limits;
  std::string body = {}, location = {};
  size_t header_bytes = 0;
  Status fault = {};  // why a callback ended the transfer

  Status on_header(std::string_view line) {
    constexpr std::string_view kLocation = "location:";
    if (header_bytes += line.size(); header_bytes > kMaxHeaderBytes)
      return invalid_argument("the answer's headers have more than {} bytes", kMaxHeaderBytes);
    if (hub::lowered(line.substr(0, kLocation.size())) == kLocation) {
      line.remove_prefix(kLocation.size());
      while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
      while (!line.empty() && static_cast<unsigned char>(line.back()) <= ' ') line.remove_suffix(1);
      location = line;
    }
    return ok();
  }
  Status on_body(std::string_view piece) {
    const size_t size = body.size() + piece.size();
    if (size > limits.max_bytes)
      return invalid_argument("the file has more than the {} bytes that are allowed",
                              limits.max_bytes);
    if (size > body.capacity()) {
      const size_t larger = std::max(size, 2 * body.capacity());
      if (options.hold) RETURN_IF_ERROR(options.hold(body.capacity() + larger));
      body.reserve(larger);
    }
    body += piece;
    return ok();
  }
  // The last check: the address that is about to be connected.
  Status on_socket(const sockaddr& address) const {
    const hub::Reach reach = hub::reach_of(address);
    if (reach <= farthest) return ok();
    return invalid_argument("the host has a {} address", hub::name_of(reach));
  }

  bool is_unwanted() const { return options.is_unwanted && options.is_unwanted(); }
};

// "host:port:address,address", for CURLOPT_RESOLVE.
std::string pinned(const Target& target, const std::vector<std::string>& addresses) {
  std::string list;
  for (const std::string& address : addresses) {
    const bool is_v6 = address.find(':') != std::string::npos;
    list += fmt::format("{}{}", list.empty() ? "" : ",", is_v6 ? "[" + address + "]" : address);
  }
  return fmt::format("{}:{}:{}", target.host, target.port, list);
}

// Sends the request of a hop; the answer's status.
StatusOr<long> perform(const hub::Curl& curl, const std::string& url, const std::string& resolved,
                       Clock::duration left, Hop& hop) {
  const std::unique_ptr<CURL, decltype(curl.easy_cleanup)> handle(curl.easy_init(),
                                                                  curl.easy_cleanup);
  if (!handle) return internal_error("curl_easy_init fails");
  const auto set = [&](CURLoption option, auto value) {
    curl.easy_setopt(handle.get(), option, value);
  };
  const std::unique_ptr<curl_slist, decltype(curl.slist_free_all)> hosts(
      curl.slist_append(nullptr, resolved.c_str()), curl.slist_free_all);
  const std::string authorities = hub::certificates();
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(left).count();
  hub::set_hop(curl, handle.get(), url, hop);
  set(CURLOPT_PROXY, "");
  set(CURLOPT_RESOLVE, hosts.get());
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(std::max<int64_t>(milliseconds, 1)));
  set(CURLOPT_USERAGENT, "nereid");
  if (!authorities.empty()) set(CURLOPT_CAINFO, authorities.c_str());
  const CURLcode code = curl.easy_perform(handle.get());
  if (!hop.fault.ok()) return hop.fault;
  if (code == CURLE_ABORTED_BY_CALLBACK) return cancelled("nobody waits for it");
  if (code != CURLE_OK)
    return invalid_argument("the file cannot be fetched: {}", curl.easy_strerror(code));
  long status = 0;
  curl.easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &status);
  return status;
}

bool is_redirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

}  // namespace

StatusOr<std::vector<std::string>> resolve_by_system(const std::string& host) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0)
    return invalid_argument("the host '{}' cannot be resolved: {}", host, ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> held(found, ::freeaddrinfo);
  std::vector<std::string> out;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    char text[NI_MAXHOST];
    if (::getnameinfo(at->ai_addr, at->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) ==
        0)
      out.emplace_back(text);
  }
  return out;
}

MediaFetcher::MediaFetcher(std::vector<std::string> domains, Resolve resolve, hub::Reach farthest,
                           MediaLimits limits)
    : domains_([&] {
        for (std::string& domain : domains) domain = hub::lowered(domain);
        return std::move(domains);
      }()),
      resolve_(std::move(resolve)),
      farthest_(farthest),
      limits_(limits) {}

StatusOr<std::string> MediaFetcher::fetch(const std::string& first,
                                          const FetchOptions& options) const {
  if (domains_.empty())
    return invalid_argument(
        "this server fetches no URLs: send the file itself as a data URL, or start the server with "
        "--allow-media-domain DOMAIN");
  if (first.size() > kMaxUrlBytes)
    return invalid_argument("the URL has {} bytes; allowed are {}", first.size(), kMaxUrlBytes);
  ASSIGN_OR_RETURN(const hub::Curl* const curl, hub::load_curl());
  const auto deadline = Clock::now() + std::chrono::seconds(limits_.max_seconds);
  std::string url = first;
  for (int redirects = 0;; ++redirects) {
    ASSIGN_OR_RETURN(const Target target, target_of(*curl, url));
    RETURN_IF_ERROR(check_allowed(domains_, target));
    ASSIGN_OR_RETURN(const auto addresses, resolve_(target.host));
    if (addresses.empty()) return invalid_argument("the host '{}' has no address", target.host);
    for (const std::string& address : addresses) {
      ASSIGN_OR_RETURN(const hub::Reach reach, reach_of_address(address));
      if (reach > farthest_)
        return invalid_argument("the host '{}' has a {} address, which is not fetched from",
                                target.host, hub::name_of(reach));
    }
    Hop hop{options, farthest_, limits_};
    ASSIGN_OR_RETURN(const long status,
                     perform(*curl, url, pinned(target, addresses), deadline - Clock::now(), hop));
    if (status == 200) return std::move(hop.body);
    if (!is_redirect(status))
      return invalid_argument("the host '{}' answers with status {}", target.host, status);
    if (redirects == limits_.max_redirects)
      return invalid_argument("the URL leads to more than {} redirects", limits_.max_redirects);
    ASSIGN_OR_RETURN(url, hub::Urls(*curl).redirected(url, hop.location));
  }
}

Status check_media_domain(const std::string& domain) {
  const size_t colon = domain.find(':');
  const std::string host = domain.substr(0, colon);
  const bool is_host = !host.empty() && std::ranges::all_of(host, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
  });
  const std::string port = colon == std::string::npos ? "443" : domain.substr(colon + 1);
  const bool is_port =
      !port.empty() && port.size() <= 5 &&
      std::ranges::all_of(port, [](unsigned char c) { return std::isdigit(c) != 0; });
  if (is_host && is_port) return ok();
  return invalid_argument(
      "'{}' is no domain: expected a host name, with a port behind a colon where "
      "it is not the usual one",
      domain);
}

}  // namespace nereid::front
