#include "base/page_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

namespace nereid {
namespace {

TEST(PageAllocator, SmallAndLargeArrays) {
  std::vector<float, PageAllocator<float>> numbers;
  for (const size_t size : {size_t{10}, size_t{262143}, size_t{262144}, size_t{3000000}}) {
    numbers.resize(size);
    std::iota(numbers.begin(), numbers.end(), 0.0f);
    const auto copy = numbers;
    numbers.push_back(7);
    EXPECT_TRUE(std::equal(copy.begin(), copy.end(), numbers.begin())) << size;
  }
}

TEST(PageAllocator, WithoutMemoryItThrows) {
  PageAllocator<float> allocator;
  for (const size_t count : {size_t{1} << 61, std::numeric_limits<size_t>::max()})
    EXPECT_THROW(static_cast<void>(allocator.allocate(count)), std::bad_alloc) << count;
}

}  // namespace
}  // namespace nereid
