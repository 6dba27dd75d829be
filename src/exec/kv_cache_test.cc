#include "exec/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "exec/memory.h"
#include "io/test_plan.h"
#include "kernels/open.h"

namespace nereid::exec {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr RunnerLimits kCacheLimits{.max_rows = 1,
                                    .max_tokens = 8,
                                    .max_sequence_length = 8,
                                    .num_blocks = 4,
                                    .block_tokens = 4,
                                    .num_host_blocks = 3};

TEST(KvLayout, ABlockHasAllLayersOfItsGroup) {
  CacheGroup group{.num_kv_heads = 2, .head_dim = 16, .layers = {0, 1, 5}};
  const KvLayout layout = KvLayout::of(group, kCacheLimits);
  EXPECT_EQ(layout.data, size_t{2} * 2 * 4 * 16);
  EXPECT_EQ(layout.scales, 0u);
  EXPECT_EQ(layout.values(0), layout.data);
  EXPECT_EQ(layout.keys(2), 4 * layout.data);
  EXPECT_EQ(layout.block, 6 * layout.data);
  RunnerLimits limits = kCacheLimits;
  limits.block_tokens = 16;
  limits.kv_type = DType::kI8;
  const KvLayout scaled = KvLayout::of(group, limits);
  EXPECT_EQ(scaled.key_scales(1), scaled.layer + 2 * scaled.data);
  EXPECT_EQ(scaled.value_scales(1), scaled.key_scales(1) + 2 * 16 * 4);
  EXPECT_EQ(scaled.block, size_t{3} * 2 * 2 * 16 * (16 + 4));
}

// Values stored in their keys take no memory.
TEST(KvLayout, LatentKeysHaveTheValues) {
  RunnerLimits limits = kCacheLimits;
  limits.block_tokens = 16;
  limits.kv_type = DType::kI8;
  const CacheGroup group{.num_kv_heads = 1, .head_dim = 24, .latent = 16, .layers = {0, 1}};
  const KvLayout layout = KvLayout::of(group, limits);
  EXPECT_EQ(layout.data, size_t{16} * 24);
  EXPECT_EQ(layout.values(1), layout.keys(1));
  EXPECT_EQ(layout.key_scales(1), layout.keys(1) + layout.data);
  EXPECT_EQ(layout.value_scales(1), layout.key_scales(1));
  EXPECT_EQ(layout.block, size_t{2} * 16 * (24 + 4));
}

// Counts the copies issued to a stream.
class CountingStream : public Stream {
 public:
  explicit CountingStream(Device& device) : device_(device) {}
  const Device& device() const override { return device_; }
  StatusOr<std::unique_ptr<Event>> submit(std::function<Status(Stream&)>) override {
    return internal_error("not used");
  }
  Status wait(const Event&) override { return internal_error("not used"); }
  Status copy(void* dst, const void* src, size_t bytes) override {
    std::memmove(dst, src, bytes);
    sizes.push_back(bytes);
    return ok();
  }
  Status copy_rows(void* dst, size_t dst_stride, const void* src, size_t src_stride, size_t bytes,
                   size_t rows) override {
    for (size_t i = 0; i < rows; ++i)
      std::memmove(static_cast<std::byte*>(dst) + i * dst_stride,
                   static_cast<const std::byte*>(src) + i * src_stride, bytes);
    sizes.push_back(rows * bytes);
    return ok();
  }
  Status fill(void*, int, size_t) override { return ok(); }
  void* native() override { return nullptr; }

  std::vector<size_t> sizes;

 private:
  Device& device_;
};

class KvCacheTest : public ::testing::Test {
 protected:
  KvCacheTest() {
    opened_ = *kernels::open_device("cpu", {.num_threads = 1});
    cache_ = *KvCache::create(plan_, kCacheLimits, *opened_.device);
    for (int32_t block = 0; block < kCacheLimits.num_blocks[0]; ++block)
      for (std::byte& byte : bytes_of(block)) byte = static_cast<std::byte>(block + 1);
  }
  std::span<std::byte> bytes_of(int32_t block) {
    auto* const first = static_cast<std::byte*>(cache_.view(0).keys);
    return {first + static_cast<size_t>(block) * block_, block_};
  }
  // First byte of each device block; all bytes of a block are equal.
  std::vector<int> marks() {
    std::vector<int> out;
    for (int32_t block = 0; block < kCacheLimits.num_blocks[0]; ++block) {
      const auto bytes = bytes_of(block);
      for (const std::byte byte : bytes) EXPECT_EQ(byte, bytes[0]);
      out.push_back(static_cast<int>(bytes[0]));
    }
    return out;
  }
  std::vector<size_t> copy(const std::vector<BlockCopy>& copies) {
    CountingStream stream(*opened_.device);
    EXPECT_TRUE(check_copies(copies, 1, kCacheLimits).ok());
    EXPECT_TRUE(cache_.copy_blocks(copies, stream).ok());
    return stream.sizes;
  }

  const io::Plan plan_ = io::test_plan();
  const size_t block_ = KvLayout::of(cache_groups(plan_, kCacheLimits)[0], kCacheLimits).block;
  kernels::OpenedDevice opened_;
  KvCache cache_;
};

TEST_F(KvCacheTest, NeighboursAreCopiedInOnePiece) {
  EXPECT_THAT(copy({{0, 2}, {1, 3}}), ElementsAre(2 * block_));
  EXPECT_THAT(marks(), ElementsAre(1, 2, 1, 2));
}

TEST_F(KvCacheTest, EachCopySeesTheOnesBefore) {
  copy({{0, 1}, {1, 2}, {2, 3}});  // not merged: the merged copy would overlap itself
  EXPECT_THAT(marks(), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(copy({{2, 2}}), ElementsAre());
}

TEST_F(KvCacheTest, RunsDoNotReachFromPoolToPool) {
  // Blocks 4, 5, 6 are host blocks.
  EXPECT_THAT(copy({{0, 4}, {1, 5}, {2, 6}}), ElementsAre(3 * block_));
  EXPECT_THAT(copy({{0, 2}, {1, 3}, {2, 4}}).size(), 2u);
  EXPECT_THAT(copy({{5, 0}, {6, 1}}).size(), 1u);
  EXPECT_THAT(marks(), ElementsAre(2, 3, 1, 2));
}

// Keys in lines and in panels, with and without scales, separate values and values in keys.
TEST(KvCells, AMoveTakesOnePositionAndNoMore) {
  auto opened = *kernels::open_device("cpu", {.num_threads = 1});
  for (const int32_t block_tokens : {4, 16})
    for (const DType type : {DType::kBF16, DType::kI8})
      for (const int32_t latent : {0, 8}) {
        SCOPED_TRACE(fmt::format("{} {} {}", block_tokens, name_of(type), latent));
        RunnerLimits limits = kCacheLimits;
        limits.block_tokens = block_tokens, limits.kv_type = type;
        io::Plan plan = io::test_plan();
        std::get<kernels::ids::Attention>(plan.calls[3].op).heads.latent = latent;
        const KvCache cache = *KvCache::create(plan, limits, *opened.device);
        const size_t block = KvLayout::of(cache.groups()[0], limits).block;
        const auto bytes_of = [&](int32_t id) {
          return std::span(static_cast<std::byte*>(cache.view(0).keys) + id * block, block);
        };
        for (int32_t id = 0; id < 4; ++id)
          std::ranges::fill(bytes_of(id), static_cast<std::byte>(id));
        CountingStream stream(*opened.device);
        const std::vector<CellMove> moves = {{0, 1, 3, 2, 1}, {0, 2, 1, 3, 2}};
        ASSERT_TRUE(cache.move_cells(moves, stream).ok());
        // Keys in lines, no scales: one copy per move.
        if (block_tokens == 4 && type == DType::kBF16) {
          EXPECT_EQ(stream.sizes.size(), moves.size());
        }
        const size_t line = 16 * size_of(type) + (type == DType::kI8 ? sizeof(float) : 0);
        const auto position = static_cast<ptrdiff_t>((latent > 0 ? 1 : 2) * line);
        for (const int32_t id : {1, 2, 3}) {
          EXPECT_EQ(std::ranges::count(bytes_of(id), std::byte{1}),
                    id == 1 ? static_cast<ptrdiff_t>(block) : position);
          EXPECT_EQ(std::ranges::count(bytes_of(id), static_cast<std::byte>(id)),
                    static_cast<ptrdiff_t>(block) - (id == 1 ? 0 : position));
        }
      }
}

TEST_F(KvCacheTest, BlocksThatThereAreNot) {
  const std::vector<BlockCopy> negative = {{0, 1}, {-1, 2}}, beyond = {{0, 7}};
  EXPECT_THAT(check_copies(negative, 1, kCacheLimits).ToString(),
              HasSubstr("copy 1: block -1 is not in [0, 7)"));
  const std::vector<BlockCopy> other = {{0, 1, 1}};
  EXPECT_THAT(check_copies(other, 1, kCacheLimits).ToString(),
              HasSubstr("copy 0: group 1 is not in [0, 1)"));
  EXPECT_THAT(check_copies(beyond, 1, kCacheLimits).ToString(), HasSubstr("copy 0: block 7"));
}

}  // namespace
}  // namespace nereid::exec
