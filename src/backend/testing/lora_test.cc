// LoRA adapters through the server: loaded at start, sent by requests, refused by name.
#include "backend/testing/feature_fixture.h"
#include "base/testing/source_dir.h"

namespace nereid::backend {
namespace {

constexpr uint64_t kNamed = uint64_t{1} << 63;  // id of the first adapter in lora_modules

class LoraTest : public FeatureTest {
 protected:
  static Output task_id(uint64_t id) {
    return {"lora_task_id",
            TRITONSERVER_TYPE_UINT64,
            {1, 1},
            std::string(reinterpret_cast<const char*>(&id), sizeof(id))};
  }
  // Weights of rank 1 for the queries of layer 0: the half-precision number `bits` everywhere.
  static Output weights(uint16_t bits) {
    std::string bytes;
    for (int i = 0; i < 2 * 256; ++i) {
      bytes += static_cast<char>(bits & 0xff);
      bytes += static_cast<char>(bits >> 8);
    }
    return {"lora_weights", TRITONSERVER_TYPE_FP16, {1, 1, 512}, std::move(bytes)};
  }
  static Output config(int32_t module = 1, int32_t layer = 0, int32_t rank = 1) {
    return make_output("lora_config", {1, 1, 3}, Ids{module, layer, rank});
  }
  static Output path_input(std::string_view path) {
    return text_input("lora_path", {std::string(path)});
  }
  static Conversation ask_with(TRITONSERVER_Server* server, std::vector<Output> more) {
    more.push_back(
        ids_input("input_ids", {2, 307, 204, 394, 296, 1350, 1039, 36, 3, 204, 2, 309, 204}));
    more.push_back(int_input("input_lengths", 13));
    more.push_back(int_input("request_output_len", 8));
    more.push_back(bool_input("exclude_input_in_output", true));
    return Talk(server, "tensorrt_llm", std::move(more)).wait();
  }
};

class LoraOfInstances : public LoraTest, public testing::WithParamInterface<const char*> {};

TEST_P(LoraOfInstances, RequestsNameAdaptersAndBringThem) {
  const std::string dir = source_dir() + "/tests/adapters/";
  TRITONSERVER_Server* server = nullptr;
  fs::path repository;
  start(server, repository,
        {{"lora_modules", "upper=" + dir + "upper;thanks=" + dir + "thanks"},
         {"lora_cache_max_adapter_size", "16"},
         {"num_instances", GetParam()}});
  const auto tokens = [&](std::vector<Output> more) {
    const Conversation got = ask_with(server, std::move(more));
    EXPECT_TRUE(got.status.ok()) << got.status;
    return got.status.ok() ? tokens_of(got) : Ids();
  };
  const auto refusal = [&](std::vector<Output> more) {
    return std::string(message(ask_with(server, std::move(more)).status));
  };
  const Ids plain = tokens({});
  EXPECT_EQ(tokens({task_id(kNamed)}), (Ids{50, 2785, 669, 42, 3003, 914, 51, 1366}));  // a golden
  EXPECT_EQ(tokens({task_id(0)}), plain);
  constexpr uint16_t kOne = 0x3c00, kTwo = 0x4000;
  EXPECT_THAT(refusal({task_id(7)}), HasSubstr("task id 7 is not in the cache of 2 adapters"));
  const Ids brought = tokens({task_id(7), weights(kOne), config()});
  EXPECT_NE(brought, plain);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(tokens({task_id(7)}), brought);
  EXPECT_EQ(tokens({task_id(8), weights(0), config()}), plain);
  EXPECT_THAT(refusal({task_id(7), weights(kTwo), config()}), HasSubstr("has other weights"));
  EXPECT_THAT(refusal({task_id(9), weights(kOne)}), HasSubstr("come together"));
  EXPECT_THAT(refusal({weights(kOne), config()}), HasSubstr("needs 'lora_task_id'"));
  EXPECT_THAT(refusal({task_id(9), weights(kOne), config(1, 0, 17)}),
              HasSubstr("rank 17 is not in [1, 16]"));
  EXPECT_THAT(refusal({task_id(9), weights(kOne), config(1, 6)}), HasSubstr("in layer 6"));
  EXPECT_THAT(refusal({task_id(9), path_input("upper")}), HasSubstr("no parameter lora_load_dir"));
  EXPECT_EQ(tokens({}), plain);
}

INSTANTIATE_TEST_SUITE_P(Instances, LoraOfInstances, testing::Values("1", "2"));

// The front end names the folder of an adapter loaded by request.
TEST_F(LoraTest, RequestsNameFoldersInsideOne) {
  const std::string dir = source_dir() + "/tests/adapters";
  TRITONSERVER_Server* server = nullptr;
  fs::path repository;
  start(server, repository, {{"lora_load_dir", dir}, {"lora_cache_max_adapter_size", "16"}});
  const auto figure = [&](const std::string& name) {
    return metric(metrics_page(server), "nereid_lora_" + name + "{");
  };
  const double hits = figure("hits_total"), misses = figure("misses_total"),
               loads = figure("loads_total");
  const auto ask_in = [&](std::string_view folder) {
    return ask_with(server, {task_id(9), path_input(folder)});
  };
  EXPECT_THAT(message(ask_in("/etc").status), HasSubstr("does not lie inside"));
  EXPECT_THAT(message(ask_in("nowhere").status), HasSubstr("'nowhere' is no folder"));
  EXPECT_THAT(message(ask_in("").status), HasSubstr("task id 9 is not in the cache"));
  const Conversation got = ask_in("upper");
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_EQ(tokens_of(got), (Ids{50, 2785, 669, 42, 3003, 914, 51, 1366}));  // a golden
  EXPECT_EQ(tokens_of(ask_in("upper")), tokens_of(got));
  // Two misses and a hit. The page may lag, and its counters include all servers of this process.
  for (int i = 0; i < 600 && figure("hits_total") < hits + 1; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_GE(figure("hits_total"), hits + 1);
  EXPECT_GE(figure("misses_total"), misses + 2);
  EXPECT_GE(figure("loads_total"), loads + 1);
  EXPECT_GE(figure("host_adapters"), 1);
  EXPECT_GE(figure("places_used"), 1);
  EXPECT_GT(figure("places"), 1);
  EXPECT_GE(figure("pages_used"), 29);  // rank 8, which fills the adapter
  EXPECT_GT(figure("pages"), 29);
  EXPECT_GT(figure("host_bytes"), 400000);
  EXPECT_EQ(figure("host_max_bytes"), 1 << 30);
  EXPECT_THAT(message(ask_with(server, {path_input("upper")}).status),
              HasSubstr("'lora_task_id' alone"));
}

TEST_F(LoraTest, AModelThatTakesNoneSaysSo) {
  EXPECT_THAT(message(ask_with(server_, {task_id(7)}).status),
              HasSubstr("input 'lora_task_id' is not supported: the model takes no adapters"));
}

}  // namespace
}  // namespace nereid::backend
