// Pictures of many modes against Pillow's pixels, and hostile files.
#include "vision/decode/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "vision/decode/test_pictures.h"

namespace nereid::vision {
namespace {

using ::testing::HasSubstr;
using testing_only::golden_pictures;
using testing_only::GoldenPicture;
using testing_only::picture_file;

std::string error_of(std::string_view file, const DecodeOptions& options = {}) {
  const auto image = decode_image(file, options);
  EXPECT_FALSE(image.ok());
  EXPECT_EQ(image.status().code(), absl::StatusCode::kInvalidArgument) << image.status();
  return std::string(message(image.status()));
}

TEST(Image, HasPixelsOfPillow) {
  const auto pictures = golden_pictures();
  ASSERT_GE(pictures.size(), 40u);
  for (const GoldenPicture& golden : pictures) {
    SCOPED_TRACE(golden.name);
    const auto image = decode_image(picture_file(golden.name));
    ASSERT_TRUE(image.ok()) << image.status();
    ASSERT_EQ(image->width, golden.image.width);
    ASSERT_EQ(image->height, golden.image.height);
    EXPECT_EQ(image->rgb, golden.image.rgb);
  }
}

TEST(Image, TruncatedFilesAreRefused) {
  for (const char* name : {"rgb_28x28.png", "palette_4.png", "plain.jpg", "progressive.jpg",
                           "lossless.webp", "lossy.webp", "plain.gif", "interlaced.gif"}) {
    SCOPED_TRACE(name);
    const std::string file = picture_file(name);
    // A GIF is read up to the end of its first frame: without the two last bytes it is whole.
    const size_t most = file.size() - (std::string_view(name).ends_with("gif") ? 3 : 1);
    for (size_t size = 0; size < most; size += 1 + size / 16)
      EXPECT_FALSE(decode_image(std::string_view(file).substr(0, size)).ok()) << size;
    EXPECT_FALSE(decode_image(std::string_view(file).substr(0, most)).ok());
  }
  EXPECT_THAT(error_of(picture_file("plain.jpg").substr(0, 1000)), HasSubstr("truncated"));
  EXPECT_THAT(error_of(picture_file("rgb_28x28.png").substr(0, 1000)), HasSubstr("truncated"));
}

std::string with(std::string file, size_t at, std::string_view bytes) {
  return file.replace(at, bytes.size(), bytes);
}

TEST(Image, LargeSidesAreRefusedBeforeTheyGetMemory) {
  const auto never = [](size_t bytes) {
    return bytes > 10000 ? internal_error("held {} bytes", bytes) : ok();
  };
  const DecodeOptions options = {.limits = {.max_pixels = 1000, .max_side = 500}, .hold = never};
  EXPECT_THAT(error_of(picture_file("rgb_64x48.png"), options),
              HasSubstr("the picture has 64 x 48 pixels; allowed are 1000 in all and 500"));
  EXPECT_THAT(error_of(picture_file("long_1x5000.png"), options), HasSubstr("damaged"));
  EXPECT_THAT(error_of(picture_file("plain.jpg"), options), HasSubstr("75 x 53"));
  EXPECT_THAT(error_of(picture_file("lossy.webp"), options), HasSubstr("41 x 27"));
  // Sides as the frame header of a JPEG and the screen and frame of a GIF claim them.
  std::string jpeg = picture_file("plain.jpg");
  const size_t frame = jpeg.find(std::string_view("\xFF\xC0\0\x11", 4));
  ASSERT_NE(frame, std::string::npos);
  EXPECT_THAT(error_of(with(jpeg, frame + 5, "\xFF\xFF\xFF\xFF")), HasSubstr("damaged"));
  EXPECT_THAT(error_of(with(jpeg, frame + 5, "\xEA\x60\xEA\x60")), HasSubstr("60000 x 60000"));
  EXPECT_THAT(error_of(with(picture_file("plain.gif"), 6, "\xFF\xFF\xFF\xFF")),
              HasSubstr("65535 x 65535"));
}

TEST(Image, HeldBytesBoundTheDecoding) {
  for (const char* name : {"rgb_64x48.png", "progressive.jpg", "lossy.webp", "plain.gif"}) {
    size_t most = 0;
    const auto count = [&](size_t bytes) {
      most = std::max(most, bytes);
      return ok();
    };
    const auto image = decode_image(picture_file(name), {.hold = count});
    ASSERT_TRUE(image.ok());
    EXPECT_GE(most, image->rgb.size());
    const auto refuse = [](size_t) { return unavailable("full"); };
    EXPECT_EQ(decode_image(picture_file(name), {.hold = refuse}).status().code(),
              absl::StatusCode::kUnavailable);
  }
}

TEST(Image, OtherFilesAreNamed) {
  EXPECT_THAT(error_of(""), HasSubstr("is no picture: allowed are JPEG, PNG, WebP and GIF"));
  EXPECT_THAT(error_of("hello"), HasSubstr("is no picture"));
  EXPECT_THAT(error_of("<svg xmlns='http://www.w3.org/2000/svg'/>"), HasSubstr("SVG"));
  EXPECT_THAT(error_of("<?xml version='1.0'?><svg/>"), HasSubstr("SVG"));
  EXPECT_THAT(error_of("BM123456"), HasSubstr("BMP"));
  EXPECT_THAT(error_of(std::string_view("II*\0aaaa", 8)), HasSubstr("TIFF"));
  EXPECT_THAT(error_of(std::string_view("\0\0\0\x1c"
                                        "ftypavif",
                                        12)),
              HasSubstr("AVIF"));
  EXPECT_THAT(error_of(std::string_view("\0\0\0\x1c"
                                        "ftypheic",
                                        12)),
              HasSubstr("HEIC"));
  EXPECT_THAT(error_of(std::string_view("\0\0\0\x1c"
                                        "ftypisom",
                                        12)),
              HasSubstr("video"));
  EXPECT_THAT(error_of("RIFF1234WAVEfmt "), HasSubstr("is no picture"));
}

TEST(Image, FilesOfTwoFormatsAreRefused) {
  const std::string png = picture_file("rgb_28x28.png");
  const std::string zip_end = "PK\5\6" + std::string(18, '\0');
  EXPECT_THAT(error_of(png + zip_end), HasSubstr("ZIP"));
  const std::string comment =
      std::string("PK\5\6") + std::string(16, '\0') + std::string("\3\0abc", 5);
  EXPECT_THAT(error_of(png + comment), HasSubstr("ZIP"));
  EXPECT_TRUE(decode_image(png + zip_end + "behind").ok());
  const std::string jpeg = picture_file("plain.jpg");
  const std::string pdf = std::string("\xFF\xFE\0\x0b", 4) + "%PDF-1.7\n";
  EXPECT_THAT(error_of(jpeg.substr(0, 2) + pdf + jpeg.substr(2)), HasSubstr("PDF"));
}

TEST(Image, DamagedHeadersAreRefused) {
  const std::string png = picture_file("rgb_28x28.png");
  EXPECT_THAT(error_of(with(png, 16, std::string_view("\0\0\0\0", 4))), HasSubstr("damaged"));
  EXPECT_THAT(error_of(with(png, 25, "\7")), HasSubstr("damaged"));  // no such colour type
  const std::string gif = picture_file("plain.gif");
  EXPECT_THAT(error_of(gif.substr(0, 13 + 64 * 3) + ";"), HasSubstr("no frame"));
  const std::string webp = picture_file("lossless.webp");
  EXPECT_THAT(error_of(with(webp, 12, "ABCD")), HasSubstr("damaged"));
}

// Sides of 60,000 pixels, or more than a file's format has, in the header of `file`.
std::string with_lying_header(std::string file) {
  if (file.starts_with("\x89PNG"))
    return with(file, 16, std::string_view("\0\0\xEA\x60\0\0\xEA\x60", 8));
  if (file.starts_with("GIF")) return with(file, 6, "\xFF\xFF\xFF\xFF");
  if (file.starts_with("RIFF")) return with(file, 4, std::string_view("\0\0\0\0", 4));
  for (const char* frame : {"\xFF\xC0", "\xFF\xC1", "\xFF\xC2"})
    if (const size_t at = file.find(frame); at != std::string::npos)
      return with(file, at + 5, "\xEA\x60\xEA\x60");
  return file;
}

// Each picture cut, with a file of another format behind or in front, with the signature of another
// format, with a header that lies.
TEST(Image, HostileFilesAreRefusedWithinBounds) {
  constexpr size_t kMost = size_t{1} << 24;
  constexpr std::string_view kSignatures[] = {"\x89PNG\r\n\x1a\n", "GIF89a", "\xFF\xD8\xFF\xE0",
                                              "RIFF\xFF\xFF\xFF\xFFWEBPVP8 "};
  const auto bounded = [](size_t bytes) {
    return bytes > kMost ? internal_error("held {} bytes", bytes) : ok();
  };
  size_t count = 0;
  const auto refuse = [&](std::string_view what, std::string_view file) {
    SCOPED_TRACE(what);
    error_of(file, {.hold = bounded});
    ++count;
  };
  const std::string zip_end = "PK\5\6" + std::string(18, '\0');
  for (const GoldenPicture& golden : golden_pictures()) {
    SCOPED_TRACE(golden.name);
    const std::string file = picture_file(golden.name);
    refuse("cut", std::string_view(file).substr(0, file.size() / 5));
    refuse("ZIP behind", file + zip_end);
    refuse("text in front", "<html>" + file);
    refuse("lying header", with_lying_header(file));
    const std::string_view other = kSignatures[count / 5 % std::size(kSignatures)];
    if (!file.starts_with(other.substr(0, 4)))
      refuse("other signature",
             with(file, 0, other.substr(0, std::min(other.size(), file.size()))));
  }
  EXPECT_GE(count, 200u);
}

TEST(Image, ScansOfAProgressiveFileAreBounded) {
  // A progressive JPEG whose last scan is repeated.
  const std::string file = picture_file("progressive.jpg");
  const size_t scan = file.rfind(std::string_view("\xFF\xDA", 2));
  ASSERT_NE(scan, std::string::npos);
  std::string many = file.substr(0, scan);
  for (int i = 0; i < 200; ++i) many += file.substr(scan, file.size() - 2 - scan);
  EXPECT_THAT(error_of(many + "\xFF\xD9"), HasSubstr("more than 100 scans"));
}

}  // namespace
}  // namespace nereid::vision
