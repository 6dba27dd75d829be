#include "runtime/kv_sizing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "exec/adapter_pool.h"
#include "exec/kv_cache.h"
#include "exec/memory.h"
#include "exec/step_message.h"
#include "io/engine_writer.h"
#include "io/test_plan.h"
#include "kernels/open.h"
#include "runtime/testing/tight_device.h"

namespace nereid::runtime {
namespace {

using ::testing::HasSubstr;

class KvSizingTest : public ::testing::Test {
 protected:
  KvSizingTest() {
    std::get<kernels::ids::Attention>(plan_.calls[3].op).window = 0;
    config_.max_batch_size = 4;
    config_.max_num_tokens = 16;
    config_.kv_cache.tokens_per_block = 16;
    config_.memory_bytes = 1 << 20;
  }
  exec::RunnerLimits size() {
    const auto limits = size_kv_cache(plan_, config_, *opened_.device);
    EXPECT_TRUE(limits.ok()) << limits.status();
    return limits.value_or(exec::RunnerLimits{});
  }
  std::string error() { return size_kv_cache(plan_, config_, *opened_.device).status().ToString(); }
  size_t total(const exec::RunnerLimits& limits) {
    size_t sum = 0;
    for (const exec::MemoryItem& item : exec::memory_table(plan_, limits, opened_.device->info()))
      if (!item.what.starts_with("host ")) sum += item.bytes;
    return sum;
  }

  kernels::OpenedDevice opened_ = *kernels::open_device("cpu", {.num_threads = 1});
  io::Plan plan_ = io::test_plan();  // 64 positions, 1 layer
  ExecutorConfig config_;
};

TEST_F(KvSizingTest, NoMoreThanAFullBatch) {
  EXPECT_EQ(size().num_blocks, 4 * 4);
  EXPECT_EQ(size().max_sequence_length, 64);
  config_.kv_cache.max_tokens = 40;
  EXPECT_EQ(size().num_blocks, 3);
  EXPECT_EQ(size().max_sequence_length, 48);
}

TEST_F(KvSizingTest, InstancesOnADeviceShareItsMemory) {
  const RankPart part{&plan_, opened_.device.get()};
  ExecutorConfig half = config_;
  half.memory_bytes /= 2;
  half.kv_cache.memory_fraction = config_.kv_cache.memory_fraction = 0.5;
  config_.num_instances = 2;
  const auto shared = size_kv_cache({&part, 1}, config_), own = size_kv_cache({&part, 1}, half);
  ASSERT_TRUE(shared.ok() && own.ok()) << shared.status() << own.status();
  EXPECT_EQ(shared->num_blocks, own->num_blocks);
  config_.num_instances = 1;
  EXPECT_NE(size_kv_cache({&part, 1}, config_)->num_blocks, own->num_blocks);
}

class Gpu : public WrappedDevice {
 public:
  Gpu(Device& inner, size_t free_bytes)
      : WrappedDevice(inner), info_(inner.info()), free_bytes_(free_bytes) {
    info_.kind = DeviceKind::kCuda;
  }
  const DeviceInfo& info() const override { return info_; }
  size_t free_bytes() const override { return free_bytes_; }

 private:
  DeviceInfo info_;
  const size_t free_bytes_;
};

// An instance on a GPU takes its memory when it is opened.
TEST_F(KvSizingTest, LaterInstancesOnAGpuGetWhatTheFirstOnesLeave) {
  config_.memory_bytes = 0;
  config_.num_instances = 2;
  config_.kv_cache.memory_fraction = 0.5;
  const Gpu empty(*opened_.device, 1 << 20), half(*opened_.device, 1 << 19);
  const auto blocks = [&](const Gpu& gpu, int32_t num_unopened) {
    const RankPart part{&plan_, &gpu, num_unopened};
    const auto limits = size_kv_cache({&part, 1}, config_);
    return limits.ok() ? limits->num_blocks[0] : -1;
  };
  EXPECT_GT(blocks(empty, 2), 0);
  EXPECT_LT(blocks(empty, 2), blocks(empty, 1));
  EXPECT_EQ(blocks(half, 1), blocks(empty, 2));
  EXPECT_LT(blocks(half, 2), blocks(half, 1)) << blocks(half, 2) << " " << blocks(empty, 2);
}

TEST_F(KvSizingTest, SequencesMayBeShorterThanTheModelAllows) {
  config_.max_sequence_length = 40;
  EXPECT_EQ(size().max_sequence_length, 40);
  EXPECT_EQ(size().num_blocks, 4 * 3);
  config_.max_sequence_length = 65;
  EXPECT_EQ(size().max_sequence_length, 64);
}

TEST_F(KvSizingTest, FractionOfWhatIsLeft) {
  config_.kv_cache.memory_fraction = .5;
  const exec::RunnerLimits half = size();
  exec::RunnerLimits none = half;
  none.num_blocks = 0;
  const size_t fixed = total(none), left = config_.memory_bytes - fixed;
  EXPECT_LE(total(half) - fixed, left / 2);
  EXPECT_GT(total(half) - fixed,
            left / 2 - exec::KvLayout::of(exec::cache_groups(plan_, half)[0], half).block);
  config_.kv_cache.max_tokens = 160;
  EXPECT_EQ(size().num_blocks, 10);
  config_.kv_cache.max_tokens = 1 << 30;
  EXPECT_EQ(size().num_blocks, half.num_blocks);
}

TEST_F(KvSizingTest, RowsOfLogitsFollowMemoryAndTokens) {
  const auto row_bytes = plan_.arena_bytes_per_row[static_cast<int>(io::RowCount::kSampled)];
  EXPECT_EQ(size().max_logits, 16);  // max_num_tokens
  config_.max_num_tokens = 1000;
  config_.memory_bytes = 64 * 100 * row_bytes;
  EXPECT_EQ(size().max_logits, 100);
  config_.memory_bytes = int64_t{1} << 30;
  EXPECT_EQ(size().max_logits, 256);
  config_.max_num_tokens = 2;
  EXPECT_EQ(size().max_logits, 4);  // one per sequence
}

// Hidden states for a draft head bound the tokens per step, unless prompts may not be chunked.
TEST_F(KvSizingTest, StepsWhoseStatesAreWantedAreBounded) {
  plan_.hidden = {0};
  plan_.model.hidden_size = 4096;
  config_.max_num_tokens = 8192;
  config_.memory_bytes = int64_t{1} << 30;
  const auto tokens = [&](bool all_states) {
    return size_kv_cache(plan_, config_, *opened_.device, 0, all_states).value().max_tokens;
  };
  EXPECT_EQ(tokens(false), 8192);
  EXPECT_EQ(tokens(true), 512);  // 4 MiB
  plan_.hidden = {0, 0, 0, 0, 0, 0};
  EXPECT_EQ(tokens(true), 256);
  config_.max_batch_size = 100;
  EXPECT_EQ(tokens(true), 400);
  config_.max_num_tokens = 64;
  EXPECT_EQ(tokens(true), 64);
  config_.max_num_tokens = 8192;
  config_.scheduler.enable_chunked_context = false;
  EXPECT_EQ(tokens(true), 8192);
}

// All of the memory for the cache: the memory table covers everything that loading and a step need.
TEST_F(KvSizingTest, AFractionOfOneLoadsAndRuns) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("nereid_kv_sizing_test." + std::to_string(::getpid()));
  auto writer = io::EngineWriter::create(path, plan_, "test").value();
  for (const io::PlanWeight& weight : plan_.weights)
    ASSERT_TRUE(writer.append(std::vector<std::byte>(weight.planes[0].shape.bytes)).ok());
  ASSERT_TRUE(writer.finish().ok());
  config_.kv_cache.memory_fraction = 1;
  const size_t memory = size_t{1} << 17;
  config_.memory_bytes = static_cast<int64_t>(memory);
  // Long histories, and sequences shortened to what fits.
  for (const int32_t batch : {1, 50, 64}) {
    config_.max_batch_size = batch;
    const auto limits = size_kv_cache(plan_, config_, *opened_.device).value();
    EXPECT_LE(total(limits), memory);
    auto cpu = kernels::open_device("cpu", {.num_threads = 1}).value();
    TightDevice device(std::move(cpu.device), memory - plan_.blob_bytes);
    const auto runner = exec::make_runner(path, device, opened_.registry, limits);
    ASSERT_TRUE(runner.ok()) << runner.status();
    const int32_t num_rows = std::min(limits.max_rows, limits.max_tokens);
    const int32_t token = 1, block = 0;
    exec::StepMessage step;
    for (int32_t slot = 0; slot < num_rows; ++slot) {
      step.add({.slot = slot, .num_logits = 1, .samples = 1}, {&token, 1},
               std::span<const int32_t>(&block, 1), (*runner)->groups().size(),
               limits.block_tokens);
      step.loads.push_back({.params = {.top_p = 0.5f, .num_top = 5}, .slot = slot});
    }
    std::vector<std::byte> message;
    exec::encode(step, message);
    auto ticket = (*runner)->launch(message);
    ASSERT_TRUE(ticket.ok()) << ticket.status();
    const auto results = (*runner)->wait(*ticket);
    ASSERT_TRUE(results.ok()) << results.status();
    for (const exec::RowResult& row : *results) EXPECT_TRUE(row.status.ok()) << row.status;
  }
  std::filesystem::remove(path);
}

TEST_F(KvSizingTest, SmallerTypesGiveMoreBlocks) {
  config_.kv_cache.memory_fraction = .5;
  const int32_t plain = size().num_blocks[0];
  config_.kv_cache.type = KvCacheType::kInt8;
  EXPECT_EQ(size().kv_type, DType::kI8);
  EXPECT_GT(size().num_blocks[0], plain * 32 / 20 - 10);  // 16 values: 16 + 4 bytes instead of 32
  config_.kv_cache.type = KvCacheType::kFp8;
  EXPECT_EQ(size().kv_type, DType::kF8E4M3);
}

TEST_F(KvSizingTest, TheCheckpointsTypeIsTheDefault) {
  EXPECT_EQ(size().kv_type, DType::kBF16);
  plan_.model.kv_dtype = DType::kI8;
  EXPECT_EQ(size().kv_type, DType::kI8);
  config_.kv_cache.type = KvCacheType::kFp8;
  EXPECT_EQ(size().kv_type, DType::kF8E4M3);
  config_.kv_cache.type = KvCacheType::kBf16;
  EXPECT_EQ(size().kv_type, DType::kBF16);
}

// In a mixture, the tables take more memory than small adapters.
TEST_F(KvSizingTest, AdaptersTakeTheirShare) {
  for (int i = 0; i < 500; ++i) {
    const std::string name = fmt::format("layers.0.mlp.experts.{}.up_proj", i);
    plan_.modules.push_back({.name = name, .k = 48, .n = 16, .source = name});
  }
  config_.enable_lora = true;
  config_.memory_bytes = 2 << 20;  // includes the staging memory of adapter loads
  config_.peft_cache.device_cache_fraction = 0.25;
  const exec::RunnerLimits limits = size();
  EXPECT_EQ(limits.adapter_page_numbers, 8 * 64);
  EXPECT_EQ(limits.num_adapters, 2 * config_.max_batch_size);
  EXPECT_GT(limits.num_adapter_pages, limits.num_adapters);
  const size_t share = config_.memory_bytes / 4;
  EXPECT_LE(exec::AdapterPool::bytes(plan_.modules, limits), share);
  EXPECT_GT(exec::AdapterPool::bytes(plan_.modules, limits), share - 1024);
  config_.peft_cache.device_cache_fraction = 0.01;
  EXPECT_THAT(error(),
              HasSubstr("and an adapter slot take 21024 bytes; num_device_module_layers 0 or"));
  config_.peft_cache.num_device_module_layers = 2;
  EXPECT_EQ(size().num_adapter_pages, 2 * 64 / 8);
}

TEST_F(KvSizingTest, HostBlocks) {
  config_.kv_cache.host_cache_bytes = 100'000;
  const exec::RunnerLimits limits = size();
  EXPECT_GT(limits.num_host_blocks[0], 90);
  EXPECT_LE(exec::memory_table(plan_, limits, opened_.device->info()).back().bytes, 100'000u);
  config_.kv_cache.host_cache_bytes = 1000;
  EXPECT_THAT(error(), HasSubstr("kv_cache.host_cache_bytes: 1000 bytes hold no block"));
  config_.kv_cache.host_cache_bytes = 100'000;
  config_.kv_cache.enable_block_reuse = false;
  EXPECT_THAT(error(), HasSubstr("needs kv_cache.enable_block_reuse"));
}

TEST_F(KvSizingTest, WindowsNeedFewerBlocks) {
  config_.kv_cache.max_attention_window = 8;
  const exec::RunnerLimits limits = size();
  const auto window = [&] { return exec::cache_groups(plan_, size())[0].window; };
  EXPECT_EQ(window(), 8);
  EXPECT_EQ(limits.num_blocks, 4 * 3);  // ceil((8 + 16) / 16) + 1 instead of 4
  config_.kv_cache.max_tokens = 48;
  EXPECT_EQ(size().max_sequence_length, 64);  // longer than the cache
  config_.kv_cache.max_attention_window = plan_.model.max_positions;
  config_.kv_cache.sink_token_length = 4;
  EXPECT_EQ(window(), 0);  // no effect
  EXPECT_EQ(size().sink, 0);
  config_.kv_cache.max_attention_window = 8;
  config_.kv_cache.sink_token_length = 0;
  std::get<kernels::ids::Attention>(plan_.calls[3].op).window = 5;
  EXPECT_EQ(window(), 5);
  config_.kv_cache.max_attention_window = 0;
  config_.kv_cache.sink_token_length = 4;
  EXPECT_EQ(size().sink, 4);
  std::get<kernels::ids::Attention>(plan_.calls[3].op).window = 0;
  EXPECT_THAT(error(), HasSubstr("kv_cache.sink_token_length: 4 needs"));
}

}  // namespace
}  // namespace nereid::runtime
