// Adapters loaded and unloaded by requests, over a scripted core.
#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>

#include "base/testing/source_dir.h"
#include "front/testing/server_fixture.h"

namespace nereid::front {
namespace {

using ::testing::HasSubstr;

class AdapterRoutesTest : public ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    fake_.lora_load_dir = source_dir() + "/tests/adapters";
    say("one");
  }
  Reply load(std::string_view name, std::string_view path, bool in_place = false) {
    return post("/v1/load_lora_adapter",
                fmt::format(R"({{"lora_name": "{}", "lora_path": "{}", "load_inplace": {}}})", name,
                            path, in_place));
  }
  Reply unload(std::string_view name) {
    return post("/v1/unload_lora_adapter", fmt::format(R"({{"lora_name": "{}"}})", name));
  }
  int status_of(std::string_view model) {
    return post("/v1/completions", fmt::format(R"({{"prompt": "x", "model": "{}"}})", model))
        .status;
  }
  uint64_t last_task_id() {
    std::lock_guard lock(fake_.mutex);
    uint64_t id = 0;
    const std::string& bytes = fake_.last_bytes["lora_task_id"];
    if (bytes.size() == sizeof(id)) std::memcpy(&id, bytes.data(), sizeof(id));
    return id;
  }
  std::string last_folder() {
    std::lock_guard lock(fake_.mutex);
    const std::string& bytes = fake_.last_bytes["lora_path"];
    return bytes.size() > sizeof(int32_t) ? bytes.substr(sizeof(int32_t)) : "";
  }
  std::vector<std::string> listed() {
    std::vector<std::string> ids;
    const json::value body = ask(port_, "GET", "/v1/models").json();
    for (const json::value& card : body.at("data").as_array())
      ids.emplace_back(card.at("id").as_string());
    return ids;
  }
};

TEST_F(AdapterRoutesTest, AreLoadedNamedListedAndUnloaded) {
  using ::testing::ElementsAre;
  EXPECT_EQ(status_of("loud"), 404);
  const Reply loaded = load("loud", "upper");
  EXPECT_EQ(loaded.status, 200);
  EXPECT_EQ(loaded.body, "Success: LoRA adapter 'loud' added successfully.");
  const std::string upper = std::filesystem::canonical(fake_.lora_load_dir + "/upper").string();
  EXPECT_EQ(last_folder(), upper);  // the load was tried
  const uint64_t first = last_task_id();
  EXPECT_THAT(listed(), ElementsAre("org/tiny", "loud"));
  const json::value card = ask(port_, "GET", "/v1/models/loud").json();
  EXPECT_EQ(card.at("parent").as_string(), "org/tiny");

  EXPECT_EQ(status_of("tiny"), 200);
  EXPECT_EQ(last_folder(), "");
  EXPECT_EQ(last_task_id(), 0u);
  EXPECT_EQ(status_of("loud"), 200);
  EXPECT_EQ(last_folder(), upper);
  EXPECT_EQ(last_task_id(), first);

  EXPECT_EQ(load("loud", "thanks").status, 400);
  EXPECT_EQ(load("loud", "thanks", /*in_place=*/true).status, 200);
  EXPECT_EQ(status_of("loud"), 200);
  EXPECT_THAT(last_folder(), HasSubstr("/thanks"));
  EXPECT_NE(last_task_id(), first);  // other weights are another adapter
  EXPECT_THAT(listed(), ElementsAre("org/tiny", "loud"));

  const Reply gone = unload("loud");
  EXPECT_EQ(gone.status, 200);
  EXPECT_EQ(gone.body, "Success: LoRA adapter 'loud' removed successfully.");
  EXPECT_EQ(status_of("loud"), 404);
  EXPECT_EQ(unload("loud").status, 404);
  EXPECT_THAT(listed(), ElementsAre("org/tiny"));
}

TEST_F(AdapterRoutesTest, StayWhenTheModelIsLoadedAgain) {
  ASSERT_EQ(load("loud", "upper").status, 200);
  fake_.max_seq_len = 60;  // another configuration
  EXPECT_EQ(status_of("loud"), 200);
  EXPECT_THAT(last_folder(), HasSubstr("/upper"));
  EXPECT_EQ(load("quiet", "upper").status, 200);
  EXPECT_EQ(unload("loud").status, 200);
  EXPECT_THAT(listed(), ::testing::ElementsAre("org/tiny", "quiet"));
}

TEST_F(AdapterRoutesTest, RefusedWithTheField) {
  const auto refused = [&](const Reply& r) {
    const json::value error = r.json().at("error");
    return fmt::format("{} {} {}", r.status,
                       error.at("param").is_string() ? error.at("param").as_string().c_str() : "-",
                       error.at("message").as_string().c_str());
  };
  using ::testing::StartsWith;
  EXPECT_THAT(refused(load("", "upper")), StartsWith("400 lora_name"));
  EXPECT_THAT(refused(load("a b", "upper")), StartsWith("400 lora_name"));
  EXPECT_THAT(refused(load("tiny", "upper")),
              StartsWith("400 lora_name 'tiny' is the name of another"));
  EXPECT_THAT(refused(post("/v1/load_lora_adapter", R"({"lora_name": "x"})")),
              StartsWith("400 lora_path"));
  EXPECT_THAT(refused(load("x", "nowhere")), StartsWith("404 lora_path 'nowhere' is no folder"));
  EXPECT_THAT(refused(load("x", "/etc")), StartsWith("400 lora_path '/etc' does not lie inside"));
  {
    std::lock_guard lock(fake_.mutex);
    fake_.fail_after = 0;  // the engine's error for an adapter that does not fit
  }
  EXPECT_GE(load("x", "upper").status, 400);
  EXPECT_EQ(status_of("x"), 404);
}

TEST_F(AdapterRoutesTest, AreOffUnlessTheEngineHasAFolderForThem) {
  fake_.lora_load_dir = "";
  EXPECT_EQ(load("x", "upper").status, 404);
  EXPECT_THAT(unload("x").body, HasSubstr("--lora-load-dir"));
}

}  // namespace
}  // namespace nereid::front
