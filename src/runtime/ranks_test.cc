#include "runtime/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "base/scratch_dir.h"
#include "base/testing/source_dir.h"
#include "runtime/model_instance.h"
#include "runtime/ranks/launched_job.h"
#include "runtime/requests/request_check.h"
#include "runtime/testing/test_config.h"

namespace nereid::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Ranks, DevicesAreListedByNumbersAndRanges) {
  EXPECT_THAT(read_devices("cpu").value(), ElementsAre("cpu"));
  EXPECT_THAT(read_devices("cuda:3").value(), ElementsAre("cuda:3"));
  EXPECT_THAT(read_devices("cuda:0-2,5").value(),
              ElementsAre("cuda:0", "cuda:1", "cuda:2", "cuda:5"));
  EXPECT_THAT(read_devices("cuda:1,cuda:1").value(), ElementsAre("cuda:1", "cuda:1"));
  EXPECT_THAT(read_devices("GPU-1f,MIG-2c,cuda:3").value(),
              ElementsAre("GPU-1f", "MIG-2c", "cuda:3"));
  for (const char* bad : {"", "gpu", "cuda:", "cuda:x", "cuda:2-1", "cuda:0,", "cuda:0-99", "0-3"})
    EXPECT_THAT(read_devices(bad).status().ToString(), HasSubstr("devices: '")) << bad;
}

io::Mapping asked_mapping(const char* tp, int32_t pp, int32_t ep) {
  ExecutorConfig c;
  c.tensor_parallel = tp, c.pipeline_parallel = pp, c.expert_parallel = ep;
  return read_mapping(c).value();
}

std::string mapping_error(const char* tp, int32_t pp, int32_t ep) {
  ExecutorConfig c;
  c.tensor_parallel = tp, c.pipeline_parallel = pp, c.expert_parallel = ep;
  EXPECT_EQ(check_config(c), read_mapping(c).status());
  return std::string(read_mapping(c).status().message());
}

TEST(Ranks, MappingsAreThoseOfTheOptions) {
  EXPECT_EQ(asked_mapping("", 0, 0), io::Mapping());
  EXPECT_EQ(asked_mapping("0", 1, 1).tp, 1);
  EXPECT_EQ(asked_mapping("8", 2, 4), (io::Mapping{.tp = 8, .pp = 2, .ep = 4}));
  EXPECT_EQ(asked_mapping("auto", 2, 1).tp, 0);
  EXPECT_EQ(mapping_error("many", 1, 1),
            "tensor_parallel: 'many' is neither auto nor a number from 1 to 64");
  EXPECT_EQ(mapping_error("4", 1, 3), "expert_parallel: 3 does not divide tensor_parallel 4");
  EXPECT_EQ(mapping_error("16", 5, 1),
            "tensor_parallel * pipeline_parallel: 16 * 5 are more than 64 ranks");
}

// Process 0 of `size` while it lives.
class Launched {
 public:
  explicit Launched(int size, int rank = 0) {
    ::setenv(kLaunchedSize, std::to_string(size).c_str(), 1);
    ::setenv(kLaunchedRank, std::to_string(rank).c_str(), 1);
    ::setenv(kLaunchedKey, "key", 1);
  }
  ~Launched() {
    for (const char* const name : {kLaunchedSize, kLaunchedRank, kLaunchedKey}) ::unsetenv(name);
  }
};

TEST(Ranks, LaunchedProcessesHaveTheRanks) {
  const io::Mapping mapping{.tp = 2};
  ExecutorConfig c;
  EXPECT_TRUE(launched_participants(c, mapping).value().empty()) << "started alone";
  c.participant_ids = "0,1";
  EXPECT_THAT(launched_participants(c, mapping).status().ToString(),
              HasSubstr("neither mpirun nor srun"));
  const auto refusal = [&](const char* ids) {
    c.participant_ids = ids;
    return launched_participants(c, mapping).status().ToString();
  };
  {
    const Launched launched(2);
    EXPECT_THAT(launched_participants(c, mapping).value(), ElementsAre(1));
    c.participant_ids.clear();
    EXPECT_THAT(launched_participants(c, mapping).value(), ElementsAre(1));
    EXPECT_THAT(
        launched_participants(c, {.tp = 2, .pp = 2}).status().ToString(),
        HasSubstr("nereid started 2 processes, but the model has 4 ranks (tensor_parallel 2 "
                  "* pipeline_parallel 2): start 4 processes"));
    EXPECT_THAT(refusal("1,0"), HasSubstr("participant_ids: '1,0': in process mode leader"));
    EXPECT_THAT(refusal("0"), HasSubstr("'0' are 1 processes, but the model has 2 ranks"));
    for (const char* const bad : {"0,", "0,x", ",1", "0,-1"})
      EXPECT_THAT(refusal(bad), HasSubstr("expected are numbers")) << bad;
    c.process_mode = "orchestrator";
    c.participant_ids = "1,0";
    EXPECT_THAT(launched_participants(c, mapping).value(), ElementsAre(1, 0));
    c.participant_ids.clear();
    EXPECT_TRUE(launched_participants(c, mapping).value().empty());
    c.process_mode = "leader";
  }
  const Launched more(4);
  c.participant_ids = "0,3";
  EXPECT_THAT(launched_participants(c, mapping).value(), ElementsAre(3));
  const Launched other(4, /*rank=*/1);
  EXPECT_THAT(launched_participants(c, mapping).status().ToString(),
              HasSubstr("process 1 of 4 (nereid): process 0 opens the models"));
}

// Process 0 of three that are on several hosts.
TEST(Ranks, JoinedProcessesHaveSeveralRanks) {
  const ScratchDir dir = ScratchDir::create().value();
  const std::string path = dir.path() / "hosts";
  ASSERT_TRUE(write_file_atomic(path, joined_hosts_json({.workers = {{"a", 1}, {"b", 2}}})).ok());
  ::setenv(kJoinedHosts, path.c_str(), 1);
  ExecutorConfig c;
  const auto participants = [&](const char* ids, io::Mapping mapping) {
    c.participant_ids = ids;
    return launched_participants(c, mapping);
  };
  EXPECT_THAT(participants("", {.tp = 3}).value(), ElementsAre(1, 2));
  EXPECT_THAT(participants("", {.tp = 2, .pp = 3}).value(), ElementsAre(1, 1, 2, 2));
  EXPECT_THAT(participants("0,0,2,2", {.tp = 2, .pp = 2}).value(), ElementsAre(2, 2));
  EXPECT_THAT(
      participants("", {.tp = 4}).status().ToString(),
      HasSubstr("hosts: 3 processes for 4 ranks (tensor_parallel 4 * pipeline_parallel 1)"));
  EXPECT_THAT(participants("0,1,0,2", {.tp = 4}).status().ToString(),
              HasSubstr("the ranks of process 0 are the first ones"));
  ::unsetenv(kJoinedHosts);
}

TEST(Ranks, LaunchedProcessesTakeTheRanksOfTheModel) {
  const ScratchDir dir = ScratchDir::create().value();
  ASSERT_TRUE(write_file_atomic(dir.path() / "config.json",
                                R"({"architecture": "LlamaForCausalLM", "dtype": "bfloat16",
                                    "mapping": {"world_size": 4, "tp_size": 2, "pp_size": 2}})")
                  .ok());
  ExecutorConfig c;
  EXPECT_EQ(mapping_of(dir.path(), c).value(), io::Mapping());
  c.process_mode = "orchestrator";
  EXPECT_EQ(mapping_of(dir.path(), c).value(), (io::Mapping{.tp = 2, .pp = 2}));
  c.process_mode = "leader";
  const Launched launched(4);
  EXPECT_EQ(mapping_of(dir.path(), c).value(), (io::Mapping{.tp = 2, .pp = 2}));
  EXPECT_EQ(mapping_of(dir.path() / "none", c).value(), io::Mapping());
  c.tensor_parallel = "auto";
  EXPECT_EQ(mapping_of(dir.path(), c).value(), (io::Mapping{.tp = 4}));
  c.tensor_parallel = "8";
  EXPECT_EQ(mapping_of(dir.path(), c).value(), (io::Mapping{.tp = 8}));
}

TEST(Ranks, ThreadsOfACpuAreDividedAmongThem) {
  ExecutorConfig c = test_config();
  c.num_threads = 5;
  const auto devices = open_devices(c, 3).value();
  std::vector<int> threads;
  for (const auto& opened : devices) threads.push_back(opened.device->info().num_units);
  EXPECT_THAT(threads, ElementsAre(1, 2, 2));
  c.num_threads = 1;
  const auto few = open_devices(c, 2).value();
  for (const auto& opened : few) EXPECT_EQ(opened.device->info().num_units, 1);
  c.devices = "cuda:0";
  EXPECT_THAT(open_devices(c, 2).status().ToString(),
              HasSubstr("devices: 'cuda:0' has 1 devices; tensor_parallel * pipeline_parallel are "
                        "2 ranks"));
  c.devices = "cpu";
  EXPECT_EQ(open_devices(c, 2).value().size(), 2u);
}

TEST(Ranks, OneThatWaitsIsNotStuckWhileAnotherWorks) {
  ExecutorConfig c = test_config();
  c.num_threads = 2;
  const auto devices = open_devices(c, 2).value();
  const uint64_t before = devices[0].device->health().progress();
  devices[1].device->health().made_progress();
  EXPECT_EQ(devices[0].device->health().progress(), before + 1);
}

// Memory of a model's ranks, on one CPU.
class OpenedRanks : public ::testing::Test {
 protected:
  static ExecutorConfig config(const char* tp, int32_t pp) {
    ExecutorConfig c = test_config();
    c.num_threads = 1;
    c.tensor_parallel = tp, c.pipeline_parallel = pp;
    c.cache_dir = std::filesystem::path(testing::TempDir()) / "nereid_ranks_test";
    return c;
  }
  static StatusOr<ModelInstance> open(const ExecutorConfig& c) {
    return open_model(std::filesystem::path(source_dir()) / "models/quickstart", c);
  }
  static int64_t bytes_of(const ModelInstance& model, std::string_view what, int32_t rank) {
    int64_t sum = 0;
    for (const exec::MemoryItem& item : model.runner->memory())
      if (item.what == what && item.rank == rank) sum += static_cast<int64_t>(item.bytes);
    return sum;
  }
};

TEST_F(OpenedRanks, HavePartsOfWeightsAndCache) {
  const auto one = open(config("1", 1)).value(), two = open(config("2", 1)).value();
  EXPECT_EQ(two.runner->ranks().size(), 2u);
  EXPECT_EQ(one.runner->ranks().size(), 0u);
  EXPECT_LT(bytes_of(two, "weights", 1), bytes_of(one, "weights", 0) * 3 / 4);
  EXPECT_GT(bytes_of(two, "sampling", 0), 0);
  EXPECT_EQ(bytes_of(two, "sampling", 1), 0) << "it does not draw";
  EXPECT_EQ(two.runner->limits().num_blocks, one.runner->limits().num_blocks);
  EXPECT_EQ(bytes_of(two, "KV cache", 0) + bytes_of(two, "KV cache", 1),
            bytes_of(one, "KV cache", 0));
}

TEST_F(OpenedRanks, OfAPipelineHaveAStepMoreInFlightThanStages) {
  ExecutorConfig c = config("1", 3);
  const auto model = open(c).value();
  EXPECT_EQ(model.num_stages, 3);
  EXPECT_EQ(model.runner->limits().depth, 4);
  EXPECT_EQ(bytes_of(model, "sampling", 0), 0);
  EXPECT_GT(bytes_of(model, "sampling", 2), 0) << "the last stage draws";
  c.enable_overlap = false;
  EXPECT_EQ(open(c).value().runner->limits().depth, 3);
}

TEST_F(OpenedRanks, ShareTheMemoryOfTheirDevice) {
  ExecutorConfig c = config("2", 1);
  c.memory_bytes = 64 << 20;
  c.kv_cache.host_cache_bytes = 8 << 20;
  const auto two = open(c).value();
  int64_t total = 0, host = 0;
  for (const exec::MemoryItem& item : two.runner->memory())
    (item.what.starts_with("host ") ? host : total) += static_cast<int64_t>(item.bytes);
  EXPECT_LE(total, c.memory_bytes);
  EXPECT_GT(total, c.memory_bytes / 2);
  EXPECT_LE(host, c.kv_cache.host_cache_bytes);
  EXPECT_GT(host, c.kv_cache.host_cache_bytes / 2);
}

TEST_F(OpenedRanks, RefuseWhatTheyCannot) {
  const auto error = open(config("7", 1)).status();
  EXPECT_TRUE(absl::IsInvalidArgument(error)) << error;
}

}  // namespace
}  // namespace nereid::runtime
