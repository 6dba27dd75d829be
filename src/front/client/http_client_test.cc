// Parsing of responses and URLs. The load generator's and the exporter's tests send calls.
#include "front/client/http_client.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include <fmt/format.h>

#include "base/testing/loopback_listener.h"

namespace nereid::front {
namespace {

using testing::HasSubstr;

std::string whole(std::string_view body) {
  return fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
}

TEST(ResponseParser, AnySplitGivesTheSame) {
  for (const std::string& text :
       {std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                    "11\r\ndata: {\"a\":1}\n\nda\r\n8\r\nta: {}\r\n\r\n0\r\n\r\n"),
        whole("{}"), std::string("HTTP/1.1 100 Continue\r\n\r\n") + whole("abc"),
        std::string("HTTP/1.0 200 OK\n\nup to the end"),
        std::string("HTTP/1.1 200 OK\r\ntransfer-encoding: CHUNKED\r\n\r\n"
                    "3;x=y\r\nabc\r\n0\r\nTrailer: 1\r\n\r\n")}) {
    const auto parse = [&](size_t split, size_t second) {
      ResponseParser parser;
      std::string body;
      const auto add = [&body](std::string_view piece) { body += piece; };
      const Status first = parser.feed(std::string_view(text).substr(0, split), add);
      EXPECT_TRUE(first.ok()) << first << " of " << text;
      EXPECT_TRUE(parser.feed(std::string_view(text).substr(split, second - split), add).ok());
      EXPECT_TRUE(parser.feed(std::string_view(text).substr(second), add).ok());
      EXPECT_TRUE(parser.finish().ok());
      EXPECT_EQ(parser.status(), 200);
      return body;
    };
    const std::string expected = parse(text.size(), text.size());
    EXPECT_FALSE(expected.empty());
    for (size_t split = 0; split <= text.size(); ++split)
      EXPECT_EQ(parse(split, std::min(split + 3, text.size())), expected) << split;
  }
}

TEST(ResponseParser, WhatIsNoAnswerIsRefused) {
  const auto error = [](std::string_view text) {
    ResponseParser parser;
    Status status = parser.feed(text, [](std::string_view) {});
    if (status.ok()) status = parser.finish();
    return std::string(message(status));
  };
  EXPECT_THAT(error("SSH-2.0\r\n\r\n"), HasSubstr("no status line"));
  EXPECT_THAT(error("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"), HasSubstr("Content-Length"));
  EXPECT_THAT(error("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
              HasSubstr("chunk size 'zz'"));
  EXPECT_THAT(error("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"), HasSubstr("closed"));
  EXPECT_THAT(error(std::string(100'000, 'x')), HasSubstr("more than 65536"));
}

TEST(SendCall, StopsWhileTheServerIsSilent) {
  const LoopbackListener listener;
  const Url url = parse_url(fmt::format("http://127.0.0.1:{}", listener.port())).value();
  std::atomic<bool> stop = false;
  std::jthread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stop = true;
  });
  const auto answer = send_call(url, {.method = "GET", .stop = &stop},
                                now() + std::chrono::minutes(5), [](std::string_view) {});
  EXPECT_TRUE(absl::IsCancelled(answer.status())) << answer.status();
}

TEST(ParseUrl, Spellings) {
  const auto url = parse_url("http://[::1]:81/a/");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_EQ(url->host + url->target, "::1/a/");
  EXPECT_EQ(host_header(*url), "[::1]:81");
  EXPECT_EQ(parse_url("localhost:8000")->port, "8000");
  EXPECT_EQ(host_header(*parse_url("https://name:443/x")), "name");
  EXPECT_EQ(host_header(*parse_url("http://name:443")), "name:443");
  for (const char* bad : {"", "http://", "http://a:0", "http://a:x", "http://a:65536",
                          "http://a:", "ftp://a", "http://[::1", "http://u@a", "http://a b"})
    EXPECT_FALSE(parse_url(bad).ok()) << bad;
}

TEST(ResponseParser, HeadOfTheFinalResponse) {
  ResponseParser parser;
  const auto feed = [&](std::string_view text) {
    EXPECT_TRUE(parser.feed(text, [](std::string_view) {}).ok());
  };
  feed("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\nRetry-After:  7 \r\n");
  EXPECT_FALSE(parser.has_head());
  feed("Content-Length: 2\r\n\r\n");
  EXPECT_TRUE(parser.has_head() && !parser.is_done());
  EXPECT_EQ(parser.status(), 503);
  EXPECT_EQ(parser.retry_after(), "7");
}

}  // namespace
}  // namespace nereid::front
