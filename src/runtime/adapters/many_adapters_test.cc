// More adapters than the device or the host cache holds: results as alone, and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <set>
#include <thread>

#include "runtime/testing/exactness.h"
#include "runtime/testing/golden_lora.h"

namespace nereid::runtime::exactness {
namespace {

using ::testing::HasSubstr;

// Rank 1, down_proj of one layer; weights depend on the task id.
LoraConfig small_adapter(uint64_t task_id) {
  constexpr size_t kInner = 768, kHidden = 256;
  LoraConfig lora{.task_id = task_id, .config = {6, static_cast<int32_t>(task_id % 6), 1}};
  for (size_t i = 0; i < kInner + kHidden; ++i)
    lora.weights.push_back(std::sin(static_cast<float>(task_id * 1009 + i * i)) / 4);
  return lora;
}
constexpr size_t kSmallAdapterBytes = sizeof(exec::LoraMatrixInfo) + 1024 * sizeof(BF16);

// The first num_modules modules of an adapter.
LoraConfig part_of(const LoraConfig& lora, int num_modules, uint64_t task_id) {
  LoraConfig part{.task_id = task_id, .weights = lora.weights, .config = lora.config};
  part.weights.resize(lora.weights.size() / kNumModules * static_cast<size_t>(num_modules));
  part.config.resize(3 * static_cast<size_t>(num_modules));
  return part;
}

TEST(ManyAdapters, TakeTurnsInOnePlace) {
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
  EXPECT_EQ(executor->stats().adapters.num_pages, 8 * kAdapterLayers);
  EXPECT_EQ(executor->stats().adapters.num_pages_used, kAdapterPages);
  EXPECT_EQ(executor->stats().adapters.num_places_used, 1);
  EXPECT_GT(executor->stats().adapters.num_loads, 1);
}

// Adapters of 1 to 29 pages in 60 pages, in random order, so that free pages are scattered.
TEST(ManyAdapters, OfManySizesSharePages) {
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
  EXPECT_LE(executor->stats().adapters.num_pages_used, executor->stats().adapters.num_pages);
}

TEST(ManyAdapters, OneOfMorePagesThanThereAreIsRefused) {
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

TEST(ManyAdapters, EqualPeftBesideThirtyOtherAdaptersAndNone) {
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
  // The other adapters run first and longest, next to all golden ones.
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

// Requests with small adapters from several threads at once.
class SmallAdapters {
 public:
  explicit SmallAdapters(Executor& executor)
      : executor_(executor), plain_(golden_cases()[0].request) {
    plain_.max_tokens = 2;
  }

  // Stores the outcome of every `step`-th adapter up to `last`.
  void run_alone(uint64_t step, uint64_t last) {
    std::set<float> different;
    for (uint64_t id = step; id <= last; id += step) {
      alone_[id] = client_.run(executor_, with(small_adapter(id)));
      ASSERT_TRUE(alone_[id].status.ok()) << alone_[id].status;
      different.insert(alone_[id].sequences[0][0].log_probs[0]);
    }
    EXPECT_EQ(different.size(), alone_.size()) << "adapters do nothing";
  }

  // Sends every `step`-th adapter of [first, last], two at a time, then an earlier one by id alone.
  void send(uint64_t first, uint64_t step, uint64_t last) {
    for (uint64_t id = first; id <= last; id += 2 * step) {
      const uint64_t other = id + step;
      const RequestId sent = client_.send(executor_, with(small_adapter(id)));
      if (other <= last) check(other, client_.run(executor_, with(small_adapter(other))));
      check(id, client_.wait(sent));
      send_again(id);
      if (id > 100) send_again(id - 100);
    }
  }

  int num_there() const { return num_there_; }
  int num_evicted() const { return num_evicted_; }

 private:
  Request with(const LoraConfig& lora) const {
    Request r = plain_;
    r.lora = lora;
    return r;
  }
  void check(uint64_t id, const Outcome& got) {
    EXPECT_TRUE(got.status.ok()) << id << ": " << got.status;
    if (!alone_.contains(id)) return;
    EXPECT_EQ(difference(alone_[id], got), "") << id;
  }
  // Still cached, or refused by name and sent with its weights.
  void send_again(uint64_t id) {
    const auto sent = executor_.enqueue(with({.task_id = id}));
    if (!sent.ok()) {
      ++num_evicted_;
      EXPECT_THAT(sent.status().ToString(),
                  HasSubstr(fmt::format("task id {} is not in the cache", id)));
      check(id, client_.run(executor_, with(small_adapter(id))));
      return;
    }
    ++num_there_;
    const auto responses = executor_.await_responses(*sent, std::chrono::seconds(60));
    ASSERT_EQ(responses.size(), 1u) << id;
    ASSERT_TRUE(responses[0].status.ok()) << id << ": " << responses[0].status;
    if (!alone_.contains(id)) return;
    EXPECT_EQ(responses[0].outputs[0].log_probs, alone_[id].sequences[0][0].log_probs) << id;
  }

  Executor& executor_;
  Request plain_;
  Client client_;
  std::map<uint64_t, Outcome> alone_;  // by task id
  std::atomic<int> num_there_ = 0, num_evicted_ = 0;
};

TEST(ManyAdapters, AThousandPassThroughRoomForTwenty) {
  constexpr uint64_t kAdapters = 1000, kClients = 4;
  ExecutorConfig config = lora_config();
  config.peft_cache.max_adapter_size = config.peft_cache.optimal_adapter_size = 1;
  config.peft_cache.num_device_module_layers = 3;
  config.peft_cache.host_cache_bytes = 20 * kSmallAdapterBytes;
  const auto executor = create(config);
  ASSERT_TRUE(executor);
  SmallAdapters adapters(*executor);
  adapters.run_alone(25, kAdapters);
  std::vector<std::thread> clients;
  for (uint64_t c = 1; c <= kClients; ++c)
    clients.emplace_back([&, c] { adapters.send(c, kClients, kAdapters); });
  for (std::thread& t : clients) t.join();
  EXPECT_GT(adapters.num_there(), 0);
  EXPECT_GT(adapters.num_evicted(), 0);
  expect_counts_add_up(*executor);
}

TEST(ManyAdapters, TheHostCacheEvicts) {
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

}  // namespace
}  // namespace nereid::runtime::exactness
