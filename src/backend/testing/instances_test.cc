// Orchestrator mode and several instances of the tensorrt_llm model.
#include <signal.h>

#include <fstream>

#include "backend/testing/backend_fixture.h"
#include "base/testing/source_dir.h"

namespace nereid::backend {
namespace {

using Values = std::map<std::string, std::string>;

// Processes that this one has started and that have not ended.
std::vector<pid_t> children() {
  std::vector<pid_t> all;
  for (const auto& task : fs::directory_iterator("/proc/self/task")) {
    std::ifstream list(task.path() / "children");
    for (pid_t id = 0; list >> id;) all.push_back(id);
  }
  return all;
}

// An environment variable for the time of a test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* const name_;
};

class InstancesTest : public BackendTest {
 protected:
  static void SetUpTestSuite() {}
  static void TearDownTestSuite() {}
  void TearDown() override { stop(server_, dir_); }

  static Status load(const Values& values, int count = 1) {
    return try_to_start(server_, dir_, values, [&](const fs::path& dir) {
      edit_config(dir / "tensorrt_llm", "count: 1", "count: " + std::to_string(count));
    });
  }
  static std::string error_of(const Values& values, int count = 1) {
    const Status status = load(values, count);
    std::string text(message(status));
    stop(server_, dir_);
    return text;
  }
  static std::string answer() {
    const Conversation got = ask("ensemble", kPrompt, 16);
    EXPECT_TRUE(got.status.ok()) << got.status;
    return got.joined();
  }
  static bool has_series(const std::string& start) {
    return metrics_page(server_).find("\n" + start) != std::string::npos;
  }
  static double instance_metric(const std::string& family, int instance) {
    return metric(metrics_page(server_), family + "{instance=\"" + std::to_string(instance) + "\"");
  }
  static bool wait_for(const std::function<bool()>& condition) {
    for (int i = 0; i < 6000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
};

TEST_F(InstancesTest, OneExecutorServesAllOfTritonsInstancesInLeaderMode) {
  ASSERT_TRUE(load({}, 5).ok());
  answer();
  EXPECT_FALSE(has_series("nereid_instance_"));
  EXPECT_EQ(metric(metrics_page(server_),
                   "nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type=\"max\""),
            32);
  EXPECT_TRUE(children().empty());
}

TEST_F(InstancesTest, OrchestratedInstancesAreProcesses) {
  ASSERT_TRUE(load({}).ok());
  const std::string expected = answer();
  stop(server_, dir_);
  const Variable orchestrator("TRTLLM_ORCHESTRATOR", "1");
  const Status status = load({{"executor_worker_path", "/opt/other/trtllmExecutorWorker"}}, 2);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(children().size(), 2U);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(answer(), expected);
  const auto max = "nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type=\"max\"";
  EXPECT_EQ(metric(metrics_page(server_), max), 64);
  ASSERT_TRUE(wait_for([] { return instance_metric("nereid_instance_requests", 0) == 0; }));
  EXPECT_EQ(instance_metric("nereid_instance_healthy", 1), 1);

  // One of them is killed: the other one serves, and it comes back.
  ::kill(children().front(), SIGKILL);
  ASSERT_TRUE(wait_for([] {
    return instance_metric("nereid_instance_healthy", 0) == 0 ||
           instance_metric("nereid_instance_healthy", 1) == 0 ||
           instance_metric("nereid_instance_restarts_total", 0) +
                   instance_metric("nereid_instance_restarts_total", 1) >
               0;
  }));
  EXPECT_EQ(answer(), expected);
  ASSERT_TRUE(wait_for([] {
    return instance_metric("nereid_instance_restarts_total", 0) +
               instance_metric("nereid_instance_restarts_total", 1) ==
           1;
  }));
  EXPECT_EQ(children().size(), 2U);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(answer(), expected);
  stop(server_, dir_);
  EXPECT_TRUE(children().empty());
}

TEST_F(InstancesTest, StaticBatchingInstancesOfOneProcess) {
  ASSERT_TRUE(load({{"batching_strategy", "V1"}, {"decoupled_mode", "false"}}).ok());
  const std::string expected = answer();
  stop(server_, dir_);
  ASSERT_TRUE(load({{"batching_strategy", "V1"},
                    {"decoupled_mode", "false"},
                    {"num_instances", "2"},
                    {"restart_failed", "true"}})
                  .ok());
  EXPECT_EQ(answer(), expected);
  EXPECT_EQ(answer(), expected);
  EXPECT_EQ(instance_metric("nereid_instance_healthy", 1), 1);
  EXPECT_TRUE(children().empty());
}

TEST_F(InstancesTest, OrchestratedStaticBatching) {
  ASSERT_TRUE(load({{"batching_strategy", "V1"},
                    {"decoupled_mode", "false"},
                    {"process_mode", "orchestrator"},
                    {"tensor_parallel", "2"}})
                  .ok());
  EXPECT_EQ(children().size(), 2U);
  answer();
}

TEST_F(InstancesTest, StopReachesTheRightInstance) {
  ASSERT_TRUE(load({{"num_instances", "2"}}).ok());
  std::vector<std::unique_ptr<Talk>> talks;
  for (int i = 0; i < 4; ++i) {
    std::vector<Output> inputs = {text_input("text_input", {kPrompt}), int_input("max_tokens", 200),
                                  bool_input("stream", true), int_input("end_id", -1)};
    talks.push_back(
        std::make_unique<Talk>(server_, "ensemble", std::move(inputs), "talk" + std::to_string(i)));
  }
  for (auto& talk : talks) talk->wait_for_text();
  for (auto& talk : talks) talk->cancel();
  for (auto& talk : talks) talk->wait();
  ASSERT_TRUE(wait_for([] {
    return instance_metric("nereid_instance_requests", 0) +
               instance_metric("nereid_instance_requests", 1) ==
           0;
  }));
  answer();
}

TEST_F(InstancesTest, WrongOnesAreNamed) {
  EXPECT_THAT(error_of({{"participant_ids", "1,x"}}), HasSubstr("participant_ids: '1,x'"));
  EXPECT_THAT(error_of({{"process_mode", "mpi"}}), HasSubstr("'process_mode' is 'mpi'"));
  EXPECT_THAT(error_of({{"restart_failed", "true"}, {"exit_on_device_failure", "true"}}),
              HasSubstr("excludes exit_on_device_failure"));
  {
    const Variable orchestrator("TRTLLM_ORCHESTRATOR", "yes");
    EXPECT_THAT(error_of({}), HasSubstr("TRTLLM_ORCHESTRATOR is 'yes', expected an integer"));
  }
  const Variable orchestrator("TRTLLM_ORCHESTRATOR", "1");
  EXPECT_THAT(error_of({{"participant_ids", "1"}}),
              HasSubstr("needs TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES=0"));
  EXPECT_THAT(error_of({{"gpu_device_ids", "0,1;2,3,4"}, {"tensor_parallel", "2"}}, 2),
              HasSubstr("3 GPUs in '2,3,4'; tensor_parallel * pipeline_parallel are 2 ranks"));
  const Variable spawn("TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES", "0");
  EXPECT_THAT(error_of({}), HasSubstr("Spawning of processes was disabled in orchestrator mode, "
                                      "but participant IDs is missing."));
  EXPECT_THAT(error_of({{"participant_ids", "0"}}),
              HasSubstr("'0' has 0, the process that serves"));
}

}  // namespace
}  // namespace nereid::backend
