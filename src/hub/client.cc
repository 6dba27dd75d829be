// See client.h.
#include "hub/client.h"

#include <sys/socket.h>

#include <cstdlib>

#include "base/blanks.h"
#include "hub/curl_hop.h"
#include "hub/model_name.h"
#include "hub/text.h"

namespace nereid::hub {
namespace {

constexpr int kMaxRedirects = 8;
constexpr long kLeastBytesPerSecond = 1000;  // over HubSettings::stall
constexpr size_t kMaxHeaderBytes = size_t{64} << 10;
constexpr size_t kMaxErrorBody = size_t{4} << 10;
constexpr int64_t kMaxDroppedBody = int64_t{1} << 20;

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// The first byte of "bytes 100-199/200"; nullopt for other text.
std::optional<int64_t> range_begin(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  if (!text.starts_with(kUnit)) return std::nullopt;
  text.remove_prefix(kUnit.size());
  return number_in(text.substr(0, text.find('-')));
}

}  // namespace

// One request and its answer, for the callbacks of libcurl.
struct Client::Hop {
  const Request& request;
  Shared& shared;
  const bool is_endpoint;  // the URL is of the hub itself
  const bool checks_address;
  Reply reply = {};
  size_t header_bytes = 0;
  int64_t body_bytes = 0;
  bool has_begun = false;
  std::string location = {}, etag = {}, linked_etag = {}, content_range = {};
  std::optional<int64_t> linked_size = {}, content_length = {};
  Status fault = {};  // why a callback ended the request

  bool is_content() const { return reply.status == 200 || reply.status == 206; }
  Status on_header(std::string_view line);
  Status on_body(std::string_view piece);
  Status on_socket(const sockaddr& address);
  Status begin();
  bool is_unwanted() const { return shared.is_cancelled || shared.has_failed; }
};

// An empty line ends the headers; a status line begins those of another answer (after "100
// Continue", or of a proxy).
Status Client::Hop::on_header(std::string_view line) {
  header_bytes += line.size();
  if (header_bytes > kMaxHeaderBytes)
    return invalid_argument("the hub sends headers of more than {} bytes; refused",
                            kMaxHeaderBytes);
  if (line.starts_with("HTTP/")) {
    const size_t blank = line.find(' ');
    reply.status =
        blank == line.npos ? 0 : static_cast<int>(number_in(line.substr(blank + 1, 3)).value_or(0));
    return ok();
  }
  const size_t colon = line.find(':');
  if (colon == line.npos) return ok();
  const std::string name = lowered(line.substr(0, colon));
  const std::string value(without_blanks(line.substr(colon + 1)));
  for (const auto& [known, to] : {std::pair{"location", &location},
                                  {"etag", &etag},
                                  {"x-linked-etag", &linked_etag},
                                  {"content-range", &content_range},
                                  {"x-error-code", &reply.error_code},
                                  {"retry-after", &reply.retry_after},
                                  {"x-repo-commit", &reply.commit}})
    if (name == known) *to = value;
  if (name == "x-linked-size") linked_size = number_in(value);
  if (name == "content-length") content_length = number_in(value);
  return ok();
}

Status Client::Hop::begin() {
  has_begun = true;
  if (!is_content() || !request.on_begin) return ok();
  return request.on_begin(reply.status, reply.status == 206 ? range_begin(content_range) : 0,
                          content_length);
}

Status Client::Hop::on_body(std::string_view piece) {
  if (!has_begun) RETURN_IF_ERROR(begin());
  if (is_content() && request.on_body) return request.on_body(piece);
  body_bytes += static_cast<int64_t>(piece.size());
  if (is_content() && body_bytes > request.max_body)
    return invalid_argument("the hub's answer has more than {} bytes; refused", request.max_body);
  if (!is_content() && body_bytes > kMaxDroppedBody)
    return invalid_argument("the hub's error page has more than {} bytes; refused",
                            kMaxDroppedBody);
  if (is_content() || reply.body.size() + piece.size() <= kMaxErrorBody) reply.body += piece;
  return ok();
}

Status Client::Hop::on_socket(const sockaddr& address) {
  if (!checks_address) return ok();  // a proxy's
  const Reach reach = reach_of(address);
  if (is_endpoint) {
    shared.endpoint_reach = reach;
  } else if (reach > shared.endpoint_reach.load()) {
    return invalid_argument("the hub redirects to a {} address, while its own is {}; refused",
                            name_of(reach), name_of(shared.endpoint_reach));
  }
  return ok();
}

Client::Client(const Curl& curl, Shared& shared)
    : curl_(curl), urls_(curl), shared_(shared), handle_(curl.easy_init()) {
  if (has_proxy())  // which resolves names, so that no connection shows where the hub is
    shared.endpoint_reach = plain_reach(shared.settings.endpoint).value_or(Reach::kPublic);
}

Client::~Client() {
  if (handle_) curl_.easy_cleanup(handle_);
}

// The reach of a host that needs no resolving.
std::optional<Reach> Client::plain_reach(const std::string& url) const {
  const std::string host = urls_.host_of(url).value_or("");
  if (host == "localhost" || host.ends_with(".localhost")) return Reach::kLoopback;
  return reach_of_literal(host);
}

// Refuses hosts written as addresses that are nearer than the hub's; what a name stands for is
// checked when it is connected.
Status Client::check_host(const std::string& url) const {
  const std::optional<Reach> reach = plain_reach(url);
  if (!reach || *reach <= shared_.endpoint_reach.load()) return ok();
  return invalid_argument("the hub redirects to {}, a {} address, while its own is {}; refused",
                          quoted_name(urls_.host_of(url).value_or("")), name_of(*reach),
                          name_of(shared_.endpoint_reach));
}

// A token is shown to the hub alone, and on the network only in TLS.
bool Client::may_send_token(const std::string& url) const {
  if (shared_.settings.token.empty()) return false;
  const auto origin = urls_.origin_of(url), own = urls_.origin_of(shared_.settings.endpoint);
  if (!origin.ok() || !own.ok() || *origin != *own) return false;
  if (origin->starts_with("https://")) return true;
  return plain_reach(url) == Reach::kLoopback;
}

Status Client::perform(const Request& request, const std::string& url, Hop& hop) {
  if (!handle_) return internal_error("curl_easy_init fails");
  const auto set = [&](CURLoption option, auto value) {
    curl_.easy_setopt(handle_, option, value);
  };
  curl_.easy_reset(handle_);
  set_hop(curl_, handle_, url, hop);
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(CURLOPT_CONNECTTIMEOUT, 20L);
  set(CURLOPT_LOW_SPEED_LIMIT, kLeastBytesPerSecond);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(shared_.settings.stall.count()));
  set(CURLOPT_USERAGENT, shared_.settings.user_agent.c_str());
  set(CURLOPT_BUFFERSIZE, 256L << 10);
  const std::string authorities = certificates();
  if (!authorities.empty()) set(CURLOPT_CAINFO, authorities.c_str());
  if (request.head) set(CURLOPT_NOBODY, 1L);
  if (request.from > 0) set(CURLOPT_RANGE, fmt::format("{}-", request.from).c_str());
  curl_slist* headers = curl_.slist_append(nullptr, "Accept-Encoding: identity");
  if (may_send_token(url))
    headers = curl_.slist_append(
        headers, fmt::format("Authorization: Bearer {}", shared_.settings.token).c_str());
  set(CURLOPT_HTTPHEADER, headers);

  const CURLcode code = curl_.easy_perform(handle_);
  curl_.slist_free_all(headers);
  if (!hop.fault.ok()) return hop.fault;
  if (hop.is_unwanted()) return cancelled("stopped");
  if (code == CURLE_OK) return hop.has_begun ? ok() : hop.begin();
  const std::string where = urls_.origin_of(url).value_or(url);
  const char* const why = curl_.easy_strerror(code);
  if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
    return invalid_argument("{}: {} (certificates: {})", where, why,
                            authorities.empty()
                                ? "none here; install ca-certificates, or set SSL_CERT_FILE"
                                : authorities);
  if (code == CURLE_OPERATION_TIMEDOUT) return deadline_exceeded("{}: {}", where, why);
  return unavailable("{}: {}", where, why);
}

StatusOr<Reply> Client::send(const Request& request) {
  ASSIGN_OR_RETURN(const std::string own, urls_.origin_of(shared_.settings.endpoint));
  Reply of_hub;
  std::string url = request.url;
  for (int redirects = 0;; ++redirects) {
    ASSIGN_OR_RETURN(const std::string origin, urls_.origin_of(url));
    const bool is_endpoint = origin == own;
    if (!is_endpoint) RETURN_IF_ERROR(check_host(url));
    Hop hop{request, shared_, is_endpoint, !has_proxy()};
    RETURN_IF_ERROR(perform(request, url, hop));
    if (is_endpoint) {
      // Facts about the file are the hub's, not those of the server that has the bytes.
      if (!of_hub.checksum) of_hub.checksum = parse_checksum(hop.linked_etag);
      if (!of_hub.size) of_hub.size = hop.linked_size;
      if (of_hub.commit.empty()) of_hub.commit = hop.reply.commit;
      if (hop.is_content()) {
        if (!of_hub.checksum) of_hub.checksum = parse_checksum(hop.etag);
        if (!of_hub.size) of_hub.size = hop.content_length;
      }
    }
    const bool is_over =
        !is_redirect(hop.reply.status) || (request.head && of_hub.checksum && of_hub.size);
    if (is_over) {
      hop.reply.checksum = of_hub.checksum;
      hop.reply.size = of_hub.size;
      hop.reply.commit = of_hub.commit;
      if (request.head && is_redirect(hop.reply.status)) hop.reply.status = 200;
      return std::move(hop.reply);
    }
    if (redirects == kMaxRedirects)
      return invalid_argument("{}: more than {} redirects; refused", own, kMaxRedirects);
    ASSIGN_OR_RETURN(url, urls_.redirected(url, hop.location));
  }
}

bool has_proxy() {
  for (const char* name : {"https_proxy", "HTTPS_PROXY", "http_proxy", "all_proxy", "ALL_PROXY"})
    if (const char* value = std::getenv(name); value && *value) return true;
  return false;
}

}  // namespace nereid::hub
