// Round trips, weights, and invalid data.
#include "front/http/compression.h"

#include <gtest/gtest.h>

namespace nereid::front {
namespace {

StatusOr<std::string> uncompressed(std::string_view data, Encoding encoding, size_t max_bytes) {
  BudgetShare share;
  return decompress(data, encoding, max_bytes, share);
}

TEST(Compression, RoundTrips) {
  std::string text;
  for (uint32_t i = 0; i < 50000; ++i) text += static_cast<char>(i * i % 251);
  for (const Encoding encoding : {Encoding::kGzip, Encoding::kDeflate, Encoding::kIdentity}) {
    for (const std::string& data : {text, std::string(), std::string("x")}) {
      const auto back = uncompressed(compress(data, encoding), encoding, 1 << 20);
      ASSERT_TRUE(back.ok()) << back.status();
      EXPECT_EQ(*back, data);
    }
  }
}

TEST(Compression, PartsAreOneText) {
  std::string text;
  for (uint32_t i = 0; i < 500000; ++i) text += static_cast<char>(i * i % 251);
  for (const Encoding encoding : {Encoding::kGzip, Encoding::kDeflate, Encoding::kIdentity}) {
    Compressor compressor(encoding);
    std::string sent;
    for (size_t at = 0; at < text.size(); at += 70001) {
      sent += compressor.add(std::string_view(text).substr(at, 70001), at + 70001 >= text.size());
    }
    EXPECT_EQ(uncompressed(sent, encoding, 1 << 20).value(), text);
  }
}

TEST(Compression, RefusesBombsAndRubbish) {
  const std::string bomb = compress(std::string(10 << 20, 'x'), Encoding::kGzip);
  EXPECT_FALSE(uncompressed(bomb, Encoding::kGzip, 1 << 20).ok());
  EXPECT_FALSE(uncompressed("rubbish", Encoding::kGzip, 1 << 20).ok());
  EXPECT_FALSE(uncompressed(bomb.substr(0, bomb.size() / 2), Encoding::kGzip, 100 << 20).ok());
  EXPECT_FALSE(uncompressed("", Encoding::kGzip, 1 << 20).ok());
}

TEST(Compression, WhatComesOutIsCountedAsItIsMade) {
  const std::string bomb = compress(std::string(32 << 20, 'x'), Encoding::kGzip);
  const auto budget = std::make_shared<ByteBudget>(8 << 20);
  {
    BudgetShare share(budget);
    const auto opened = decompress(bomb, Encoding::kGzip, 64 << 20, share);
    EXPECT_EQ(opened.status().code(), absl::StatusCode::kUnavailable) << opened.status();
    EXPECT_NE(message(opened.status()).find("8388608 bytes"), std::string_view::npos);
  }
  EXPECT_EQ(budget->used(), 0u);
  BudgetShare share(budget);
  const std::string small = compress(std::string(1 << 20, 'x'), Encoding::kGzip);
  ASSERT_TRUE(decompress(small, Encoding::kGzip, 64 << 20, share).ok());
  EXPECT_EQ(budget->used(), size_t{1} << 20);
}

TEST(Compression, FollowsTheWeights) {
  EXPECT_EQ(preferred_encoding(""), Encoding::kIdentity);
  EXPECT_EQ(preferred_encoding("gzip, deflate"), Encoding::kGzip);
  EXPECT_EQ(preferred_encoding("gzip;q=0.5, deflate"), Encoding::kDeflate);
  EXPECT_EQ(preferred_encoding("br, identity;q=0.9, gzip;q=0.1"), Encoding::kIdentity);
  EXPECT_EQ(preferred_encoding("gzip;q=0"), Encoding::kIdentity);
  EXPECT_EQ(preferred_encoding("*"), Encoding::kIdentity);
}

}  // namespace
}  // namespace nereid::front
