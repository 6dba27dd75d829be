#include "kernels/roofline.h"

#include <gtest/gtest.h>

#include "kernels/open.h"

namespace nereid::kernels {
namespace {

TEST(RooflineProbe, GivesPlausibleFiguresForTheCpu) {
  StatusOr<OpenedDevice> opened = open_device("cpu", {.num_threads = 1});
  ASSERT_TRUE(opened.ok()) << opened.status();
  const StatusOr<Roofline> roofline = measure_roofline(*opened->device);
  ASSERT_TRUE(roofline.ok()) << roofline.status();
  EXPECT_GT(roofline->read_bytes_per_s, 0);
  EXPECT_LT(roofline->read_bytes_per_s, 1e13);
  EXPECT_GT(roofline->flops_per_s, 0);
  EXPECT_LT(roofline->flops_per_s, 1e15);
  EXPECT_FALSE(roofline->flops_by_kernel.empty());
}

}  // namespace
}  // namespace nereid::kernels
