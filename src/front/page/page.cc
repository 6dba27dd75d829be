#include "front/page/page.h"

#include <openssl/evp.h>
#include <openssl/sha.h>

#include <array>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/check.h"
#include "front/http/compression.h"

namespace nereid::front {
namespace {

constexpr unsigned char kBytes[] = {
#include "page.inc"
};

// SHA-256 in base64.
std::string hash_of(std::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> hash;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), hash.data());
  std::array<unsigned char, 4 * ((SHA256_DIGEST_LENGTH + 2) / 3) + 1> out;
  const int size = EVP_EncodeBlock(out.data(), hash.data(), hash.size());
  return std::string(out.begin(), out.begin() + size);
}

// The content of the page's only element that begins with `open`.
std::string_view content(std::string_view html, std::string_view open, std::string_view close) {
  const size_t begin = html.find(open);
  NEREID_CHECK(begin != html.npos && html.find(open, begin + 1) == html.npos);
  html.remove_prefix(begin + open.size());
  const size_t end = html.find(close);
  NEREID_CHECK(end != html.npos);
  return html.substr(0, end);
}

struct Page {
  std::string html, gzip, policy, hash;

  Page() : html(reinterpret_cast<const char*>(kBytes), sizeof kBytes) {
    gzip = compress(html, Encoding::kGzip, 9);
    hash = hash_of(html);
    policy = fmt::format(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'",
        hash_of(content(html, "<script type=\"module\">", "</script>")),
        hash_of(content(html, "<style>", "</style>")));
  }
};

const Page& page() {
  static const Page page;
  return page;
}

std::string_view header_of(const Request& request, std::string_view name) {
  const std::string* const value = find_header(request.headers, name);
  return value ? std::string_view(*value) : std::string_view();
}

}  // namespace

bool wants_page(const Request& request) {
  return header_of(request, "Accept").find("text/html") != std::string_view::npos;
}

Response page_response(const Request& request) {
  const bool is_gzip = preferred_encoding(header_of(request, "Accept-Encoding")) == Encoding::kGzip;
  const std::string tag = fmt::format("\"{}{}\"", page().hash, is_gzip ? "-gzip" : "");
  Response response;
  response.headers = {{"ETag", tag},
                      {"Cache-Control", "no-cache"},
                      {"Vary", "Accept, Accept-Encoding"},
                      {"Content-Security-Policy", page().policy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"X-Frame-Options", "DENY"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cross-Origin-Resource-Policy", "same-origin"},
                      {"Permissions-Policy", "camera=(), geolocation=(), microphone=()"}};
  if (header_of(request, "If-None-Match").find(tag) != std::string_view::npos) {
    response.status = 304;
    return response;
  }
  if (is_gzip) response.headers.push_back({"Content-Encoding", "gzip"});
  response.content_type = "text/html; charset=utf-8";
  response.body = is_gzip ? page().gzip : page().html;
  return response;
}

}  // namespace nereid::front
