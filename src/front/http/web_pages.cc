#include "front/http/web_pages.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>

#include <fmt/ranges.h>

#include "front/http/listen.h"

namespace nereid::front {
namespace {

// Splits "host:port" or "[address]:port"; a port is digits. False: neither.
bool split_port(std::string_view authority, std::string_view& host, std::string_view& port) {
  size_t end = authority.find(':');
  if (authority.starts_with('[')) {
    end = authority.find(']');
    if (end == authority.npos) return false;
    ++end;
  }
  host = authority.substr(0, end);
  port = authority.substr(std::min(host.size(), authority.size()));
  if (port.empty()) return true;
  if (!port.starts_with(':')) return false;
  port.remove_prefix(1);
  return std::ranges::all_of(port, [](char c) { return c >= '0' && c <= '9'; });
}

// An address in its shortest form, or a name in lower case.
std::string plain_name(std::string_view host) {
  const bool has_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (has_brackets) host = host.substr(1, host.size() - 2);
  boost::system::error_code ec;
  const auto address = boost::asio::ip::make_address(std::string(host), ec);
  if (!ec) return has_brackets == address.is_v6() ? address.to_string() : "";
  if (has_brackets) return "";
  if (host.ends_with('.')) host.remove_suffix(1);
  std::string out(host);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    const bool is_plain =
        (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    if (!is_plain) return "";
  }
  return out;
}

bool is_loopback_name(const std::string& host) {
  if (host == "localhost") return true;
  boost::system::error_code ec;
  const auto address = boost::asio::ip::make_address(host, ec);
  return !ec && address.is_loopback();
}

// The authority of an origin "scheme://authority"; "" for other text.
std::string_view authority_of(std::string_view origin) {
  const size_t scheme = origin.find("://");
  return scheme == origin.npos ? "" : origin.substr(scheme + 3);
}

// True for pages of this machine and of the server itself.
bool is_own_origin(std::string_view origin, std::string_view host) {
  const std::string_view authority = authority_of(origin);
  const std::string page = plain_host(authority);
  if (page.empty()) return false;
  if (is_loopback_name(page)) return true;
  std::string_view name, page_port, port;
  if (page != plain_host(host) || !split_port(authority, name, page_port) ||
      !split_port(host, name, port))
    return false;
  // Browsers omit the scheme's default port.
  const std::string_view usual = origin.starts_with("https:") ? "443" : "80";
  return (page_port.empty() ? usual : page_port) == (port.empty() ? usual : port);
}

bool is_foreign(const Request& request, const Cors& cors, std::string_view host) {
  const std::string* const origin = find_header(request.headers, "Origin");
  // Set by the browser; pages cannot change it.
  const std::string* const site = find_header(request.headers, "Sec-Fetch-Site");
  if (origin && (cors.allows(*origin) || is_own_origin(*origin, host))) return false;
  if (site) return *site != "same-origin" && *site != "none";
  return origin != nullptr;
}

}  // namespace

std::string plain_host(std::string_view authority) {
  std::string_view host, port;
  return split_port(authority, host, port) ? plain_name(host) : "";
}

Status AllowedHosts::check_name(const std::string& name) {
  std::string_view host, port;
  if (name == "*") return ok();
  boost::system::error_code ec;
  boost::asio::ip::make_address(name, ec);  // also without brackets
  if (!ec ||
      (split_port(name, host, port) && port.empty() && host == name && !plain_name(host).empty()))
    return ok();
  return invalid_argument(
      "allowed host '{}' is neither * nor the name or address of a host, without scheme and port",
      name.substr(0, 100));
}

StatusOr<AllowedHosts> AllowedHosts::create(const std::string& listens_on,
                                            const std::vector<std::string>& names) {
  AllowedHosts out;
  const bool is_local = is_loopback_host(listens_on);
  out.allows_all_ = !is_local && names.empty();
  std::vector<std::string> shown = {"localhost", "127.0.0.1", "[::1]"};
  const auto add = [&](const std::string& name) {
    boost::system::error_code ec;
    const auto address = boost::asio::ip::make_address(name, ec);
    out.hosts_.push_back(ec ? plain_name(name) : address.to_string());
    shown.push_back(name);
  };
  for (const std::string& name : names) {
    RETURN_IF_ERROR(check_name(name));
    out.allows_all_ = out.allows_all_ || name == "*";
    if (name != "*") add(name);
  }
  if (std::ranges::find(shown, listens_on) == shown.end()) add(listens_on);
  out.text_ = fmt::format("{}", fmt::join(shown, ", "));
  return out;
}

bool AllowedHosts::allows(std::string_view authority) const {
  if (allows_all_) return true;
  const std::string host = plain_host(authority);
  // A name without a dot is never a public one.
  const bool is_single_label = !host.empty() && host.find_first_of(".:") == host.npos;
  return is_single_label || is_loopback_name(host) ||
         (!host.empty() && std::ranges::find(hosts_, host) != hosts_.end());
}

std::string page_refusal(const Request& request, const Cors& cors, const AllowedHosts& hosts,
                         Cost cost) {
  const std::string* const given = find_header(request.headers, "Host");
  const std::string_view host = !request.authority.empty() ? request.authority
                                : given                    ? std::string_view(*given)
                                                           : "";
  // Browsers send Host with every request, so a missing one is allowed.
  if ((given || !request.authority.empty()) && !hosts.allows(host))
    return fmt::format("the host '{}' is not a name of this server: {}; --allowed-host adds others",
                       plain_host(host), hosts.text());
  const bool is_safe =
      request.method == "GET" || request.method == "HEAD" || request.method == "OPTIONS";
  if ((is_safe && cost == Cost::kNothing) || !is_foreign(request, cors, host)) return "";
  const std::string* const origin = find_header(request.headers, "Origin");
  const std::string page = origin ? plain_host(authority_of(*origin)) : "";
  return fmt::format(
      "a web page of another origin{} may not use this server; --http-cors-origin ORIGIN allows it",
      page.empty() ? "" : fmt::format(" (of {})", page));
}

}  // namespace nereid::front
