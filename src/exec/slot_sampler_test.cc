// Memory of slot lists.
#include "exec/slot_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <utility>

#include "kernels/open.h"
#include "tensor/wrapped_device.h"

namespace nereid::exec {
namespace {

using ::testing::Contains;
using ::testing::Not;

// Records the sizes of freed buffers.
class FreesDevice : public WrappedDevice {
 public:
  using WrappedDevice::WrappedDevice;
  StatusOr<Buffer> allocate(size_t bytes) override {
    ASSIGN_OR_RETURN(Buffer buffer, inner().allocate(bytes));
    const auto held = std::make_shared<Buffer>(std::move(buffer));
    return Buffer(held->data(), bytes, [this, held, bytes](void*) { freed.push_back(bytes); });
  }
  std::vector<size_t> freed;
};

// A message that gives slot 0 a list of `size` end ids.
std::vector<std::byte> with_list(int32_t size) {
  StepMessage step;
  SlotLoad load{.slot = 0, .num_cells = size};
  load.params.num_end_ids = size;
  step.loads = {load};
  step.cells.resize(static_cast<size_t>(size));
  std::iota(step.cells.begin(), step.cells.end(), 0);
  std::vector<std::byte> message;
  encode(step, message);
  return message;
}

// Staging without issuing does not end the steps in flight.
TEST(SlotSampler, ListsOutliveTheStepsThatReadThem) {
  const auto opened = kernels::open_device("cpu", {.num_threads = 1}).value();
  FreesDevice device(*opened.device);
  const RunnerLimits limits{.max_rows = 1, .max_tokens = 4, .max_sequence_length = 8, .depth = 2};
  const auto sampler = SlotSampler::create(device, opened.registry, {}, limits, 2048).value();
  const auto stage = [&](int32_t size, int32_t area) {
    const std::vector<std::byte> message = with_list(size);
    ASSERT_TRUE(sampler->stage(decode(message).value(), area).ok());
  };
  constexpr size_t kFirst = 512;  // bytes of 100 ids, rounded up
  stage(100, 0);
  sampler->issued(0);  // reads the first list from here on
  stage(200, 1);
  EXPECT_THAT(device.freed, Not(Contains(kFirst)));
  stage(150, 1);
  EXPECT_THAT(device.freed, Not(Contains(kFirst)));
  sampler->issued(1);
  stage(150, 1);  // both steps have been waited for
  EXPECT_THAT(device.freed, Contains(kFirst));
}

}  // namespace
}  // namespace nereid::exec
