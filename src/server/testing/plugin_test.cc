// Caches and repository agents as shared objects, and the built-in ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/testing/source_dir.h"
#include "server/testing/client.h"
#include "triton/core/tritoncache.h"

namespace nereid::server {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "nereid-plugin-XXXXXX").string();
    dir_ = mkdtemp(name.data());
    fs::create_directories(repository());
  }
  ~Scratch() { fs::remove_all(dir_); }
  fs::path repository() const { return dir_ / "models"; }
  fs::path log() const { return dir_ / "log"; }
  void add(const std::string& model, const std::string& config) const {
    fs::create_directories(repository() / model / "1");
    std::ofstream(repository() / model / "config.pbtxt") << config;
  }
  // The agent's calls, separated by spaces.
  std::string calls() const {
    std::ifstream in(log());
    std::string out;
    for (std::string line; std::getline(in, line);) out += line + "|";
    return out;
  }

 private:
  fs::path dir_;
};

void cache_options(TRITONSERVER_ServerOptions* options, const char* name, const char* config) {
  TRITONSERVER_ServerOptionsSetCacheDirectory(options, (build_dir() + "/test_plugins").c_str());
  const Outcome set(TRITONSERVER_ServerOptionsSetCacheConfig(options, name, config));
  EXPECT_TRUE(set.ok()) << set.text;
}

// Number of executions for two equal requests.
int executions(const char* name, const char* config) {
  Scratch scratch;
  scratch.add("m", test_model("count", "max_batch_size: 4 response_cache { enable: true }"));
  TestServer server(scratch.repository(),
                    [&](auto* options) { cache_options(options, name, config); });
  EXPECT_TRUE(server.started().ok()) << server.started().text;
  std::vector<int32_t> numbers;
  for (int i = 0; i < 2; ++i) {
    TestCall call(server.get(), "m", {0}, "", /*batched=*/true);
    EXPECT_TRUE(call.send().ok());
    EXPECT_TRUE(call.wait());
    numbers.push_back(call.joined().at(1));
  }
  return numbers[0] == numbers[1] ? 1 : 2;
}

TEST(CachePlugin, KeepsAndAnswers) { EXPECT_EQ(executions("nereid_test", "{}"), 1); }

TEST(CachePlugin, ItsFailuresCostTheHitOnly) {
  for (const char* config : {R"({"fail":"lookup"})", R"({"fail":"insert"})", R"({"fail":"nocopy"})",
                             R"({"fail":"cut"})"}) {
    EXPECT_EQ(executions("nereid_test", config), 2) << config;
  }
}

TEST(CachePlugin, ServerDoesNotStartWithoutIt) {
  Scratch scratch;
  scratch.add("m", test_model("identity"));
  const auto start = [&](const char* name, const char* config) {
    TestServer server(scratch.repository(),
                      [&](auto* options) { cache_options(options, name, config); });
    return server.started().text;
  };
  EXPECT_THAT(start("redis", "{}"), HasSubstr("libtritoncache_redis.so"));
  EXPECT_THAT(start("../x", "{}"), HasSubstr("not a name"));
  EXPECT_THAT(start("nereid_test", R"({"fail":"initialize"})"), HasSubstr("told to fail"));
  EXPECT_THAT(start("local", "{}"), HasSubstr("\"size\" must be"));
  EXPECT_THAT(start("local", R"({"size":"12x"})"), HasSubstr("\"size\" must be"));
  EXPECT_THAT(start("local", R"({"size":"12","sise":"1"})"), HasSubstr("sise"));
}

TEST(CachePlugin, OneCacheOnly) {
  TRITONSERVER_ServerOptions* options = nullptr;
  TRITONSERVER_ServerOptionsNew(&options);
  cache_options(options, "local", R"({"size":"1000"})");
  const Outcome second(TRITONSERVER_ServerOptionsSetCacheConfig(options, "redis", "{}"));
  EXPECT_THAT(second.text, HasSubstr("only one cache"));
  const Outcome text(TRITONSERVER_ServerOptionsSetCacheConfig(options, "local", "[]"));
  EXPECT_THAT(text.text, HasSubstr("no JSON object"));
  TRITONSERVER_ServerOptionsDelete(options);
}

std::string with_agent(const std::string& name, const std::string& parameters) {
  return test_model("identity", "model_repository_agents { agents [ { name: \"" + name + "\" " +
                                    parameters + " } ] }\n");
}

std::string parameter(const std::string& key, const std::string& value) {
  return "parameters { key: \"" + key + "\" value: \"" + value + "\" } ";
}

void agent_options(TRITONSERVER_ServerOptions* options) {
  TRITONSERVER_ServerOptionsSetRepoAgentDirectory(options, (build_dir() + "/test_plugins").c_str());
  TRITONSERVER_ServerOptionsSetModelControlMode(options, TRITONSERVER_MODEL_CONTROL_EXPLICIT);
}

bool ready(TestServer& server, const char* model, int64_t version = -1) {
  bool is_ready = false;
  TRITONSERVER_ErrorDelete(
      TRITONSERVER_ServerModelIsReady(server.get(), model, version, &is_ready));
  return is_ready;
}

std::string wait_for(const Scratch& scratch, const std::string& end) {
  std::string calls;
  eventually([&] {
    calls = scratch.calls();
    return calls.ends_with(end);
  });
  return calls;
}

TEST(RepoAgent, SeesTheWholeLife) {
  Scratch scratch;
  scratch.add("m", with_agent("nereid_test", parameter("log", scratch.log().string())));
  TestServer server(scratch.repository(), agent_options);
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  const Outcome loaded(TRITONSERVER_ServerLoadModel(server.get(), "m"));
  ASSERT_TRUE(loaded.ok()) << loaded.text;
  EXPECT_EQ(scratch.calls(), "initialize|load|load_complete|");
  const Outcome unloaded(TRITONSERVER_ServerUnloadModel(server.get(), "m"));
  ASSERT_TRUE(unloaded.ok()) << unloaded.text;
  EXPECT_EQ(wait_for(scratch, "finalize 7|"),
            "initialize|load|load_complete|unload|unload_complete|finalize 7|");
}

TEST(RepoAgent, LifeEndsWithTheServer) {
  Scratch scratch;
  scratch.add("m", with_agent("nereid_test", parameter("log", scratch.log().string())));
  {
    TestServer server(scratch.repository(), agent_options);
    ASSERT_TRUE(Outcome(TRITONSERVER_ServerLoadModel(server.get(), "m")).ok());
  }
  EXPECT_EQ(wait_for(scratch, "finalize 7|"),
            "initialize|load|load_complete|unload|unload_complete|finalize 7|");
}

TEST(RepoAgent, MovesTheModel) {
  Scratch scratch;
  scratch.add("m", with_agent("nereid_test",
                              parameter("log", scratch.log().string()) + parameter("move", "yes")));
  TestServer server(scratch.repository(), agent_options);
  const Outcome loaded(TRITONSERVER_ServerLoadModel(server.get(), "m"));
  ASSERT_TRUE(loaded.ok()) << loaded.text;
  EXPECT_TRUE(ready(server, "m", 7));  // a version that exists only in the agent's folder
  TRITONSERVER_Message* config = nullptr;
  TRITONSERVER_ServerModelConfig(server.get(), "m", 7, 1, &config);
  EXPECT_THAT(take_text(config), HasSubstr("\"moved\""));
  TestCall call(server.get(), "m", {5});
  ASSERT_TRUE(call.send().ok());
  ASSERT_TRUE(call.wait());
  EXPECT_EQ(call.joined(), std::vector<int32_t>{5});
}

// The configuration in the repository only has to name the agent that provides the real one.
TEST(RepoAgent, BringsTheConfiguration) {
  Scratch scratch;
  std::string config;  // escaped for a string in text format
  for (const char c : test_model("identity")) {
    config += c == '"' ? "\\\"" : c == '\n' ? " " : std::string(1, c);
  }
  scratch.add("m",
              "max_batch_size: -1\nmodel_repository_agents { agents [ { name: \"nereid_test\" " +
                  parameter("log", scratch.log().string()) + parameter("move", "yes") +
                  parameter("config", config) + " } ] }\n");
  TestServer server(scratch.repository(), agent_options);
  const Outcome loaded(TRITONSERVER_ServerLoadModel(server.get(), "m"));
  ASSERT_TRUE(loaded.ok()) << loaded.text;
  TestCall call(server.get(), "m", {5});
  ASSERT_TRUE(call.send().ok());
  ASSERT_TRUE(call.wait());
  EXPECT_EQ(call.joined(), std::vector<int32_t>{5});
}

TEST(RepoAgent, FailureStopsTheLoad) {
  Scratch scratch;
  scratch.add("m", with_agent("nereid_test",
                              parameter("log", scratch.log().string()) + parameter("fail", "yes")));
  scratch.add("n", with_agent("missing", ""));
  TestServer server(scratch.repository(), agent_options);
  const Outcome loaded(TRITONSERVER_ServerLoadModel(server.get(), "m"));
  EXPECT_THAT(loaded.text, HasSubstr("told to fail"));
  EXPECT_FALSE(ready(server, "m"));
  EXPECT_EQ(scratch.calls(), "initialize|load|load_fail|finalize 7|");
  const Outcome missing(TRITONSERVER_ServerLoadModel(server.get(), "n"));
  EXPECT_THAT(missing.text, HasSubstr("libtritonrepoagent_missing.so"));
}

TEST(RepoAgent, FailureOfTheModelIsTold) {
  Scratch scratch;
  scratch.add("m", with_agent("nereid_test", parameter("log", scratch.log().string())));
  fs::remove(scratch.repository() / "m" / "1");
  TestServer server(scratch.repository(), agent_options);
  EXPECT_FALSE(Outcome(TRITONSERVER_ServerLoadModel(server.get(), "m")).ok());
  EXPECT_EQ(wait_for(scratch, "finalize 7|"), "initialize|load|load_fail|finalize 7|");
}

TEST(ChecksumAgent, ComparesFiles) {
  Scratch scratch;
  const std::string abc = "900150983cd24fb0d6963f7d28e17f72";  // digest of "abc" in RFC 1321
  scratch.add("good", with_agent("checksum", parameter("MD5:1/data", abc)));
  scratch.add("bad", with_agent("checksum", parameter("MD5:1/data", abc)));
  scratch.add("path", with_agent("checksum", parameter("MD5:../good/1/data", abc)));
  scratch.add("kind", with_agent("checksum", parameter("SHA1:1/data", abc)));
  std::ofstream(scratch.repository() / "good" / "1" / "data") << "abc";
  std::ofstream(scratch.repository() / "bad" / "1" / "data") << "abd";
  TestServer server(scratch.repository(), agent_options);
  const auto load = [&](const char* model) {
    return Outcome(TRITONSERVER_ServerLoadModel(server.get(), model)).text;
  };
  EXPECT_EQ(load("good"), "");
  EXPECT_THAT(load("bad"), HasSubstr("Mismatched MD5 hash for file 1/data, expect: " + abc));
  EXPECT_THAT(load("path"), HasSubstr("not a file below"));
  EXPECT_THAT(load("kind"), HasSubstr("MD5:<file>"));
}

}  // namespace
}  // namespace nereid::server
