// Many requests from many threads with random cancels: every one ends exactly once.
// For TSan and ASan.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "server/testing/client.h"

namespace nereid::server {
namespace {

TEST(Stress, EveryRequestEndsOnce) {
  const auto step = [](const char* model, const char* in, const char* out) {
    return std::string("{ model_name: \"") + model +
           "\" model_version: -1 input_map { key: \"IN\" value: \"" + in +
           "\" } output_map { key: \"OUT\" value: \"" + out + "\" } }";
  };
  const std::string ensemble =
      "platform: \"ensemble\" input { name: \"IN\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
      "output { name: \"OUT\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
      "ensemble_scheduling { step [ " +
      step("repeat", "IN", "_m") + ", " + step("echo", "_m", "OUT") + " ] }";
  TestServer server({{"echo", test_model("identity", "instance_group [ { count: 2 } ]")},
                     {"repeat", test_model("repeat")},
                     {"fail_after", test_model("fail_after")},
                     {"no_final", test_model("no_final")},
                     {"ensemble", ensemble}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  constexpr int kThreads = 4, kRequests = 60;
  std::atomic<int> num_bad{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      const char* models[] = {"echo", "repeat", "ensemble", "fail_after", "no_final"};
      for (int i = 0; i < kRequests; ++i) {
        const std::string model = models[random() % 5];
        const std::vector<int32_t> values = {i, i + 1, i + 2, i + 3};
        TestCall call(server.get(), model, values);
        if (!call.send().ok()) ++num_bad;
        const bool cancels = random() % 3 == 0;
        if (cancels) call.cancel();
        if (!call.wait() || call.num_finals() != 1 || call.num_releases() != 1) ++num_bad;
        const bool plain = model == "echo" || model == "repeat" || model == "ensemble";
        if (plain && !cancels && call.joined() != values) ++num_bad;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(num_bad, 0);
  EXPECT_TRUE(Outcome(TRITONSERVER_ServerStop(server.get())).ok());
}

}  // namespace
}  // namespace nereid::server
