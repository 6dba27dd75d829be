// Adapters on the shipped model equal Hugging Face PEFT (tests/golden): from folders, from request
// tensors, alone and in one batch.
#include "runtime/testing/golden_lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <span>

#include "base/json.h"
#include "runtime/testing/exactness.h"

namespace nereid::runtime::exactness {
namespace {

using ::testing::HasSubstr;

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
  // Two more adapters, from request tensors.
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

// On ranks: the bits of one rank, and PEFT's tokens.
TEST(GoldenLora, RanksGiveTheBitsOfOne) {
  struct Ranks {
    const char* tp;
    int32_t pp;
  };
  std::vector<Request> requests;
  for (const LoraCase& c : golden_cases()) requests.push_back(c.request);
  Request of_head = requests[0];
  of_head.lora = LoraConfig{.task_id = 9};
  requests.push_back(of_head);
  std::vector<Outcome> wanted;
  for (const Ranks& ranks : {Ranks{"1", 1}, Ranks{"2", 1}, Ranks{"1", 2}, Ranks{"4", 2}}) {
    ExecutorConfig config = with_directories();
    config.tensor_parallel = ranks.tp, config.pipeline_parallel = ranks.pp;
    config.tp_invariant = true;
    config.lora_directories.push_back({9, kTree / "tests/adapters/head"});
    const auto executor = create(config);
    ASSERT_TRUE(executor);
    Client client;
    std::vector<RequestId> ids;
    for (const Request& r : requests) ids.push_back(client.send(*executor, r));
    for (size_t i = 0; i < ids.size(); ++i) {
      const Outcome& got = client.wait(ids[i]);
      ASSERT_TRUE(got.status.ok()) << got.status;
      if (wanted.size() < requests.size())
        wanted.push_back(got);
      else
        EXPECT_EQ(difference(wanted[i], got), "") << i << " tp " << ranks.tp;
    }
  }
  const std::vector<LoraCase> cases = golden_cases();
  for (size_t i = 0; i < cases.size(); ++i)
    EXPECT_EQ(wanted[i].sequences[0][0].tokens, cases[i].greedy) << i;
}

// Equal to NumPy (tests/golden/tiny_heads.py): alone, in a batch, with a draft model (no adapter).
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

// The scale is a power of two: exact in either matrix.
TEST(GoldenLora, TensorsOfRequestsAreTheSameAdapter) {
  Client client;
  const auto executor = create(with_directories());
  ASSERT_TRUE(executor);
  Request named = golden_cases()[0].request;
  Request brought = named;
  brought.lora = tensors_of("upper", kUnknown);
  const Outcome expected = client.run(*executor, named);
  EXPECT_EQ(difference(expected, client.run(*executor, brought)), "");
  brought.lora = LoraConfig{.task_id = kUnknown};  // cached by now
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

// Files of hf_lora_convert.py.
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
  EXPECT_THAT(refusal(), HasSubstr("'x5' is not a task id"));
  std::filesystem::rename(folder / "x5", folder / "6");
  EXPECT_THAT(refusal(), HasSubstr("/6: has neither adapter_config.json (PEFT) nor"));
  write_npy(folder / "6/model.lora_weights.npy", "<f4", "1, 1, 1", std::vector<std::byte>(4));
  EXPECT_THAT(refusal(), HasSubstr("6/model.lora_config.npy"));
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
  EXPECT_THAT(changed([](auto& l) { l.config[3] = 1; }), HasSubstr("appears twice"));
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
