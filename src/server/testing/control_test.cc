// Loading and unloading at run time: modes, states, overrides, version policies, ensembles,
// and requests meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <fstream>
#include <thread>
#include <utility>

#include "nereid/server.h"
#include "server/testing/client.h"
#include "server/testing/gate.h"

namespace nereid::server {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class Control : public testing::Test {
 protected:
  Control() {
    std::string name = (fs::temp_directory_path() / "nereid-control-XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  ~Control() override { fs::remove_all(root_); }

  void write(const std::string& model, const std::string& config,
             const std::vector<std::string>& versions = {"1"}) {
    for (const auto& version : versions) fs::create_directories(root_ / model / version);
    std::ofstream(root_ / model / "config.pbtxt") << config;
  }

  std::unique_ptr<TestServer> start(TRITONSERVER_ModelControlMode mode,
                                    const std::vector<std::string>& models = {}) {
    return std::make_unique<TestServer>(root_, [&](TRITONSERVER_ServerOptions* options) {
      TRITONSERVER_ServerOptionsSetModelControlMode(options, mode);
      for (const auto& m : models) TRITONSERVER_ServerOptionsSetStartupModel(options, m.c_str());
    });
  }

  static Outcome load(TestServer& s, const char* model) {
    return Outcome(TRITONSERVER_ServerLoadModel(s.get(), model));
  }
  static Outcome load_with(TestServer& s, const char* model, const std::string& config) {
    auto* p = TRITONSERVER_ParameterNew("config", TRITONSERVER_PARAMETER_STRING, config.c_str());
    const TRITONSERVER_Parameter* list[] = {p};
    Outcome out(TRITONSERVER_ServerLoadModelWithParameters(s.get(), model, list, 1));
    TRITONSERVER_ParameterDelete(p);
    return out;
  }
  static Outcome unload(TestServer& s, const char* model) {
    return Outcome(TRITONSERVER_ServerUnloadModel(s.get(), model));
  }
  static std::string index(TestServer& s, uint32_t flags = 0) {
    TRITONSERVER_Message* message = nullptr;
    TRITONSERVER_ServerModelIndex(s.get(), flags, &message);
    return take_text(message);
  }
  static bool ready(TestServer& s, const char* model = nullptr, int64_t version = -1) {
    bool yes = false;
    TRITONSERVER_ErrorDelete(model == nullptr
                                 ? TRITONSERVER_ServerIsReady(s.get(), &yes)
                                 : TRITONSERVER_ServerModelIsReady(s.get(), model, version, &yes));
    return yes;
  }
  static std::vector<int32_t> ask(TestServer& s, const char* model, std::vector<int32_t> values) {
    TestCall call(s.get(), model, std::move(values));
    if (!call.created.ok() || !call.send().ok() || !call.wait()) return {};
    return call.joined();
  }

  fs::path root_;
};

constexpr auto kExplicit = TRITONSERVER_MODEL_CONTROL_EXPLICIT;
constexpr char kThreeAtOnce[] =
    R"({"backend":"nereid_test","max_batch_size":3,)"
    R"("input":[{"name":"IN","data_type":"TYPE_INT32","dims":[-1]}],)"
    R"("output":[{"name":"OUT","data_type":"type_int32","dims":[-1]}]})";

TEST_F(Control, AServerWithoutARepositoryTellsThatItIsNotLive) {
  const auto start_anyway = [this](bool exits) {
    return std::make_unique<TestServer>(root_ / "none", [exits](auto* options) {
      TRITONSERVER_ServerOptionsSetExitOnError(options, exits);
    });
  };
  EXPECT_THAT(start_anyway(true)->started().text, HasSubstr("failed to stat file"));
  const auto server = start_anyway(false);
  ASSERT_TRUE(server->started().ok()) << server->started().text;
  bool live = true;
  EXPECT_TRUE(Outcome(TRITONSERVER_ServerIsLive(server->get(), &live)).ok());
  EXPECT_FALSE(live);
  const Outcome asked(TRITONSERVER_ServerModelIsReady(server->get(), "m", -1, &live));
  EXPECT_EQ(asked.text, "Server not ready");
  EXPECT_FALSE(ready(*server));
  TRITONSERVER_Message* message = nullptr;
  EXPECT_TRUE(Outcome(TRITONSERVER_ServerMetadata(server->get(), &message)).ok());
  EXPECT_THAT(take_text(message), HasSubstr("triton"));
}

// Readiness of an unknown model is an error, like any other query.
TEST_F(Control, ReadinessOfUnknownModelsIsAnError) {
  write("a", test_model("identity"));
  const auto server = start(kExplicit);
  ASSERT_TRUE(load(*server, "a").ok());
  bool yes = true;
  const auto asked = [&](const char* model, int64_t version) {
    return Outcome(TRITONSERVER_ServerModelIsReady(server->get(), model, version, &yes));
  };
  EXPECT_TRUE(asked("a", 1).ok());
  EXPECT_TRUE(yes);
  Outcome out = asked("b", -1);
  EXPECT_EQ(out.code, TRITONSERVER_ERROR_NOT_FOUND);
  EXPECT_EQ(out.text, "Request for unknown model: 'b' is not found");
  EXPECT_FALSE(yes);
  out = asked("a", 2);
  EXPECT_EQ(out.code, TRITONSERVER_ERROR_NOT_FOUND);
  EXPECT_EQ(out.text, "Request for unknown model: 'a' version 2 is not found");
  ASSERT_TRUE(unload(*server, "a").ok());
  while (ready(*server, "a")) std::this_thread::yield();
  out = asked("a", 1);
  EXPECT_EQ(out.code, TRITONSERVER_ERROR_UNAVAILABLE);
  EXPECT_EQ(out.text, "Request for unknown model: 'a' version 1 is not at ready state");
}

TEST_F(Control, WhatIsReadyIsNumbered) {
  write("a", test_model("identity"));
  const auto server = start(kExplicit);
  uint64_t last = NEREID_ServerModelChanges(server->get());
  const auto has_changed = [&] {
    const uint64_t before = std::exchange(last, NEREID_ServerModelChanges(server->get()));
    return before != last;
  };
  EXPECT_TRUE(load(*server, "a").ok());
  EXPECT_TRUE(has_changed());
  EXPECT_EQ(ask(*server, "a", {1}), std::vector<int32_t>{1});
  EXPECT_FALSE(load(*server, "none").ok());
  EXPECT_FALSE(has_changed());
  write("a", test_model("identity"), {"2"});
  EXPECT_TRUE(load(*server, "a").ok());
  EXPECT_TRUE(has_changed());
  EXPECT_TRUE(unload(*server, "a").ok());
  EXPECT_TRUE(has_changed());
}

TEST_F(Control, AModelThatCannotBeReadDoesNotMakeTheServerUnready) {
  write("a", test_model("identity"));
  fs::create_directories(root_ / "none" / "1");
  const auto start_strictly = [this](bool exits) {
    return std::make_unique<TestServer>(root_, [exits](auto* options) {
      TRITONSERVER_ServerOptionsSetExitOnError(options, exits);
      TRITONSERVER_ServerOptionsSetStrictModelConfig(options, true);
    });
  };
  EXPECT_THAT(start_strictly(true)->started().text,
              AllOf(HasSubstr("failed to open text file for read"),
                    HasSubstr("none/config.pbtxt: No such file or directory")));
  const auto server = start_strictly(false);
  ASSERT_TRUE(server->started().ok()) << server->started().text;
  EXPECT_TRUE(ready(*server));
  EXPECT_TRUE(ready(*server, "a"));
  EXPECT_FALSE(ready(*server, "none"));
  TRITONSERVER_Message* message = nullptr;
  EXPECT_EQ(Outcome(TRITONSERVER_ServerModelMetadata(server->get(), "none", 1, &message)).text,
            "Request for unknown model: 'none' is not found");
}

TEST_F(Control, TensorsAreCheckedBeforeVersionsAreSoughtWhenNothingCompletesThem) {
  fs::create_directories(root_ / "a");
  write("a", test_model("identity", "input { name: \"BAD\" data_type: TYPE_INT32 dims: 0 }"), {});
  const auto started = [this](bool is_strict) {
    return TestServer(root_,
                      [is_strict](auto* options) {
                        TRITONSERVER_ServerOptionsSetStrictModelConfig(options, is_strict);
                      })
        .started()
        .text;
  };
  EXPECT_THAT(started(true), HasSubstr("model input 'BAD' dimension must be integer >= 1"));
  EXPECT_THAT(started(false), HasSubstr("No model version was found"));
}

// The test backend completes no configuration.
TEST_F(Control, AModelWithoutAConfigurationNeedsABackendThatGivesIt) {
  fs::create_directories(root_ / "m.nereid_test" / "1");
  const auto server = std::make_unique<TestServer>(root_, [](auto* options) {
    TRITONSERVER_ServerOptionsSetModelControlMode(options, kExplicit);
    TRITONSERVER_ServerOptionsSetStrictModelConfig(options, false);
  });
  const Outcome without = load(*server, "m.nereid_test");
  EXPECT_THAT(without.text,
              HasSubstr("model configuration is not provided for model 'm.nereid_test'"));
  std::ofstream(root_ / "m.nereid_test" / "config.pbtxt") << test_model("identity");
  EXPECT_TRUE(load(*server, "m.nereid_test").ok());
}

TEST_F(Control, ExplicitModeStartsWithWhatIsAsked) {
  write("a", test_model("identity"));
  write("b", test_model("identity"));
  auto none = start(kExplicit);
  ASSERT_TRUE(none->started().ok());
  EXPECT_EQ(index(*none), R"([{"name":"a"},{"name":"b"}])");
  EXPECT_TRUE(ready(*none));
  none.reset();
  auto one = start(kExplicit, {"b"});
  EXPECT_EQ(index(*one), R"([{"name":"a"},{"name":"b","version":"1","state":"READY"}])");
  one.reset();
  auto all = start(kExplicit, {"*"});
  EXPECT_TRUE(ready(*all, "a"));
  EXPECT_TRUE(ready(*all, "b"));
  all.reset();
  EXPECT_THAT(start(kExplicit, {"nope"})->started().text, HasSubstr("failed to load all models"));
}

TEST_F(Control, OtherModesRefuseLoads) {
  write("a", test_model("identity"));
  for (const auto mode : {TRITONSERVER_MODEL_CONTROL_NONE, TRITONSERVER_MODEL_CONTROL_POLL}) {
    auto server = start(mode);
    EXPECT_TRUE(ready(*server, "a"));
    const Outcome refused = load(*server, "a");
    EXPECT_EQ(refused.code, TRITONSERVER_ERROR_UNAVAILABLE);
    EXPECT_EQ(refused.text, "explicit model load / unload is not allowed if polling is enabled");
    EXPECT_EQ(unload(*server, "a").code, TRITONSERVER_ERROR_UNAVAILABLE);
  }
}

TEST_F(Control, LoadsAndUnloads) {
  write("a", test_model("identity"));
  auto server = start(kExplicit);
  EXPECT_TRUE(load(*server, "a").ok());
  EXPECT_THAT(ask(*server, "a", {4}), ElementsAre(4));
  EXPECT_TRUE(unload(*server, "a").ok());
  ASSERT_TRUE(eventually([&] { return index(*server).find("unloaded") != std::string::npos; }));
  EXPECT_EQ(index(*server),
            R"([{"name":"a","version":"1","state":"UNAVAILABLE","reason":"unloaded"}])");
  EXPECT_EQ(index(*server, TRITONSERVER_INDEX_FLAG_READY), "[]");
  EXPECT_TRUE(ready(*server));  // an unloaded model does not affect readiness
  EXPECT_EQ(TestCall(server->get(), "a", {1}).created.text,
            "Request for unknown model: 'a' has no available versions");
  EXPECT_TRUE(unload(*server, "a").ok());
  EXPECT_TRUE(unload(*server, "never_heard_of").ok());
  EXPECT_TRUE(load(*server, "a").ok());
  EXPECT_THAT(ask(*server, "a", {5}), ElementsAre(5));
}

TEST_F(Control, FailuresSayWhyAndKeepTheOldVersion) {
  write("a", test_model("identity"));
  write("bad", test_model("init_fail"));
  auto server = start(kExplicit, {"a"});
  const Outcome missing = load(*server, "nope");
  EXPECT_EQ(missing.code, TRITONSERVER_ERROR_INTERNAL);
  EXPECT_EQ(missing.text, "failed to load 'nope', failed to poll from model repository");
  EXPECT_EQ(load(*server, "../a").text,
            "failed to load '../a', failed to poll from model repository");
  const Outcome bad = load(*server, "bad");
  EXPECT_EQ(bad.code, TRITONSERVER_ERROR_INVALID_ARG);
  EXPECT_EQ(bad.text,
            "load failed for model 'bad': version 1 is at UNAVAILABLE state: Invalid argument: "
            "told not to initialize;\n");
  EXPECT_THAT(index(*server), HasSubstr(R"("state":"UNAVAILABLE","reason":"Invalid argument: t)"));
  EXPECT_FALSE(ready(*server));
  EXPECT_TRUE(unload(*server, "bad").ok());
  EXPECT_TRUE(ready(*server));
  write("a", test_model("init_fail"));
  EXPECT_FALSE(load(*server, "a").ok());
  EXPECT_THAT(ask(*server, "a", {7}), ElementsAre(7));
  write("a", "not a config");
  EXPECT_EQ(load(*server, "a").code, TRITONSERVER_ERROR_INTERNAL);
  EXPECT_THAT(ask(*server, "a", {8}), ElementsAre(8));
}

TEST_F(Control, OverridesLastUntilAPlainLoad) {
  write("a", test_model("identity"));
  auto server = start(kExplicit, {"a"});
  ASSERT_TRUE(load_with(*server, "a", kThreeAtOnce).ok());
  const auto config = [&] {
    TRITONSERVER_Message* message = nullptr;
    TRITONSERVER_ServerModelConfig(server->get(), "a", -1, 1, &message);
    return take_text(message);
  };
  EXPECT_THAT(config(), HasSubstr(R"("max_batch_size":3)"));
  ASSERT_TRUE(load(*server, "a").ok());
  EXPECT_THAT(config(), HasSubstr(R"("max_batch_size":0)"));
  EXPECT_EQ(load_with(*server, "a", R"({"nofield":1})").text,
            "failed to load 'a', failed to poll from model repository");
  EXPECT_EQ(load_with(*server, "a", R"({"backend":"nereid_test","input":[{"dims":[1]}]})").text,
            // Nothing completes its configuration.
            "failed to load 'a', failed to poll from model repository");
}

// A replaced version is unloaded in the background.
TEST_F(Control, EachModelThatGoesIsNamedOnce) {
  write("a", test_model("identity"));
  const fs::path path = root_.string() + ".log";
  set_log_file(path);
  const auto num_gone = [&] {
    std::ifstream log(path);
    const std::string wanted = "successfully unloaded 'a' version 1";
    int count = 0;
    for (std::string line; std::getline(log, line);) count += line.find(wanted) != line.npos;
    return count;
  };
  auto server = start(kExplicit, {"a"});
  ASSERT_TRUE(load_with(*server, "a", kThreeAtOnce).ok());
  EXPECT_TRUE(eventually([&] { return num_gone() == 1; }));
  ASSERT_TRUE(load(*server, "a").ok());
  EXPECT_TRUE(eventually([&] { return num_gone() == 2; }));
  server.reset();
  EXPECT_EQ(num_gone(), 3);
  set_log_file("");
  fs::remove(path);
}

TEST_F(Control, FilesOfALoadAreAModel) {
  const fs::path temporary = root_ / ".tmp";  // of the uploaded files
  fs::create_directory(temporary);
  setenv("TMPDIR", temporary.c_str(), 1);
  const auto num_folders = [&] {
    return std::distance(fs::directory_iterator(temporary), fs::directory_iterator());
  };
  auto server = start(kExplicit);
  std::string json =
      R"({"backend":"nereid_test","input":[{"name":"IN","data_type":"TYPE_INT32","dims":[-1]}],)"
      R"("output":[{"name":"OUT","data_type":"TYPE_INT32","dims":[-1]}]})";
  const auto load_file = [&](const char* path) {
    auto* config = TRITONSERVER_ParameterNew("config", TRITONSERVER_PARAMETER_STRING, json.c_str());
    auto* file = TRITONSERVER_ParameterBytesNew(path, "x", 1);
    const TRITONSERVER_Parameter* list[] = {config, file};
    Outcome out(TRITONSERVER_ServerLoadModelWithParameters(server->get(), "made", list, 2));
    TRITONSERVER_ParameterDelete(config);
    TRITONSERVER_ParameterDelete(file);
    return out;
  };
  EXPECT_EQ(load_file("file:../x").code, TRITONSERVER_ERROR_INTERNAL);
  EXPECT_EQ(load_file("file:/tmp/x").code, TRITONSERVER_ERROR_INTERNAL);
  EXPECT_EQ(
      load_file("file:x").text,
      "load failed for model 'made': at least one version must be available under the version "
      "policy of model 'made'\n");
  ASSERT_TRUE(load_file("file:1/x").ok());
  EXPECT_THAT(ask(*server, "made", {1}), ElementsAre(1));
  EXPECT_THAT(index(*server), HasSubstr(R"("name":"made","version":"1","state":"READY")"));
  EXPECT_EQ(num_folders(), 1);
  ASSERT_TRUE(load_file("file:1/x").ok());
  EXPECT_TRUE(eventually([&] { return num_folders() == 1; }));
  ASSERT_TRUE(Outcome(TRITONSERVER_ServerUnloadModel(server->get(), "made")).ok());
  EXPECT_TRUE(eventually([&] { return num_folders() == 0; }));
  // A failed load leaves nothing behind, whether files or model are at fault.
  json = R"({"backend":"nereid_test","input":[{"dims":[1]}]})";
  EXPECT_FALSE(load_file("file:1/x").ok());
  EXPECT_FALSE(load_file("file:x").ok());
  EXPECT_TRUE(eventually([&] { return num_folders() == 0; }));
  unsetenv("TMPDIR");
}

TEST_F(Control, VersionPolicies) {
  const std::vector<std::string> three = {"1", "2", "3"};
  write("latest", test_model("identity"), three);
  write("two", test_model("identity", "version_policy { latest { num_versions: 2 } }"), three);
  write("all", test_model("identity", "version_policy { all {} }"), three);
  write("some", test_model("identity", "version_policy { specific { versions: [1, 3] } }"), three);
  write("none", test_model("identity", "version_policy { specific { versions: [9] } }"), three);
  auto server = start(kExplicit, {"latest", "two", "all", "some"});
  const auto versions = [&](const char* model) {
    std::string out;
    for (int64_t v : {1, 2, 3}) out += ready(*server, model, v) ? '1' : '0';
    return out;
  };
  EXPECT_EQ(versions("latest"), "001");
  EXPECT_EQ(versions("two"), "011");
  EXPECT_EQ(versions("all"), "111");
  EXPECT_EQ(versions("some"), "101");
  EXPECT_THAT(load(*server, "none").text, HasSubstr("at least one version must be available"));
  write("all", test_model("identity"));
  ASSERT_TRUE(load(*server, "all").ok());
  EXPECT_TRUE(eventually([&] { return versions("all") == "001"; }));
}

TEST_F(Control, EnsemblesFollowTheirParts) {
  write("part", test_model("identity"));
  write("whole",
        "platform: \"ensemble\"\n"
        "input { name: \"IN\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
        "output { name: \"OUT\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
        "ensemble_scheduling { step { model_name: \"part\" model_version: -1\n"
        "  input_map { key: \"IN\" value: \"IN\" } output_map { key: \"OUT\" value: \"OUT\" } } }");
  auto server = start(kExplicit);
  ASSERT_TRUE(load(*server, "whole").ok());
  EXPECT_TRUE(ready(*server, "part"));
  EXPECT_THAT(ask(*server, "whole", {3}), ElementsAre(3));
  ASSERT_TRUE(unload(*server, "part").ok());
  EXPECT_FALSE(ready(*server, "whole"));
  ASSERT_TRUE(load(*server, "part").ok());
  EXPECT_TRUE(ready(*server, "whole"));
  EXPECT_THAT(ask(*server, "whole", {4}), ElementsAre(4));
  TRITONSERVER_ErrorDelete(TRITONSERVER_ServerUnloadModel(server->get(), "whole"));
  EXPECT_TRUE(ready(*server, "part"));
  ASSERT_TRUE(load(*server, "whole").ok());
  TRITONSERVER_ErrorDelete(TRITONSERVER_ServerUnloadModelAndDependents(server->get(), "whole"));
  EXPECT_TRUE(ready(*server, "part")) << "it was loaded by name";
}

TEST_F(Control, PollFollowsTheRepository) {
  write("a", test_model("identity"));
  auto server = start(TRITONSERVER_MODEL_CONTROL_POLL);
  const auto poll = [&] { return Outcome(TRITONSERVER_ServerPollModelRepository(server->get())); };
  write("b", test_model("identity"));
  ASSERT_TRUE(poll().ok());
  EXPECT_TRUE(ready(*server, "b"));
  fs::remove_all(root_ / "a");
  write("b", test_model("fail"));
  ASSERT_TRUE(poll().ok());
  EXPECT_FALSE(ready(*server, "a"));
  TestCall call(server->get(), "b", {1});
  ASSERT_TRUE(call.send().ok() && call.wait());
  EXPECT_EQ(call.replies()[0].text, "told to fail");
}

// A request holds its version: it is answered whatever is loaded or unloaded meanwhile.
TEST_F(Control, NoRequestIsLostWhileModelsComeAndGo) {
  write("other", test_model("identity"));
  write("changing", test_model("identity"));
  write("slow", test_model("slow"));
  auto server = start(kExplicit, {"*"});
  TestCall held(server->get(), "slow", {kUntilOpen});
  ASSERT_TRUE(held.send().ok());
  ASSERT_TRUE(wait_until_held());
  ASSERT_TRUE(unload(*server, "slow").ok());
  EXPECT_THAT(index(*server), HasSubstr(R"("name":"slow","version":"1","state":"UNLOADING")"));
  std::atomic<bool> over{false};
  std::atomic<int> lost{0}, served{0};
  std::vector<std::thread> clients;
  for (const char* model : {"other", "changing"}) {
    clients.emplace_back([&, model] {
      for (int i = 0; !over; ++i) {
        if (ask(*server, model, {i}) == std::vector<int32_t>{i}) {
          ++served;
        } else {
          ++lost;
        }
      }
    });
  }
  for (int i = 0; i < 60; ++i) {
    write("changing", test_model(i % 10 == 9 ? "init_fail" : "identity",
                                 "parameters { key: \"n\" value { string_value: \"" +
                                     std::to_string(i) + "\" } }"));
    EXPECT_EQ(load(*server, "changing").ok(), i % 10 != 9);
  }
  EXPECT_TRUE(eventually([&] { return served > 100; }));
  over = true;
  for (auto& client : clients) client.join();
  EXPECT_EQ(lost, 0);
  open_gate();
  ASSERT_TRUE(held.wait());
  EXPECT_THAT(held.joined(), ElementsAre(kUntilOpen));
}

}  // namespace
}  // namespace nereid::server
