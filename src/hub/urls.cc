// See urls.h.
#include "hub/urls.h"

#include <memory>
#include <optional>

#include "hub/model_name.h"
#include "hub/text.h"

namespace nereid::hub {
namespace {

class ParsedUrl {
 public:
  explicit ParsedUrl(const Curl& curl) : curl_(curl), url_(curl.url(), curl.url_cleanup) {}

  // A relative text is resolved against the URL that is set already.
  bool set(const std::string& text) {
    return url_ && curl_.url_set(url_.get(), CURLUPART_URL, text.c_str(),
                                 CURLU_NON_SUPPORT_SCHEME) == CURLUE_OK;
  }
  std::optional<std::string> get(CURLUPart part) {
    char* text = nullptr;
    const unsigned int flags = part == CURLUPART_PORT ? CURLU_DEFAULT_PORT : 0;
    if (curl_.url_get(url_.get(), part, &text, flags) != CURLUE_OK) return std::nullopt;
    std::string out = text;
    curl_.free(text);
    return out;
  }

 private:
  const Curl& curl_;
  std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> url_;
};

}  // namespace

StatusOr<std::string> Urls::part_of(const std::string& url, CURLUPart part) const {
  ParsedUrl parsed(curl_);
  if (parsed.set(url))
    if (auto text = parsed.get(part)) return *std::move(text);
  return invalid_argument("'{}' is no URL of a server", quoted_name(url));
}

StatusOr<std::string> Urls::host_of(const std::string& url) const {
  ASSIGN_OR_RETURN(const std::string host, part_of(url, CURLUPART_HOST));
  return lowered(host);
}

StatusOr<std::string> Urls::origin_of(const std::string& url) const {
  ASSIGN_OR_RETURN(const std::string scheme, part_of(url, CURLUPART_SCHEME));
  ASSIGN_OR_RETURN(const std::string host, host_of(url));
  ASSIGN_OR_RETURN(const std::string port, part_of(url, CURLUPART_PORT));
  return fmt::format("{}://{}:{}", lowered(scheme), host, port);
}

StatusOr<std::string> Urls::redirected(const std::string& from, const std::string& location) const {
  const auto refused = [&](std::string_view why) {
    return invalid_argument("{} redirects to '{}', {}; refused", origin_of(from).value_or(from),
                            quoted_name(location), why);
  };
  ParsedUrl url(curl_);
  if (location.empty() || !url.set(from)) return refused("which is no URL");
  const bool was_tls = url.get(CURLUPART_SCHEME) == "https";
  if (!url.set(location)) return refused("which is no URL");
  const std::string scheme = lowered(url.get(CURLUPART_SCHEME).value_or(""));
  if (scheme != "https" && scheme != "http") return refused("which is neither https nor http");
  if (was_tls && scheme == "http") return refused("from https to http");
  if (url.get(CURLUPART_USER)) return refused("with the name of a user");
  if (!url.get(CURLUPART_HOST)) return refused("without a host");
  auto next = url.get(CURLUPART_URL);
  if (!next) return refused("which is no URL");
  return *std::move(next);
}

}  // namespace nereid::hub
