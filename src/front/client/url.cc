#include "front/client/url.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace nereid::front {

StatusOr<Url> parse_url(std::string_view text) {
  const auto bad = [&](std::string_view why) {
    return invalid_argument("URL '{}': {}; allowed is [http[s]://]HOST[:PORT][/PATH]", text, why);
  };
  std::string_view scheme = text.starts_with("https://") ? "https://" : "http://";
  if (text.find("://") == std::string_view::npos) {
    scheme = "";  // "host:port" without scheme, as collectors are often given
  } else if (!text.starts_with(scheme)) {
    return bad("not http");
  }
  const auto is_odd = [](char c) { return c <= ' ' || c == 0x7f; };
  if (std::any_of(text.begin(), text.end(), is_odd)) return bad("space or control character");
  std::string_view rest = text.substr(scheme.size());
  Url url;
  url.is_tls = scheme == "https://";
  if (url.is_tls) url.port = "443";
  const size_t slash = std::min(rest.find_first_of("/?"), rest.size());
  if (slash < rest.size()) url.target = rest.substr(slash);
  if (url.target[0] == '?') url.target.insert(0, "/");
  std::string_view authority = rest.substr(0, slash);
  if (authority.find('@') != std::string_view::npos) return bad("user names are not supported");
  size_t colon = authority.rfind(':');
  if (authority.starts_with('[')) {
    const size_t close = authority.find(']');
    if (close == std::string_view::npos) return bad("missing ']'");
    url.host = authority.substr(1, close - 1);
    colon = close + 1 < authority.size() ? close + 1 : std::string_view::npos;
  } else {
    url.host = authority.substr(0, colon);
  }
  if (colon != std::string_view::npos) {
    const std::string_view port = authority.substr(colon + 1);
    uint16_t number = 0;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
    if (authority[colon] != ':' || error != std::errc() || end != port.data() + port.size() ||
        number == 0) {
      return bad("the port is not in [1, 65535]");
    }
    url.port = port;
  }
  if (url.host.empty()) return bad("no host");
  return url;
}

std::string host_header(const Url& url) {
  const bool is_v6 = url.host.find(':') != std::string::npos;
  const std::string host = is_v6 ? fmt::format("[{}]", url.host) : url.host;
  return url.port == (url.is_tls ? "443" : "80") ? host : fmt::format("{}:{}", host, url.port);
}

}  // namespace nereid::front
