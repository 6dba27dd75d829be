// Fetched files, and URLs that are refused before a connection.
#include "front/media/media_fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>

#include "base/testing/loopback_listener.h"

namespace nereid::front {
namespace {

using ::testing::HasSubstr;

// Answers each path with a text, one connection after the other.
class SmallServer {
 public:
  explicit SmallServer(std::map<std::string, std::string> answers) : answers_(std::move(answers)) {
    thread_ = std::thread([this] { run(); });
  }
  ~SmallServer() {
    listener_.shut_down();
    thread_.join();
  }
  int port() const { return listener_.port(); }
  int num_requests() const { return num_requests_; }

 private:
  void run() {
    for (;;) {
      const int client = listener_.accept();
      if (client < 0) return;
      ++num_requests_;
      std::string request;
      char bytes[1024];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t got = ::recv(client, bytes, sizeof bytes, 0);
        if (got <= 0) break;
        request.append(bytes, static_cast<size_t>(got));
      }
      const size_t begin = request.find(' ') + 1;
      const auto found = answers_.find(request.substr(begin, request.find(' ', begin) - begin));
      const std::string answer = found == answers_.end()
                                     ? "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
                                     : found->second;
      size_t sent = 0;
      while (sent < answer.size()) {
        const ssize_t count =
            ::send(client, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
        if (count <= 0) break;
        sent += static_cast<size_t>(count);
      }
      ::close(client);
    }
  }

  const std::map<std::string, std::string> answers_;
  const LoopbackListener listener_;
  std::atomic<int> num_requests_ = 0;
  std::thread thread_;
};

std::string with_body(std::string_view body) {
  return fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
}
std::string redirect(std::string_view to) {
  return fmt::format("HTTP/1.1 302 Found\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n", to);
}

// A resolver from a table.
Resolve table(std::map<std::string, std::vector<std::string>> hosts) {
  return [hosts = std::move(hosts)](const std::string& host) -> StatusOr<std::vector<std::string>> {
    const auto found = hosts.find(host);
    if (found == hosts.end()) return invalid_argument("'{}' is not in the table", host);
    return found->second;
  };
}

std::string error_of(const StatusOr<std::string>& reply) {
  EXPECT_FALSE(reply.ok());
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kInvalidArgument) << reply.status();
  return std::string(message(reply.status()));
}

// Addresses that only this machine or its networks can reach, in every form that a resolver gives.
TEST(MediaFetch, OnlyPublicAddressesAreAsked) {
  constexpr const char* kNotPublic[] = {"127.0.0.1",
                                        "127.8.9.1",
                                        "0.0.0.0",
                                        "10.1.2.3",
                                        "172.16.0.1",
                                        "172.31.255.255",
                                        "192.168.1.1",
                                        "169.254.169.254",
                                        "100.64.0.1",
                                        "192.0.0.8",
                                        "198.18.0.1",
                                        "224.0.0.1",
                                        "255.255.255.255",
                                        "::1",
                                        "::",
                                        "fe80::1",
                                        "fc00::1",
                                        "fd12:3456::1",
                                        "ff02::1",
                                        "fec0::1",
                                        "::ffff:127.0.0.1",
                                        "::ffff:10.0.0.1",
                                        "::127.0.0.1",
                                        "64:ff9b::7f00:1",
                                        "2002:7f00:1::1"};
  for (const char* address : kNotPublic) {
    const MediaFetcher one({"pictures.test"}, table({{"pictures.test", {address}}}));
    EXPECT_THAT(error_of(one.fetch("https://pictures.test/a.png")),
                HasSubstr("address, which is not fetched from"))
        << address;
    // Every address of the host is checked, not only the first one.
    const MediaFetcher two({"pictures.test"},
                           table({{"pictures.test", {"93.184.216.34", address}}}));
    EXPECT_THAT(error_of(two.fetch("http://pictures.test/a.png")),
                HasSubstr("address, which is not fetched from"))
        << address;
  }
}

// Hosts that are written as addresses; each is allowed by name here.
TEST(MediaFetch, NumbersForAddressesAreRead) {
  for (const char* url : {"http://2130706433/", "http://0177.0.0.1/", "http://0x7f.1/",
                          "http://127.1/", "http://127.0.0.1/"}) {
    const MediaFetcher fetcher({"127.0.0.1", "2130706433", "0177.0.0.1", "0x7f.1", "127.1"});
    EXPECT_THAT(error_of(fetcher.fetch(url)), HasSubstr("loopback address")) << url;
  }
  const MediaFetcher fetcher({"pictures.test"});
  for (const char* url : {"http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://[fe80::1%25lo]/",
                          "http://0x7f000001/"})
    EXPECT_THAT(error_of(fetcher.fetch(url)), HasSubstr("does not fetch from")) << url;
}

TEST(MediaFetch, OtherUrlsAreRefused) {
  const MediaFetcher fetcher(
      {"pictures.test", "odd.test:8443"},
      table({{"pictures.test", {"127.0.0.1"}}, {"odd.test", {"127.0.0.1"}}}));
  const std::pair<std::string, const char*> cases[] = {
      {"file:///etc/passwd", "scheme"},
      {"ftp://pictures.test/a", "scheme"},
      {"gopher://pictures.test/a", "scheme"},
      {"https://user:word@pictures.test/", "user's name"},
      {"https://pictures.test@evil.test/", "user's name"},
      {"https://evil.test/", "does not fetch from 'evil.test'"},
      {"https://pictures.test.evil.test/", "does not fetch from"},
      {"https://sub.pictures.test/", "does not fetch from"},
      {"https://pictures.test:22/", "does not fetch from 'pictures.test:22'"},
      {"https://odd.test/", "does not fetch from 'odd.test'"},
      {"not a url", "cannot be read"},
      {"", "cannot be read"},
      {"https://pictures.test/" + std::string(10000, 'a'), "allowed are 8192"},
  };
  for (const auto& [url, part] : cases)
    EXPECT_THAT(error_of(fetcher.fetch(url)), HasSubstr(part)) << url;
  EXPECT_THAT(error_of(fetcher.fetch("https://odd.test:8443/")), HasSubstr("loopback"));
  EXPECT_THAT(error_of(fetcher.fetch("HTTPS://PICTURES.test./")), HasSubstr("loopback"));
  EXPECT_THAT(error_of(MediaFetcher({}).fetch("https://pictures.test/")),
              HasSubstr("this server fetches no URLs"));
}

class LocalFetch : public ::testing::Test {
 protected:
  // A fetcher that may ask this machine, as pictures.test and with the server's port.
  MediaFetcher fetcher(MediaLimits limits = {}) const {
    return MediaFetcher({host()}, table({{"pictures.test", {"127.0.0.1"}}}), hub::Reach::kLoopback,
                        limits);
  }
  std::string host() const { return fmt::format("pictures.test:{}", server_.port()); }
  std::string url(std::string_view path) const { return fmt::format("http://{}{}", host(), path); }
  const std::string large_ = std::string(100000, 'x');
  SmallServer server_{{{"/a", with_body("picture")},
                       {"/to-a", redirect("/a")},
                       {"/to-other", redirect("http://evil.test/")},
                       {"/to-port", redirect("http://pictures.test:1/")},
                       {"/to-loopback", redirect("http://127.0.0.1/")},
                       {"/to-file", redirect("file:///etc/passwd")},
                       {"/for-ever", redirect("/for-ever")},
                       {"/large", with_body(large_)}}};
};

TEST_F(LocalFetch, FilesAndTheirRedirectsAreFetched) {
  EXPECT_EQ(*fetcher().fetch(url("/a")), "picture");
  EXPECT_EQ(*fetcher().fetch(url("/to-a")), "picture");
  EXPECT_THAT(error_of(fetcher().fetch(url("/none"))), HasSubstr("status 404"));
}

TEST_F(LocalFetch, RedirectsObeyTheSameRules) {
  EXPECT_THAT(error_of(fetcher().fetch(url("/to-other"))), HasSubstr("'evil.test'"));
  EXPECT_THAT(error_of(fetcher().fetch(url("/to-port"))), HasSubstr("'pictures.test:1'"));
  EXPECT_THAT(error_of(fetcher().fetch(url("/to-loopback"))), HasSubstr("'127.0.0.1'"));
  EXPECT_THAT(error_of(fetcher().fetch(url("/to-file"))), HasSubstr("neither https nor http"));
  EXPECT_THAT(error_of(fetcher({.max_redirects = 2}).fetch(url("/for-ever"))),
              HasSubstr("more than 2 redirects"));
}

TEST_F(LocalFetch, BytesAreBoundedAndHeld) {
  EXPECT_EQ(fetcher().fetch(url("/large"))->size(), large_.size());
  EXPECT_THAT(error_of(fetcher({.max_bytes = 99999}).fetch(url("/large"))),
              HasSubstr("more than the 99999 bytes"));
  const FetchOptions refuse = {.hold = [](size_t) { return unavailable("full"); }};
  EXPECT_EQ(fetcher().fetch(url("/large"), refuse).status().code(), absl::StatusCode::kUnavailable);
  const FetchOptions leave = {.is_unwanted = [] { return true; }};
  EXPECT_EQ(fetcher().fetch(url("/large"), leave).status().code(), absl::StatusCode::kCancelled);
}

// A name that stands for another address the second time: the first one is kept for the hop.
TEST_F(LocalFetch, AHostIsResolvedOnceForEachHop) {
  auto times = std::make_shared<int>(0);
  const Resolve changing = [times](const std::string&) -> StatusOr<std::vector<std::string>> {
    return std::vector<std::string>{++*times == 1 ? "127.0.0.1" : "169.254.169.254"};
  };
  const MediaFetcher fetcher({host()}, changing, hub::Reach::kLoopback);
  EXPECT_EQ(*fetcher.fetch(url("/a")), "picture");
  EXPECT_EQ(*times, 1);
  EXPECT_THAT(error_of(fetcher.fetch(url("/a"))), HasSubstr("link-local"));
  EXPECT_EQ(server_.num_requests(), 1);
}

TEST(MediaDomain, Form) {
  for (const char* domain : {"example.com", "a-b.example.com:8443", "127.0.0.1"})
    EXPECT_TRUE(check_media_domain(domain).ok()) << domain;
  for (const char* domain :
       {"", "https://example.com", "example.com/", "*.example.com", "a:b", "a:"})
    EXPECT_FALSE(check_media_domain(domain).ok()) << domain;
}

}  // namespace
}  // namespace nereid::front
