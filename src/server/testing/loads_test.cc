// Slow loads: concurrent work, work that waits for them, and a stop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <thread>

#include "server/testing/client.h"
#include "server/testing/probe.h"

namespace nereid::server {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// A barrier that holds the initialisation of models whose names begin with "slow".
class Barrier {
 public:
  TRITONSERVER_Error* pass(TRITONBACKEND_Model* model) {
    const char* name = "";
    TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelName(model, &name));
    std::unique_lock lock(mutex_);
    ++num_loads_;
    if (!std::string_view(name).starts_with("slow")) return nullptr;
    most_ = std::max(most_, ++num_held_);
    changed_.notify_all();
    changed_.wait(lock, [&] { return is_open_; });
    --num_held_;
    return nullptr;
  }
  void wait_for(int num_held) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_held_ == num_held; });
  }
  void open() {
    std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  int most() const { return most_; }
  int num_loads() const { return num_loads_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_held_ = 0, most_ = 0, num_loads_ = 0;
  bool is_open_ = false;
};

class Loads : public testing::Test {
 protected:
  Loads() {
    std::string name = (fs::temp_directory_path() / "nereid-loads-XXXXXX").string();
    root_ = mkdtemp(name.data());
    probe() = {};
    probe().model = [this](TRITONBACKEND_Model* model) { return barrier_.pass(model); };
  }
  ~Loads() override {
    probe() = {};
    fs::remove_all(root_);
  }

  void add(const std::string& model, const std::string& head = "backend: \"nereid_probe\"\n") {
    fs::create_directories(root_ / model / "1");
    std::ofstream(root_ / model / "config.pbtxt")
        << head
        << "input { name: \"IN\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
           "output { name: \"OUT\" data_type: TYPE_INT32 dims: [ -1 ] }\n";
  }
  void add_ensemble(const std::string& model, const std::string& part) {
    add(model, "platform: \"ensemble\" ensemble_scheduling { step { model_name: \"" + part +
                   "\" input_map { key: \"IN\" value: \"IN\" } "
                   "output_map { key: \"OUT\" value: \"OUT\" } } }\n");
  }
  std::unique_ptr<TestServer> start(unsigned threads = 4, unsigned exit_timeout_s = 60) {
    return std::make_unique<TestServer>(root_, [&](TRITONSERVER_ServerOptions* options) {
      TRITONSERVER_ServerOptionsSetModelControlMode(options, TRITONSERVER_MODEL_CONTROL_EXPLICIT);
      TRITONSERVER_ServerOptionsSetModelLoadThreadCount(options, threads);
      TRITONSERVER_ServerOptionsSetExitTimeout(options, exit_timeout_s);
    });
  }
  static Outcome load(TestServer& s, const std::string& model) {
    return Outcome(TRITONSERVER_ServerLoadModel(s.get(), model.c_str()));
  }
  static bool is_ready(TestServer& s, const std::string& model) {
    bool yes = false;
    TRITONSERVER_ErrorDelete(TRITONSERVER_ServerModelIsReady(s.get(), model.c_str(), -1, &yes));
    return yes;
  }

  fs::path root_;
  Barrier barrier_;
};

TEST_F(Loads, ASlowOneHoldsUpNoOther) {
  for (const char* model : {"slow", "quick"}) add(model);
  auto server = start();
  Outcome slow(nullptr);
  std::thread loader([&] { slow = load(*server, "slow"); });
  barrier_.wait_for(1);
  EXPECT_TRUE(load(*server, "quick").ok());
  EXPECT_TRUE(is_ready(*server, "quick"));
  EXPECT_TRUE(Outcome(TRITONSERVER_ServerUnloadModel(server->get(), "quick")).ok());
  EXPECT_FALSE(is_ready(*server, "quick"));
  EXPECT_FALSE(is_ready(*server, "slow"));
  barrier_.open();
  loader.join();
  EXPECT_TRUE(slow.ok()) << slow.text;
  EXPECT_TRUE(is_ready(*server, "slow"));
}

TEST_F(Loads, OfOneModelGoOneAfterTheOther) {
  for (const char* model : {"slow", "other"}) add(model);
  auto server = start();
  std::atomic<int> num_loaded{0}, num_begun{0};
  std::vector<std::thread> loaders;
  const auto begin_load = [&] {
    loaders.emplace_back([&] {
      ++num_begun;
      num_loaded += load(*server, "slow").ok();
    });
  };
  begin_load();
  barrier_.wait_for(1);
  begin_load();
  begin_load();
  EXPECT_TRUE(eventually([&] { return num_begun == 3; }));
  constexpr int kOthers = 20;  // time for the other two to proceed
  for (int i = 0; i < kOthers; ++i) {
    EXPECT_TRUE(load(*server, "other").ok());
    EXPECT_TRUE(Outcome(TRITONSERVER_ServerUnloadModel(server->get(), "other")).ok());
  }
  EXPECT_EQ(barrier_.most(), 1);
  barrier_.open();
  for (auto& loader : loaders) loader.join();
  EXPECT_EQ(num_loaded, 3);
  EXPECT_EQ(barrier_.num_loads(), 1 + kOthers) << "the files had not changed";
}

// In any order of arrival the part is loaded once and the ensembles use it.
TEST_F(Loads, EnsemblesWaitForTheirParts) {
  add("slow_part");
  add_ensemble("whole", "slow_part");
  add_ensemble("outer", "whole");
  auto server = start();
  std::atomic<int> num_loaded{0};
  std::vector<std::thread> loaders;
  for (const char* model : {"slow_part", "whole", "outer"}) {
    loaders.emplace_back([&, model] { num_loaded += load(*server, model).ok(); });
  }
  barrier_.wait_for(1);
  barrier_.open();
  for (auto& loader : loaders) loader.join();
  EXPECT_EQ(num_loaded, 3);
  EXPECT_EQ(barrier_.num_loads(), 1);
  EXPECT_TRUE(is_ready(*server, "outer"));
  ASSERT_TRUE(Outcome(TRITONSERVER_ServerUnloadModel(server->get(), "slow_part")).ok());
  EXPECT_FALSE(is_ready(*server, "outer"));
}

TEST_F(Loads, NoMoreAtATimeThanThreads) {
  const std::vector<std::string> models = {"slow_1", "slow_2", "slow_3", "slow_4", "slow_5"};
  for (const auto& model : models) add(model);
  auto server = start(2);
  std::vector<std::thread> loaders;
  for (const auto& model : models) loaders.emplace_back([&, model] { load(*server, model); });
  barrier_.wait_for(2);
  barrier_.open();
  for (auto& loader : loaders) loader.join();
  EXPECT_EQ(barrier_.most(), 2);
  for (const auto& model : models) EXPECT_TRUE(is_ready(*server, model)) << model;
}

TEST_F(Loads, AStopDoesNotWaitLongerThanItMay) {
  add("slow");
  auto server = start(4, 0);
  Outcome slow(nullptr), waiting(nullptr);
  std::thread loader([&] { slow = load(*server, "slow"); });
  barrier_.wait_for(1);
  std::thread second([&] { waiting = load(*server, "slow"); });
  const Outcome stopped(TRITONSERVER_ServerStop(server->get()));
  EXPECT_EQ(stopped.text, "Exit timeout expired. Exiting immediately.");
  second.join();
  EXPECT_EQ(waiting.text, "Server exiting");
  barrier_.open();
  loader.join();
}

TEST_F(Loads, AStopLetsALoadFinishThatEndsInTime) {
  add("slow");
  auto server = start();
  Outcome slow(nullptr);
  std::thread loader([&] { slow = load(*server, "slow"); });
  barrier_.wait_for(1);
  std::string stopped = "not yet";
  std::thread stopper([&] { stopped = Outcome(TRITONSERVER_ServerStop(server->get())).text; });
  ASSERT_TRUE(eventually([&] {
    bool live = true;
    TRITONSERVER_ErrorDelete(TRITONSERVER_ServerIsLive(server->get(), &live));
    return !live;
  }));
  barrier_.open();
  loader.join();
  stopper.join();
  EXPECT_EQ(stopped, "");
}

}  // namespace
}  // namespace nereid::server
