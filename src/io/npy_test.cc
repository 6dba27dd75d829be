// NumPy array files, valid and invalid.
#include "io/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nereid::io {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string npy_file(const std::string& header, size_t data_bytes) {
  std::string file = "\x93NUMPY";
  file += std::string("\1\0", 2);
  file += static_cast<char>(header.size());
  file += '\0';
  return file + header + std::string(data_bytes, '\1');
}
StatusOr<NpyArray> parse_text(const std::string& file) {
  return parse_npy(std::as_bytes(std::span(file)));
}

constexpr char kHeader[] = "{'descr': '<f2', 'fortran_order': False, 'shape': (1, 2, 3), }  \n";

TEST(Npy, IsRead) {
  const std::string file = npy_file(kHeader, 12);
  const NpyArray array = parse_text(file).value();
  EXPECT_EQ(array.type, "<f2");
  EXPECT_THAT(array.shape, ElementsAre(1, 2, 3));
  EXPECT_EQ(array.data.size(), 12u);
}

TEST(Npy, WhatIsWrittenIsRead) {
  const std::vector<int32_t> numbers = {1, 2, 3, 4, 5, 6};
  const std::string file = serialize_npy({"<i4", {1, 2, 3}, std::as_bytes(std::span(numbers))});
  const NpyArray array = parse_text(file).value();
  EXPECT_EQ(array.type, "<i4");
  EXPECT_THAT(array.shape, ElementsAre(1, 2, 3));
  EXPECT_EQ((file.size() - array.data.size()) % 64, 0u);
  EXPECT_EQ(file.substr(file.size() - 24),
            std::string(reinterpret_cast<const char*>(&numbers[0]), 24));
}

TEST(Npy, DamageIsRefused) {
  const std::string good = npy_file(kHeader, 12);
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(parse_text(good.substr(0, size)).ok()) << size;
  const auto refusal = [](const std::string& header, size_t bytes) {
    return parse_text(npy_file(header, bytes)).status().ToString();
  };
  EXPECT_THAT(refusal(kHeader, 13), HasSubstr("13 bytes of data are not what the shape says"));
  EXPECT_THAT(refusal("{'descr': '>f2', 'fortran_order': False, 'shape': (6,)}", 12),
              HasSubstr("little-endian"));
  EXPECT_THAT(refusal("{'descr': '<f2', 'fortran_order': True, 'shape': (6,)}", 12),
              HasSubstr("row-major"));
  EXPECT_THAT(refusal("{'descr': '<f2', 'fortran_order': False, 'shape': (x,)}", 12),
              HasSubstr("no number"));
  EXPECT_THAT(refusal("{'descr': '<f2', 'fortran_order': False}", 12), HasSubstr("no 'shape'"));
  EXPECT_THAT(refusal("{'descr': '<f2', 'fortran_order': False, 'shape': (-6,)}", 12),
              HasSubstr("no number"));
}

}  // namespace
}  // namespace nereid::io
