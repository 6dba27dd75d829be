// Adapters on the shipped model: equal to Hugging Face PEFT (tests/golden), from folders and from
// the tensors of requests, alone and side by side, with places for all of them and for one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "base/json.h"
#include "base/testing/source_dir.h"
#include "io/checkpoint.h"
#include "runtime/exactness.h"

namespace nereid::runtime::exactness {
namespace {

using ::testing::HasSubstr;

const std::filesystem::path kTree = source_dir();
const char* const kAdapters[] = {"upper", "thanks"};
constexpr uint64_t kUpper = 1, kUnknown = 77;
constexpr int kNumModules = 42;  // that the adapters change
// Module layers (of rank 64 of 256 + 768 columns and rows) that one of them fills: 29 pages of rank
// 8, of which each has 8.
constexpr int kAdapterLayers = 4, kAdapterPages = 29;

ExecutorConfig lora_config() {
  ExecutorConfig config;
  config.num_threads = 1;
  // Near ties are decided by the order of summation, so the same kernels everywhere.
  config.isa = "avx2";
  config.kv_cache.max_tokens = 8192;
  config.enable_lora = true;
  config.peft_cache.num_device_module_layers = 4 * kAdapterLayers;
  config.cache_dir = std::filesystem::path(testing::TempDir()) / "nereid_exactness_test";
  return config;
}

ExecutorConfig with_directories() {
  ExecutorConfig config = lora_config();
  for (const char* name : kAdapters)
    config.lora_directories.push_back(
        {config.lora_directories.size() + 1, kTree / "tests/adapters" / name});
  return config;
}

struct LoraCase {
  Request request;
  std::vector<TokenId> greedy;  // as many as are clear
};

std::vector<LoraCase> golden_cases() {
  std::vector<LoraCase> cases;
  const json::value golden = read_json_file(kTree / "tests/golden/lora.json").value();
  for (const json::value& v : golden.at("cases").as_array()) {
    LoraCase c;
    for (const json::value& id : v.at("prompt_ids").as_array())
      c.request.input_token_ids.push_back(id.to_number<TokenId>());
    for (const json::value& id : v.at("greedy_ids").as_array())
      c.greedy.push_back(id.to_number<TokenId>());
    c.greedy.resize(v.at("clear_steps").to_number<size_t>());
    c.request.max_tokens = static_cast<int32_t>(c.greedy.size());
    c.request.output.return_log_probs = true;
    c.request.lora =
        LoraConfig{.task_id = v.at("adapter").as_string() == "lora-upper" ? kUpper : kUpper + 1};
    cases.push_back(std::move(c));
  }
  return cases;
}

// An adapter's folder as the tensors of a request, its scale of 2 included.
LoraConfig tensors_of(const char* name, uint64_t task_id) {
  const auto file =
      io::TensorFile::open(kTree / "tests/adapters" / name / "adapter_model.safetensors").value();
  const std::vector<std::pair<std::string, int32_t>> ids = {
      {"q_proj", 1},    {"k_proj", 2},    {"v_proj", 3}, {"o_proj", 4},
      {"gate_proj", 5}, {"down_proj", 6}, {"up_proj", 7}};
  std::vector<std::vector<float>> rows;
  LoraConfig lora{.task_id = task_id};
  const auto append = [&](const std::string& tensor, float scale) {
    for (const io::StoredTensor& t : file.tensors()) {
      if (t.name != tensor) continue;
      for (size_t i = 0; i < t.data.size(); i += sizeof(BF16)) {
        BF16 x;
        std::memcpy(&x, &t.data[i], sizeof(x));
        rows.back().push_back(scale * to_float(x));
      }
    }
  };
  for (int32_t layer = 0; layer < 6; ++layer)
    for (const auto& [module, id] : ids) {
      const auto prefix = fmt::format("base_model.model.model.layers.{}.{}.{}", layer,
                                      id < 5 ? "self_attn" : "mlp", module);
      rows.emplace_back();
      append(prefix + ".lora_A.weight", 1);
      append(prefix + ".lora_B.weight", 2);
      lora.config.insert(lora.config.end(), {id, layer, 8});
    }
  size_t length = 0;
  for (const auto& row : rows) length = std::max(length, row.size());
  for (auto& row : rows) {
    row.resize(length);
    lora.weights.insert(lora.weights.end(), row.begin(), row.end());
  }
  return lora;
}

// Of rank 1 on the down_proj of one layer; each task id has its own weights.
LoraConfig small_adapter(uint64_t task_id) {
  constexpr size_t kInner = 768, kHidden = 256;
  LoraConfig lora{.task_id = task_id, .config = {6, static_cast<int32_t>(task_id % 6), 1}};
  for (size_t i = 0; i < kInner + kHidden; ++i)
    lora.weights.push_back(std::sin(static_cast<float>(task_id * 1009 + i * i)) / 4);
  return lora;
}
constexpr size_t kSmallAdapterBytes = sizeof(exec::AdapterMatrix) + 1024 * sizeof(BF16);

void expect_counts_add_up(Executor& executor) {
  executor.drain(std::chrono::seconds(60));
  const ExecutorStats s = executor.stats();
  EXPECT_EQ(s.kv_blocks_free, s.kv_blocks_total);
  EXPECT_EQ(s.num_active, 0);
  EXPECT_EQ(s.num_waiting, 0);
}

std::unique_ptr<Executor> create(const ExecutorConfig& config) {
  auto executor = Executor::create(kTree / "models/quickstart", config);
  EXPECT_TRUE(executor.ok()) << executor.status();
  return executor.ok() ? *std::move(executor) : nullptr;
}

TEST(GoldenLora, EqualsPeftAloneAndInABatch) {
  const std::vector<LoraCase> cases = golden_cases();
  ASSERT_EQ(cases.size(), 16u);
  Client client;
  const auto executor = create(with_directories());
  ASSERT_TRUE(executor);
  std::vector<Request> requests;
  for (const LoraCase& c : cases) {
    requests.push_back(c.request);
    requests.push_back(c.request);
    requests.back().lora.reset();
  }
  // Two more adapters, brought along.
  for (uint64_t i = 0; i < 2; ++i) {
    requests.push_back(cases[i].request);
    requests.back().lora = tensors_of(kAdapters[i], kUpper + 2 + i);
  }
  std::vector<Outcome> alone;
  for (size_t i = 0; i < requests.size(); ++i) {
    alone.push_back(client.run(*executor, requests[i]));
    ASSERT_TRUE(alone.back().status.ok()) << alone.back().status;
    if (i >= 2 * cases.size()) continue;
    const std::vector<TokenId>& tokens = alone.back().sequences[0][0].tokens;
    if (i % 2 == 0) {
      EXPECT_EQ(tokens, cases[i / 2].greedy) << i / 2;
    } else {
      EXPECT_NE(tokens, cases[i / 2].greedy) << "without its adapter";
    }
  }
  std::vector<RequestId> ids;
  for (const Request& r : requests) ids.push_back(client.send(*executor, r));
  for (size_t i = 0; i < ids.size(); ++i)
    EXPECT_EQ(difference(alone[i], client.wait(ids[i])), "") << i;
}

// Equal to NumPy (tests/golden/tiny_heads.py), alone, beside others, and with drafts of a model
// that knows nothing of adapters.
TEST(GoldenLora, OneOfTheHeadEqualsNumPy) {
  constexpr uint64_t kHead = 9;
  const json::value golden = read_json_file(kTree / "tests/golden/head_adapter.json").value();
  std::vector<Request> requests;
  std::vector<std::vector<TokenId>> greedy;
  for (const json::value& v : golden.at("cases").as_array()) {
    Request& r = requests.emplace_back();
    for (const json::value& id : v.at("prompt_ids").as_array())
      r.input_token_ids.push_back(id.to_number<TokenId>());
    std::vector<TokenId>& tokens = greedy.emplace_back();
    for (const json::value& id : v.at("greedy_ids").as_array())
      tokens.push_back(id.to_number<TokenId>());
    r.max_tokens = static_cast<int32_t>(tokens.size());
    r.output.return_log_probs = true;
    r.lora = LoraConfig{.task_id = kHead};
  }
  ASSERT_GE(requests.size(), 8u);
  ExecutorConfig config = with_directories();
  config.lora_directories.push_back({kHead, kTree / "tests/adapters/head"});
  for (const char* draft_model : {"", "models/quickstart-draft"}) {
    config.draft_model = *draft_model ? kTree / draft_model : std::filesystem::path();
    config.speculation = *draft_model ? "draft_model" : "none";
    Client client;
    const auto executor = create(config);
    ASSERT_TRUE(executor);
    std::vector<Outcome> alone;
    std::vector<RequestId> ids;
    for (size_t i = 0; i < requests.size(); ++i) {
      alone.push_back(client.run(*executor, requests[i]));
      ASSERT_TRUE(alone.back().status.ok()) << alone.back().status;
      EXPECT_EQ(alone.back().sequences[0][0].tokens, greedy[i]) << i;
    }
    for (Request other : requests) {
      ids.push_back(client.send(*executor, other));
      other.lora.reset();
      client.send(*executor, other);
      other.lora = LoraConfig{.task_id = kUpper};
      client.send(*executor, other);
    }
    for (size_t i = 0; i < ids.size(); ++i)
      EXPECT_EQ(difference(alone[i], client.wait(ids[i])), "") << i;
    expect_counts_add_up(*executor);
  }
}

// The scale is a power of two, so that it may stand anywhere.
TEST(GoldenLora, TensorsOfRequestsAreTheSameAdapter) {
  Client client;
  const auto executor = create(with_directories());
  ASSERT_TRUE(executor);
  Request named = golden_cases()[0].request;
  Request brought = named;
  brought.lora = tensors_of("upper", kUnknown);
  const Outcome expected = client.run(*executor, named);
  EXPECT_EQ(difference(expected, client.run(*executor, brought)), "");
  brought.lora = LoraConfig{.task_id = kUnknown};  // known by now
  EXPECT_EQ(difference(expected, client.run(*executor, brought)), "");
  brought.lora = tensors_of("upper", kUnknown);
  EXPECT_EQ(difference(expected, client.run(*executor, brought)), "");
}

void write_npy(const std::filesystem::path& path, const std::string& type, const std::string& shape,
               std::span<const std::byte> data) {
  const std::string header =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }\n";
  std::ofstream file(path, std::ios::binary);
  file << "\x93NUMPY" << '\1' << '\0' << static_cast<char>(header.size()) << '\0' << header;
  file.write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
}

// What hf_lora_convert.py writes.
TEST(GoldenLora, AdaptersArePrefetched) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "nereid_lora_prefetch";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "5");
  const LoraConfig lora = tensors_of("upper", 5);
  write_npy(folder / "5/model.lora_weights.npy", "<f4",
            fmt::format("1, 42, {}", lora.weights.size() / kNumModules),
            std::as_bytes(std::span(lora.weights)));
  write_npy(folder / "5/model.lora_config.npy", "<i4", "1, 42, 3",
            std::as_bytes(std::span(lora.config)));
  ExecutorConfig config = lora_config();
  config.peft_cache.prefetch_dir = folder;
  Client client;
  const auto executor = create(config);
  ASSERT_TRUE(executor);
  LoraCase c = golden_cases()[0];
  c.request.lora = LoraConfig{.task_id = 5};
  const Outcome got = client.run(*executor, c.request);
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_EQ(got.sequences[0][0].tokens, c.greedy);
  const auto refusal = [&] {
    return Executor::create(kTree / "models/quickstart", config).status().ToString();
  };
  std::filesystem::create_directories(folder / "x5");
  EXPECT_THAT(refusal(), HasSubstr("'x5' is no task id"));
  std::filesystem::rename(folder / "x5", folder / "6");
  EXPECT_THAT(refusal(), HasSubstr("/6: has neither adapter_config.json (PEFT) nor"));
  write_npy(folder / "6/model.lora_weights.npy", "<f4", "1, 1, 1", std::vector<std::byte>(4));
  EXPECT_THAT(refusal(), HasSubstr("6/model.lora_config.npy"));
}

TEST(GoldenLora, ManyAdaptersTakeTurnsInOnePlace) {
  const std::vector<LoraCase> cases = golden_cases();
  ExecutorConfig config = with_directories();
  config.peft_cache.num_device_module_layers = kAdapterLayers;
  Client client;
  const auto executor = create(config);
  ASSERT_TRUE(executor);
  std::vector<RequestId> ids;
  for (const LoraCase& c : cases) ids.push_back(client.send(*executor, c.request));
  for (size_t i = 0; i < ids.size(); ++i) {
    const Outcome got = client.wait(ids[i]);
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_EQ(got.sequences[0][0].tokens, cases[i].greedy) << i;
  }
  executor->drain(std::chrono::seconds(60));
  EXPECT_EQ(executor->stats().adapters.num_places_used, 1);
  EXPECT_GT(executor->stats().adapters.num_loads, 1);
}

// The first matrices of an adapter.
LoraConfig part_of(const LoraConfig& lora, int num_modules, uint64_t task_id) {
  LoraConfig part{.task_id = task_id, .weights = lora.weights, .config = lora.config};
  part.weights.resize(lora.weights.size() / kNumModules * static_cast<size_t>(num_modules));
  part.config.resize(3 * static_cast<size_t>(num_modules));
  return part;
}

// Adapters of 1 to 29 pages in 60, with no order in which they come and go, so that the free pages
// do not lie side by side.
TEST(GoldenLora, AdaptersOfManySizesSharePages) {
  ExecutorConfig config = with_directories();
  config.max_batch_size = 8;
  config.peft_cache.optimal_adapter_size = 8;
  config.peft_cache.num_device_module_layers = 8;
  Client client;
  const auto executor = create(config);
  ASSERT_TRUE(executor);
  const LoraConfig whole = tensors_of("thanks", 0);
  std::vector<Request> requests;
  std::vector<Outcome> alone;
  for (uint64_t i = 0; i < 12; ++i) {
    Request r = golden_cases()[i].request;
    r.max_tokens = 2 + static_cast<int32_t>(i * 5 % 17);
    r.lora = part_of(whole, 1 + static_cast<int>(i * 29 % 41), 100 + i);
    alone.push_back(client.run(*executor, r));
    ASSERT_TRUE(alone.back().status.ok()) << alone.back().status;
    r.lora = LoraConfig{.task_id = 100 + i};
    requests.push_back(r);
  }
  const int64_t loads = executor->stats().adapters.num_loads;
  std::vector<std::pair<RequestId, size_t>> sent;
  for (size_t round = 0; round < 10; ++round)
    for (size_t i = 0; i < requests.size(); ++i) {
      const size_t which = (i * (round % 2 ? 5 : 7) + round) % requests.size();
      sent.emplace_back(client.send(*executor, requests[which]), which);
    }
  for (const auto& [id, which] : sent)
    EXPECT_EQ(difference(alone[which], client.wait(id)), "") << which;
  expect_counts_add_up(*executor);
  EXPECT_GT(executor->stats().adapters.num_loads, loads);
}

TEST(GoldenLora, OneOfMorePagesThanThereAreIsRefused) {
  ExecutorConfig config = lora_config();
  config.peft_cache.num_device_module_layers = 2;
  Client client;
  const auto executor = create(config);
  ASSERT_TRUE(executor);
  Request request = golden_cases()[0].request;
  request.lora = tensors_of("upper", 5);
  EXPECT_THAT(executor->enqueue(request).status().ToString(),
              HasSubstr("lora: task id 5 takes 29 pages of 16384 bytes on the device, whose cache "
                        "has 16"));
  request.lora = part_of(tensors_of("upper", 5), 20, 5);
  EXPECT_TRUE(client.run(*executor, request).status.ok());
  config.lora_directories = {{1, kTree / "tests/adapters/upper"}};
  EXPECT_THAT(Executor::create(kTree / "models/quickstart", config).status().ToString(),
              HasSubstr("task id 1 takes 29 pages"));
}

TEST(GoldenLora, EqualsPeftBesideThirtyOtherAdaptersAndNone) {
  constexpr uint64_t kOthers = 30, kFirst = 100;
  const std::vector<LoraCase> cases = golden_cases();
  ExecutorConfig config = with_directories();
  config.max_batch_size = 64;
  config.kv_cache.max_tokens = 16384;
  config.peft_cache.max_adapter_size = 8;
  config.peft_cache.num_device_module_layers = 2 * kAdapterPages + kOthers;
  Client client;
  const auto executor = create(config);
  ASSERT_TRUE(executor);
  // Those beside the golden ones run first and longest, so that these meet all of them.
  std::vector<Request> others;
  for (uint64_t i = 0; i < kOthers + 4; ++i) {
    others.push_back(cases[i % cases.size()].request);
    others.back().max_tokens = 64;
    others.back().lora.reset();
    if (i < kOthers) others.back().lora = small_adapter(kFirst + i);
  }
  std::vector<Outcome> alone;
  for (size_t i = 0; i < others.size(); i += 5) alone.push_back(client.run(*executor, others[i]));
  std::vector<RequestId> other_ids, ids;
  for (const Request& r : others) other_ids.push_back(client.send(*executor, r));
  for (const LoraCase& c : cases) ids.push_back(client.send(*executor, c.request));
  for (size_t i = 0; i < ids.size(); ++i) {
    const Outcome got = client.wait(ids[i]);
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_EQ(got.sequences[0][0].tokens, cases[i].greedy) << i;
  }
  for (size_t i = 0; i < other_ids.size(); ++i) {
    const Outcome got = client.wait(other_ids[i]);
    ASSERT_TRUE(got.status.ok()) << got.status;
    if (i % 5 != 0) continue;
    EXPECT_EQ(difference(alone[i / 5], got), "") << i;
  }
  int32_t most = 0;
  for (const IterationStats& s : executor->latest_iteration_stats())
    most = std::max(most, s.num_scheduled_requests);
  EXPECT_GT(most, 40) << "requests in one step";
  expect_counts_add_up(*executor);
}

// Each client sends its adapters two at a time, and after them, by the id alone, one it sent a
// while before: it is either still there or refused by name and then brought again.
TEST(GoldenLora, AThousandAdaptersPassThroughRoomForTwenty) {
  constexpr uint64_t kAdapters = 1000, kClients = 4, kSampled = 25;
  ExecutorConfig config = lora_config();
  config.peft_cache.max_adapter_size = config.peft_cache.optimal_adapter_size = 1;
  config.peft_cache.num_device_module_layers = 3;
  config.peft_cache.host_cache_bytes = 20 * kSmallAdapterBytes;
  Client client;
  const auto executor = create(config);
  ASSERT_TRUE(executor);
  Request plain = golden_cases()[0].request;
  plain.max_tokens = 2;
  const auto with = [&](const LoraConfig& lora) {
    Request r = plain;
    r.lora = lora;
    return r;
  };
  std::map<uint64_t, Outcome> alone;
  std::set<float> different;
  for (uint64_t id = kSampled; id <= kAdapters; id += kSampled) {
    alone[id] = client.run(*executor, with(small_adapter(id)));
    ASSERT_TRUE(alone[id].status.ok()) << alone[id].status;
    different.insert(alone[id].sequences[0][0].log_probs[0]);
  }
  EXPECT_EQ(different.size(), alone.size()) << "adapters do nothing";
  const auto check = [&](uint64_t id, const Outcome& got) {
    EXPECT_TRUE(got.status.ok()) << id << ": " << got.status;
    if (!alone.contains(id)) return;
    EXPECT_EQ(difference(alone[id], got), "") << id;
  };
  std::atomic<int> num_there = 0, num_evicted = 0;
  const auto again = [&](uint64_t id) {
    const auto sent = executor->enqueue(with({.task_id = id}));
    if (!sent.ok()) {
      ++num_evicted;
      EXPECT_THAT(sent.status().ToString(),
                  HasSubstr(fmt::format("task id {} is not in the cache", id)));
      check(id, client.run(*executor, with(small_adapter(id))));
      return;
    }
    ++num_there;
    const auto responses = executor->await_responses(*sent, std::chrono::seconds(60));
    ASSERT_EQ(responses.size(), 1u) << id;
    ASSERT_TRUE(responses[0].status.ok()) << id << ": " << responses[0].status;
    if (!alone.contains(id)) return;
    EXPECT_EQ(responses[0].outputs[0].log_probs, alone[id].sequences[0][0].log_probs) << id;
  };
  std::vector<std::thread> clients;
  for (uint64_t c = 1; c <= kClients; ++c)
    clients.emplace_back([&, c] {
      for (uint64_t id = c; id <= kAdapters; id += 2 * kClients) {
        const uint64_t other = id + kClients;
        const RequestId first = client.send(*executor, with(small_adapter(id)));
        if (other <= kAdapters) check(other, client.run(*executor, with(small_adapter(other))));
        check(id, client.wait(first));
        again(id);
        if (id > 100) again(id - 100);
      }
    });
  for (std::thread& t : clients) t.join();
  EXPECT_GT(num_there, 0);
  EXPECT_GT(num_evicted, 0);
  expect_counts_add_up(*executor);
}

TEST(GoldenLora, TheHostCacheEvicts) {
  ExecutorConfig config = lora_config();
  config.peft_cache.host_cache_bytes = 500'000;  // one adapter
  Client client;
  const auto executor = create(config);
  ASSERT_TRUE(executor);
  Request request = golden_cases()[0].request;
  for (uint64_t id = 1; id <= 3; ++id) {
    request.lora = tensors_of("upper", id);
    EXPECT_TRUE(client.run(*executor, request).status.ok());
  }
  request.lora = LoraConfig{.task_id = 1};
  const auto refused = executor->enqueue(request);
  EXPECT_THAT(refused.status().ToString(),
              HasSubstr("task id 1 is not in the cache of 1 adapters"));
}

TEST(GoldenLora, RefusesWhatDoesNotFit) {
  Client client;
  const auto executor = create(with_directories());
  ASSERT_TRUE(executor);
  Request request = golden_cases()[0].request;
  const auto refusal = [&](const LoraConfig& lora) {
    request.lora = lora;
    return executor->enqueue(request).status().ToString();
  };
  EXPECT_THAT(refusal({.task_id = kUnknown}), HasSubstr("task id 77 is not in the cache of 2"));
  EXPECT_THAT(refusal(tensors_of("thanks", kUpper)), HasSubstr("task id 1 has other weights"));
  const auto changed = [&](auto change) {
    LoraConfig lora = tensors_of("upper", kUnknown);
    change(lora);
    return refusal(lora);
  };
  EXPECT_THAT(changed([](auto& l) { l.config.pop_back(); }), HasSubstr("125 numbers are not rows"));
  EXPECT_THAT(changed([](auto& l) { l.config.clear(); }), HasSubstr("0 numbers are not rows of 3"));
  EXPECT_THAT(changed([](auto& l) { l.weights.pop_back(); }), HasSubstr("are not 42 rows"));
  EXPECT_THAT(changed([](auto& l) { l.config[0] = 9; }), HasSubstr("module 9 (cross_attn_q): no"));
  EXPECT_THAT(changed([](auto& l) { l.config[0] = 99; }), HasSubstr("module 99 is not known"));
  EXPECT_THAT(changed([](auto& l) { l.config[1] = 6; }),
              HasSubstr("the model has no module 1 (attn_q) in layer 6"));
  EXPECT_THAT(
      changed([](auto& l) { l.config[2] = 65; }),
      HasSubstr("row 0: module 'model.layers.0.self_attn.q_proj': rank 65 is not in [1, 64]"));
  EXPECT_THAT(changed([](auto& l) { l.config[2] = 20; }),
              HasSubstr("of rank 20 needs 10240 weights, a row has 8192"));
  EXPECT_THAT(changed([](auto& l) { l.config[2] = 7; }), HasSubstr("weights, the row has more"));
  EXPECT_THAT(changed([](auto& l) { l.config[3] = 1; }), HasSubstr("is there twice"));
  EXPECT_THAT(changed([](auto& l) { l.weights[0] = 1.0f / 0.0f; }),
              HasSubstr("a weight is not a finite number"));
  const Outcome fine = client.run(*executor, golden_cases()[0].request);
  EXPECT_TRUE(fine.status.ok()) << fine.status;
}

TEST(GoldenLora, AModelWithoutAdaptersTakesNone) {
  ExecutorConfig config = lora_config();
  config.enable_lora = false;
  config.peft_cache = {};
  const auto executor = create(config);
  ASSERT_TRUE(executor);
  EXPECT_THAT(executor->enqueue(golden_cases()[0].request).status().ToString(),
              HasSubstr("the model takes no adapters"));
}

}  // namespace
}  // namespace nereid::runtime::exactness
