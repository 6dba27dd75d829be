// Placement of a model's instances: kinds, GPUs, profiles, passive instances, and
// a backend's preference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>

#include "base/testing/fake_gpus.h"
#include "server/model/backend_model.h"
#include "server/testing/client.h"
#include "server/testing/probe.h"

namespace nereid::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

std::string model_with(const std::string& groups) {
  return "backend: \"nereid_probe\"\n"
         "input { name: \"IN\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
         "output { name: \"OUT\" data_type: TYPE_INT32 dims: [ -1 ] }\n" +
         groups;
}

// "<name> <kind> <device> <host policy>"
std::string describe(TRITONBACKEND_ModelInstance* instance) {
  const char* name = nullptr;
  TRITONSERVER_InstanceGroupKind kind = TRITONSERVER_INSTANCEGROUPKIND_AUTO;
  int32_t device = -1;
  TRITONSERVER_Message* policy = nullptr;
  TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelInstanceName(instance, &name));
  TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelInstanceKind(instance, &kind));
  TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelInstanceDeviceId(instance, &device));
  TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelInstanceHostPolicy(instance, &policy));
  const char* base = nullptr;
  size_t size = 0;
  TRITONSERVER_ErrorDelete(TRITONSERVER_MessageSerializeToJson(policy, &base, &size));
  return std::string(name) + " " + TRITONSERVER_InstanceGroupKindString(kind) + " " +
         std::to_string(device) + " " + std::string(base, size);
}

class Instances : public testing::Test {
 protected:
  Instances() {
    probe() = {};
    probe().instance = [this](TRITONBACKEND_ModelInstance* instance) {
      std::lock_guard lock(mutex_);
      made_.push_back(describe(instance));
      return nullptr;
    };
  }
  ~Instances() override { probe() = {}; }

  // Two GPUs, of compute capability 9.0 and 8.6.
  void add_gpus() { gpus_.emplace(); }

  // Descriptions of the instances of a model with these groups, or the error.
  std::vector<std::string> made(const std::string& groups) {
    made_.clear();
    const TestServer server({{"m", model_with(groups)}});
    if (server.started().ok()) return made_;
    return {server.started().text};
  }

  std::mutex mutex_;
  std::vector<std::string> made_;
  std::optional<FakeGpus> gpus_;
};

TEST_F(Instances, WithoutGpusTheyRunOnTheCpu) {
  EXPECT_THAT(made(""), ElementsAre(R"(m_0 CPU 0 {"cpu":{}})"));
  EXPECT_THAT(made("instance_group [ { count: 2 host_policy: \"near\" }, { kind: KIND_MODEL } ]"),
              ElementsAre(R"(m_0_0 CPU 0 {"near":{}})", R"(m_0_1 CPU 0 {"near":{}})",
                          R"(m_1_0 MODEL 0 {"model":{}})"));
  EXPECT_THAT(
      made("instance_group { kind: KIND_GPU }")[0],
      HasSubstr("instance group m_0 of model m has kind KIND_GPU but no GPUs are available"));
}

// Skipped where the kernel does not let the process choose, as in some containers.
TEST_F(Instances, AHostPolicyChoosesMemory) {
  int mode = -1;
  probe().instance = [&](TRITONBACKEND_ModelInstance*) {
    ::syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0);
    return nullptr;
  };
  namespace fs = std::filesystem;
  std::string name = (fs::temp_directory_path() / "nereid-numa-XXXXXX").string();
  const fs::path root = mkdtemp(name.data());
  fs::create_directories(root / "m" / "1");
  std::ofstream(root / "m" / "config.pbtxt") << model_with("");
  const auto start = [&root](const char* node) {
    const TestServer server(root, [node](TRITONSERVER_ServerOptions* options) {
      TRITONSERVER_ServerOptionsSetHostPolicy(options, "cpu", "numa-node", node);
    });
    return server.started().text;
  };
  EXPECT_THAT(start("zero"), HasSubstr("host policy 'numa-node' must be a number from 0 to 1023, "
                                       "got 'zero'"));
  EXPECT_THAT(start("-1"), HasSubstr("got '-1'"));
  EXPECT_THAT(start("1024"), HasSubstr("got '1024'"));
  EXPECT_THAT(start("1023"), HasSubstr("host policy 'numa-node' '1023': "));
  bool may_choose = false;
  std::thread([&] { may_choose = ::syscall(SYS_set_mempolicy, 0, nullptr, 0) == 0; }).join();
  if (may_choose) {
    EXPECT_EQ(start("0"), "");
    EXPECT_EQ(mode, 2);  // MPOL_BIND
  }
  fs::remove_all(root);
}

TEST_F(Instances, OneForEachGpu) {
  add_gpus();
  const auto both = ElementsAre(R"(m_0 GPU 0 {"gpu_0":{}})", R"(m_0 GPU 1 {"gpu_1":{}})");
  EXPECT_THAT(made(""), both) << "a model that leaves the kind open";
  EXPECT_THAT(made("instance_group { name: \"g\" kind: KIND_GPU count: 2 }"),
              UnorderedElementsAre(R"(g_0 GPU 0 {"gpu_0":{}})", R"(g_0 GPU 1 {"gpu_1":{}})",
                                   R"(g_1 GPU 0 {"gpu_0":{}})", R"(g_1 GPU 1 {"gpu_1":{}})"));
  EXPECT_THAT(made("instance_group { name: \"g\" kind: KIND_GPU gpus: 1 }"),
              ElementsAre(R"(g_0 GPU 1 {"gpu_1":{}})"));
  EXPECT_THAT(made("instance_group { kind: KIND_CPU }"), ElementsAre(R"(m_0_0 CPU 0 {"cpu":{}})"));
}

TEST_F(Instances, GpusMustExist) {
  add_gpus();
  EXPECT_THAT(made("instance_group { kind: KIND_GPU gpus: [ 0, 2 ] }")[0],
              HasSubstr("instance group m_0 of model m specifies invalid or unsupported gpu id 2. "
                        "GPUs with at least the minimum required CUDA compute compatibility of "
                        "6.000000 are: 0, 1 ("));
  EXPECT_THAT(made("instance_group { kind: KIND_CPU gpus: 0 }")[0],
              HasSubstr("has kind KIND_CPU but specifies one or more GPUs"));
  EXPECT_THAT(made("instance_group { kind: KIND_GPU count: 513 }")[0],
              HasSubstr("has count 513 on 2 devices: more than 1024 instances"));
}

TEST_F(Instances, TheDriverHidesGpus) {
  add_gpus();
  for (const char* one : {"1", "2"}) {
    gpus_->show(one);
    EXPECT_THAT(made("instance_group { kind: KIND_GPU }"),
                ElementsAre(R"(m_0_0 GPU 0 {"gpu_0":{}})"));
  }
  gpus_->show("10");
  EXPECT_EQ(made("instance_group { kind: KIND_GPU }").size(), 2u);
  gpus_->show("");
  EXPECT_THAT(made(""), ElementsAre(R"(m_0 CPU 0 {"cpu":{}})"));
}

TEST_F(Instances, BackendsPreferGroupsForModelsThatNameNone) {
  probe().attribute = [](TRITONBACKEND_BackendAttribute* attribute) {
    const uint64_t gpus[] = {1, 5};
    TRITONSERVER_ErrorDelete(TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
        attribute, TRITONSERVER_INSTANCEGROUPKIND_GPU, 2, gpus, 2));
    return TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
        attribute, TRITONSERVER_INSTANCEGROUPKIND_CPU, 3, nullptr, 0);
  };
  EXPECT_EQ(made("").size(), 3u) << "the first that is possible";
  EXPECT_THAT(made("instance_group { count: 1 }"), ElementsAre(R"(m_0_0 CPU 0 {"cpu":{}})"));
  add_gpus();
  EXPECT_THAT(made(""), ElementsAre(R"(m_0 GPU 1 {"gpu_1":{}})", R"(m_1 GPU 1 {"gpu_1":{}})"));
}

TEST_F(Instances, ProfilesAndSecondaryDevicesAreToldToTheBackend) {
  std::vector<std::string> seen;
  probe().instance = [&](TRITONBACKEND_ModelInstance* instance) {
    uint32_t count = 0;
    TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelInstanceProfileCount(instance, &count));
    for (uint32_t i = 0; i <= count; ++i) {
      const char* name = nullptr;
      const Outcome read(TRITONBACKEND_ModelInstanceProfileName(instance, i, &name));
      seen.push_back(read.ok() ? name : read.text);
    }
    TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelInstanceSecondaryDeviceCount(instance, &count));
    for (uint32_t i = 0; i <= count; ++i) {
      const char* kind = nullptr;
      int64_t id = 0;
      const Outcome read(
          TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(instance, i, &kind, &id));
      seen.push_back(read.ok() ? kind + std::to_string(id) : read.text);
    }
    return nullptr;
  };
  const TestServer server({{"m", model_with("instance_group { profile: [ \"0\", \"big\" ] "
                                            "secondary_devices { device_id: 3 } }")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  EXPECT_THAT(
      seen, ElementsAre("0", "big", "out of bounds index 2, instance has 2 profiles", "KIND_NVDLA3",
                        "out of bounds index 1, instance has 1 secondary devices"));
}

TEST_F(Instances, PassiveOnesAreNeverGivenRequests) {
  std::vector<std::string> executed;
  probe().request = [&](TRITONBACKEND_ModelInstance* instance, auto*) {
    bool is_passive = true;
    TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelInstanceIsPassive(instance, &is_passive));
    EXPECT_FALSE(is_passive);
    executed.push_back(describe(instance));
  };
  TestServer server({{"m", model_with("instance_group [ { name: \"idle\" passive: true count: 2 }, "
                                      "{ name: \"busy\" } ]")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  EXPECT_EQ(made_.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    TestCall call(server.get(), "m", {i});
    ASSERT_TRUE(call.send().ok() && call.wait());
  }
  EXPECT_THAT(executed, testing::Each(R"(busy_0 CPU 0 {"cpu":{}})"));
  EXPECT_EQ(executed.size(), 3u);
}

class InstanceUpdates : public Instances {
 protected:
  InstanceUpdates() {
    std::string name = (std::filesystem::temp_directory_path() / "nereid-updates-XXXXXX").string();
    root_ = mkdtemp(name.data());
    std::filesystem::create_directories(root_ / "m" / "1");
    probe().model = [this](auto*) {
      ++num_models_;
      return nullptr;
    };
    probe().instance_end = [this](TRITONBACKEND_ModelInstance* instance) {
      std::lock_guard lock(mutex_);
      gone_.push_back(describe(instance).substr(0, 3));
    };
  }
  ~InstanceUpdates() override { std::filesystem::remove_all(root_); }

  void write(const std::string& groups) {
    // Each of another size: two writes within a tick of the file system's clock
    // look alike otherwise.
    std::ofstream(root_ / "m" / "config.pbtxt")
        << model_with(groups) << std::string(++num_writes_, '\n');
  }
  std::unique_ptr<TestServer> start() {
    return std::make_unique<TestServer>(root_, [](TRITONSERVER_ServerOptions* options) {
      TRITONSERVER_ServerOptionsSetModelControlMode(options, TRITONSERVER_MODEL_CONTROL_EXPLICIT);
      TRITONSERVER_ServerOptionsSetStartupModel(options, "m");
    });
  }
  static Outcome load(TestServer& s) { return Outcome(TRITONSERVER_ServerLoadModel(s.get(), "m")); }
  static void answer_some(TestServer& s) {
    std::vector<std::unique_ptr<TestCall>> calls;
    for (int i = 0; i < 20; ++i) {
      calls.push_back(std::make_unique<TestCall>(s.get(), "m", std::vector<int32_t>{i}));
      ASSERT_TRUE(calls.back()->send().ok());
    }
    for (auto& call : calls) ASSERT_TRUE(call->wait());
  }
  static std::string config(TestServer& s) {
    TRITONSERVER_Message* message = nullptr;
    TRITONSERVER_ServerModelConfig(s.get(), "m", -1, 1, &message);
    return take_text(message);
  }

  std::filesystem::path root_;
  size_t num_writes_ = 0;
  std::atomic<int> num_models_{0};
  std::vector<std::string> gone_;
};

TEST_F(InstanceUpdates, AnotherCountKeepsTheOthersAndTheModel) {
  write("instance_group { name: \"a\" count: 2 }");
  const auto server = start();
  ASSERT_TRUE(server->started().ok()) << server->started().text;
  ASSERT_EQ(made_.size(), 2u);
  write("instance_group { name: \"a\" count: 4 }");
  ASSERT_TRUE(load(*server).ok());
  EXPECT_THAT(made_,
              ElementsAre(HasSubstr("a_"), HasSubstr("a_"), HasSubstr("a_2"), HasSubstr("a_3")));
  EXPECT_THAT(gone_, ElementsAre());
  EXPECT_THAT(config(*server), HasSubstr("\"count\":4"));
  answer_some(*server);
  // The same groups under other names.
  write("instance_group [ { name: \"b\" count: 3 }, { name: \"c\" } ]");
  ASSERT_TRUE(load(*server).ok());
  EXPECT_EQ(made_.size(), 4u);
  write("instance_group { name: \"a\" count: 1 }");
  ASSERT_TRUE(load(*server).ok());
  EXPECT_EQ(gone_.size(), 3u);
  answer_some(*server);
  EXPECT_EQ(num_models_, 1);
  std::filesystem::create_directories(root_ / "m" / "1" / "__pycache__");
  std::ofstream(root_ / "m" / "1" / "__pycache__" / "model.pyc") << "left behind";
  ASSERT_TRUE(load(*server).ok());
  EXPECT_EQ(num_models_, 1);
  // Any other change: a new model.
  std::ofstream(root_ / "m" / "1" / "model.py") << "another";
  ASSERT_TRUE(load(*server).ok());
  EXPECT_EQ(num_models_, 2);
  write("max_batch_size: 2 instance_group { name: \"a\" count: 1 }");
  ASSERT_TRUE(load(*server).ok());
  EXPECT_EQ(num_models_, 3);
}

TEST_F(InstanceUpdates, OldConfigurationsAreBounded) {
  write("instance_group { name: \"a\" count: 1 }");
  const auto server = start();
  ASSERT_TRUE(server->started().ok()) << server->started().text;
  const auto update = [&](int i) {
    write("instance_group { name: \"a" + std::to_string(i) + "\" count: 1 }");
    return load(*server).ok();
  };
  for (int i = 0; i < BackendModel::kMostUpdates; ++i) {
    ASSERT_TRUE(update(i));
    ASSERT_TRUE(load(*server).ok());  // no change: not counted
  }
  EXPECT_EQ(num_models_, 1);
  ASSERT_TRUE(update(BackendModel::kMostUpdates));
  EXPECT_EQ(num_models_, 2);
  answer_some(*server);
}

TEST_F(InstanceUpdates, OneThatFailsLeavesAllAsItWas) {
  write("instance_group { name: \"a\" count: 1 }");
  const auto server = start();
  ASSERT_TRUE(server->started().ok()) << server->started().text;
  const std::string before = config(*server);
  probe().instance = [](TRITONBACKEND_ModelInstance* instance) -> TRITONSERVER_Error* {
    if (!describe(instance).starts_with("a_2")) return nullptr;
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "no room");
  };
  write("instance_group { name: \"a\" count: 3 }");
  EXPECT_THAT(load(*server).text, HasSubstr("no room"));
  EXPECT_THAT(gone_, UnorderedElementsAre("a_1", "a_2"));
  EXPECT_EQ(config(*server), before);
  answer_some(*server);
}

TEST_F(InstanceUpdates, NoRequestIsLostWhileTheyComeAndGo) {
  write("instance_group { name: \"a\" count: 1 }");
  const auto server = start();
  ASSERT_TRUE(server->started().ok()) << server->started().text;
  std::atomic<bool> is_over{false};
  std::thread client([&] {
    while (!is_over) answer_some(*server);
  });
  for (int i = 0; i < 40; ++i) {
    write("instance_group { name: \"a\" count: " + std::to_string(1 + i * 7 % 5) + " }");
    EXPECT_TRUE(load(*server).ok());
  }
  is_over = true;
  client.join();
  EXPECT_EQ(num_models_, 1);
}

TEST_F(Instances, ABackendMayBlockItsDevice) {
  TRITONBACKEND_ExecutionPolicy policies[2] = {};
  std::string refused;
  probe().initialize = [&](TRITONBACKEND_Backend* backend) -> TRITONSERVER_Error* {
    TRITONSERVER_ErrorDelete(TRITONBACKEND_BackendExecutionPolicy(backend, &policies[0]));
    refused = Outcome(TRITONBACKEND_BackendSetExecutionPolicy(
                          backend, static_cast<TRITONBACKEND_ExecutionPolicy>(7)))
                  .text;
    TRITONSERVER_ErrorDelete(
        TRITONBACKEND_BackendSetExecutionPolicy(backend, TRITONBACKEND_EXECUTION_DEVICE_BLOCKING));
    return TRITONBACKEND_BackendExecutionPolicy(backend, &policies[1]);
  };
  add_gpus();
  std::atomic<int> inside{0}, most{0};
  probe().request = [&](auto*, auto*) {
    const int now = ++inside;
    for (int seen = most.load(); seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    std::this_thread::yield();
    --inside;
  };
  TestServer server({{"m", model_with("instance_group { kind: KIND_GPU gpus: 0 count: 4 }")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  EXPECT_EQ(policies[0], TRITONBACKEND_EXECUTION_BLOCKING);
  EXPECT_EQ(policies[1], TRITONBACKEND_EXECUTION_DEVICE_BLOCKING);
  EXPECT_THAT(refused, HasSubstr("unknown execution policy 7"));
  std::vector<std::unique_ptr<TestCall>> calls;
  for (int i = 0; i < 100; ++i) {
    calls.push_back(std::make_unique<TestCall>(server.get(), "m", std::vector<int32_t>{i}));
    ASSERT_TRUE(calls.back()->send().ok());
  }
  for (auto& call : calls) ASSERT_TRUE(call->wait());
  EXPECT_EQ(most, 1) << "instances on one GPU take turns";
}

}  // namespace
}  // namespace nereid::server
