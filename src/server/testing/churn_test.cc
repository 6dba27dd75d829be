// Loads and unloads of one model while another serves: no request is lost and memory comes
// back. NEREID_CHURN_LOADS sets the number: default 1000, 60 under a sanitizer, where each
// takes many times longer.
#include <gtest/gtest.h>
#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>

#include "server/testing/client.h"

namespace nereid::server {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

size_t resident_bytes() {
  malloc_trim(0);
  size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

class Churn : public testing::Test {
 protected:
  Churn() {
    std::string name = (std::filesystem::temp_directory_path() / "nereid-churn-XXXXXX").string();
    root_ = mkdtemp(name.data());
    for (const char* model : {"serving", "coming"}) {
      std::filesystem::create_directories(root_ / model / "1");
      std::ofstream(root_ / model / "config.pbtxt") << test_model("identity");
    }
  }
  ~Churn() override { std::filesystem::remove_all(root_); }

  static Outcome load(TestServer& server, const std::string& config) {
    auto* p = TRITONSERVER_ParameterNew("config", TRITONSERVER_PARAMETER_STRING, config.c_str());
    const TRITONSERVER_Parameter* list[] = {p};
    Outcome out(TRITONSERVER_ServerLoadModelWithParameters(server.get(), "coming", list, 1));
    TRITONSERVER_ParameterDelete(p);
    return out;
  }

  static bool is_gone(TestServer& server) {
    TRITONSERVER_Message* message = nullptr;
    TRITONSERVER_ServerModelIndex(server.get(), 0, &message);
    return take_text(message).find("UNLOADING") == std::string::npos;
  }

  // One load, a request, one unload; every tenth load is of a model that fails to initialise.
  void cycle(TestServer& server, int i) {
    const bool fails = i % 10 == 9;
    const std::string config =
        std::string(
            R"({"backend":"nereid_test","input":[{"name":"IN","data_type":"TYPE_INT32","dims":[-1]}],)"
            R"("output":[{"name":"OUT","data_type":"TYPE_INT32","dims":[-1]}],"parameters":{"behavior":)"
            R"({"string_value":")") +
        (fails ? "init_fail" : "identity") + R"("}}})";
    const Outcome loaded = load(server, config);
    ASSERT_EQ(loaded.ok(), !fails) << loaded.text;
    if (fails) return;
    {
      TestCall call(server.get(), "coming", {i});
      ASSERT_TRUE(call.send().ok() && call.wait());
      ASSERT_EQ(call.joined(), std::vector<int32_t>{i});
    }
    ASSERT_TRUE(Outcome(TRITONSERVER_ServerUnloadModel(server.get(), "coming")).ok());
    ASSERT_TRUE(eventually([&] { return is_gone(server); }));
  }

  std::filesystem::path root_;
};

TEST_F(Churn, LoadsAndUnloadsLeaveNothingBehind) {
  const char* wanted = getenv("NEREID_CHURN_LOADS");
  const int num_loads = wanted != nullptr ? atoi(wanted) : kIsSanitized ? 60 : 1000;
  TestServer server(root_, [](TRITONSERVER_ServerOptions* options) {
    TRITONSERVER_ServerOptionsSetModelControlMode(options, TRITONSERVER_MODEL_CONTROL_EXPLICIT);
    TRITONSERVER_ServerOptionsSetStartupModel(options, "serving");
    TRITONSERVER_ServerOptionsSetLogInfo(options, false);
    TRITONSERVER_ServerOptionsSetLogError(options, false);
  });
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  std::atomic<bool> is_over{false};
  std::atomic<int> num_asked{0}, num_lost{0};
  std::vector<std::thread> clients;
  for (int t = 0; t < 2; ++t) {
    clients.emplace_back([&, t] {
      while (!is_over.load()) {
        TestCall call(server.get(), "serving", {t, num_asked.load()}, "quick");
        if (!call.created.ok() || !(t == 0 ? call.send() : call.send_to_run_here()).ok() ||
            !call.wait() || call.joined()[0] != t) {
          ++num_lost;
        }
        ++num_asked;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    });
  }
  // The model may be unloaded at any time; an accepted request is answered.
  clients.emplace_back([&] {
    while (!is_over.load()) {
      TestCall call(server.get(), "coming", {1}, "quick");
      if (call.created.ok() && call.send_to_run_here().ok() && !call.wait()) ++num_lost;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  });
  // One-time allocations have happened after these.
  const int num_warm = std::min(20, num_loads / 2);
  for (int i = 0; i < num_warm && !HasFatalFailure(); ++i) cycle(server, i);
  const size_t before = resident_bytes();
  for (int i = num_warm; i < num_loads && !HasFatalFailure(); ++i) cycle(server, i);
  const size_t after = resident_bytes();
  is_over.store(true);
  for (auto& client : clients) client.join();
  TRITONSERVER_ServerOptions* options = nullptr;
  TRITONSERVER_ServerOptionsNew(&options);
  TRITONSERVER_ServerOptionsSetLogInfo(options, true);
  TRITONSERVER_ServerOptionsSetLogError(options, true);
  TRITONSERVER_ServerOptionsDelete(options);
  std::printf("%d loads, %d requests meanwhile, %d lost, resident %zu -> %zu KiB\n", num_loads,
              num_asked.load(), num_lost.load(), before >> 10, after >> 10);
  EXPECT_EQ(num_lost, 0);
  if (kIsSanitized) {
    std::printf(
        "resident memory is not judged: a sanitizer keeps what was freed and looks for leaks "
        "itself\n");
  } else {
    // The difference is fragmentation, not an amount for each load.
    EXPECT_LT(after, before + (size_t{4} << 20));
  }
}

}  // namespace
}  // namespace nereid::server
