// A value that is no number reaches only the tokens that see it.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "kernels/open.h"
#include "kernels/testing/cases.h"

namespace nereid::kernels {
namespace {

// The outputs of a case; `poisoned`: with NaN as the last token's values.
Status run(OpenedDevice& opened, const Kernel<Attention>& kernel, const testing::Case<Attention>& c,
           bool poisoned, std::vector<uint16_t>& out) {
  ASSIGN_OR_RETURN(const Buffer memory, opened.device->allocate(c.before.bytes.size()));
  std::memcpy(memory.data(), c.before.bytes.data(), c.before.bytes.size());
  const Attention a = c.args(memory.bytes(), 0, c.tokens);
  const int64_t last = c.tokens - 1, width = a.heads.num_kv * a.heads.dim;
  float* const values = a.qkv.row<float>(last) + a.heads.width() - width;
  if (poisoned) std::fill(values, values + width, std::numeric_limits<float>::quiet_NaN());
  ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, opened.device->create_stream());
  ASSIGN_OR_RETURN(const std::unique_ptr<Event> event,
                   stream->submit([&](Stream& s) { return kernel.run(a, s); }));
  RETURN_IF_ERROR(event->wait());
  const auto* const first = a.out.as<uint16_t>();
  out.assign(first, first + c.tokens * a.out.stride);
  return ok();
}

TEST(Attention, NoNumberReachesEarlierTokens) {
  StatusOr<OpenedDevice> opened = open_device("cpu", {.num_threads = 2});
  ASSERT_TRUE(opened.ok()) << opened.status();
  for (const Kernel<Attention>& kernel : opened->registry.table<Attention>()) {
    if (kernel.device != DeviceKind::kCpu) continue;
    for (const testing::Case<Attention>& c : testing::cases<Attention>()) {
      alignas(256) std::byte base[1];
      const Attention args = c.args(base, 0, c.tokens);
      if (c.tokens < 2 || args.bidirectional || args.step.last || args.step.after ||
          args.heads.latent > 0 || !kernel.can(args, opened->device->info()))
        continue;
      std::vector<uint16_t> expected, got;
      ASSERT_TRUE(run(*opened, kernel, c, false, expected).ok()) << c.name;
      ASSERT_TRUE(run(*opened, kernel, c, true, got).ok()) << c.name;
      const size_t earlier =
          got.size() / static_cast<size_t>(c.tokens) * static_cast<size_t>(c.tokens - 1);
      ASSERT_EQ(std::memcmp(got.data(), expected.data(), earlier * 2), 0)
          << kernel.name << ": " << c.name;
      ASSERT_NE(got, expected) << kernel.name << ": " << c.name;
    }
  }
}

}  // namespace
}  // namespace nereid::kernels
