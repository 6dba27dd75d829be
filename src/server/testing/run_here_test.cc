// Quick requests of our front ends run on the thread that sends them. The test backend calls a
// request quick if its id begins with "quick", and grants the permission for responses of models
// whose name begins with "lender".
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "server/testing/client.h"
#include "server/testing/gate.h"

namespace nereid::server {
namespace {

using testing::ElementsAre;

// An ensemble: first `one`, then "two" with its output.
std::string ensemble_of(const std::string& one) {
  return "platform: \"ensemble\"\n"
         "input { name: \"IN\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
         "output { name: \"OUT\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
         "ensemble_scheduling { step ["
         "{ model_name: \"" +
         one +
         "\" model_version: -1"
         "  input_map { key: \"IN\" value: \"IN\" } output_map { key: \"OUT\" value: \"mid\" } },"
         "{ model_name: \"two\" model_version: -1"
         "  input_map { key: \"IN\" value: \"mid\" } output_map { key: \"OUT\" value: \"OUT\" } } "
         "] }\n";
}

// The number of 50 requests in a row that the thread that sent them answered.
int num_answered_here(TestServer& server, const std::string& model, const std::string& id,
                      bool may_run_here) {
  int count = 0;
  for (int i = 0; i < 50; ++i) {
    TestCall call(server.get(), model, {i, 2}, id);
    EXPECT_TRUE(call.created.ok()) << call.created.text;
    EXPECT_TRUE((may_run_here ? call.send_to_run_here() : call.send()).ok());
    EXPECT_TRUE(call.wait());
    EXPECT_THAT(call.joined(), ElementsAre(i, 2));
    EXPECT_EQ(call.num_finals(), 1);
    EXPECT_EQ(call.num_releases(), 1);
    count += call.replies().at(0).thread == std::this_thread::get_id();
  }
  return count;
}

TEST(InlineExecution, NeedsTheCallersLeaveAndTheBackends) {
  TestServer server({{"m", test_model("identity")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  EXPECT_EQ(num_answered_here(server, "m", "quick", true), 50);
  EXPECT_EQ(num_answered_here(server, "m", "quick", false), 0);
  EXPECT_EQ(num_answered_here(server, "m", "other", true), 0);
}

TEST(InlineExecution, WholeEnsembles) {
  TestServer server({{"all", ensemble_of("one")},
                     {"one", test_model("identity")},
                     {"two", test_model("identity")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  EXPECT_EQ(num_answered_here(server, "all", "quick", true), 50);
}

TEST(InlineExecution, NotWhereABatcherWaitsForMore) {
  TestServer server(
      {{"m", test_model("identity", "dynamic_batching { max_queue_delay_microseconds: 1000 }")},
       {"plain", test_model("identity", "dynamic_batching { }")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  EXPECT_EQ(num_answered_here(server, "m", "quick", true), 0);
  EXPECT_EQ(num_answered_here(server, "plain", "quick", true), 50);
}

TEST(InlineExecution, OvertakesNobody) {
  TestServer server({{"m", test_model("slow")}});  // takes the time in its first value
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  TestCall first(server.get(), "m", {kUntilOpen});
  TestCall second(server.get(), "m", {0});
  TestCall quick(server.get(), "m", {0}, "quick");
  ASSERT_TRUE(first.send().ok());
  ASSERT_TRUE(wait_until_held());
  ASSERT_TRUE(second.send().ok());
  ASSERT_TRUE(quick.send_to_run_here().ok());
  EXPECT_TRUE(quick.replies().empty());
  open_gate();
  ASSERT_TRUE(quick.wait());
  EXPECT_EQ(first.replies().size(), 1u);
  EXPECT_EQ(second.replies().size(), 1u);
  EXPECT_NE(quick.replies().at(0).thread, std::this_thread::get_id());
}

// The first model's responses come from a thread of the test backend; the second
// returns its thread.
TEST(InlineExecution, AThreadThatIsLentRunsWhatFollows) {
  const std::string repeat = test_model("repeat");
  TestServer server({{"with_lender", ensemble_of("lender")},
                     {"lender", repeat},
                     {"with_other", ensemble_of("other")},
                     {"other", repeat},
                     {"two", test_model("thread")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  // Threads that executed "two".
  const auto threads = [&](const std::string& model, bool may_run_here = false) {
    TestCall call(server.get(), model, {7, 8, 9}, "quick");
    EXPECT_TRUE((may_run_here ? call.send_to_run_here() : call.send()).ok());
    EXPECT_TRUE(call.wait());
    const std::vector<int32_t> all = call.joined();
    return std::set<int32_t>(all.begin(), all.end());
  };
  const auto instance = threads("two");
  ASSERT_EQ(instance.size(), 1u);
  EXPECT_EQ(threads("with_other"), instance);
  // The instance may still be at the end of its last execution.
  EXPECT_TRUE(eventually([&] { return threads("two", true) != instance; }));
  for (int i = 0; i < 20; ++i) {
    // Either the sender of the responses, or the caller while it is still busy with the ensemble.
    const auto lent = threads("with_lender", true);
    EXPECT_FALSE(lent.contains(*instance.begin()));
  }
}

TEST(InlineExecution, OneExecutionAtATimeForEachInstance) {
  TestServer server({{"m", test_model("slow")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  TestCall here(server.get(), "m", {kUntilOpen}, "quick");
  TestCall other(server.get(), "m", {0});
  std::thread caller([&] { EXPECT_TRUE(here.send_to_run_here().ok()); });
  EXPECT_TRUE(wait_until_held());
  EXPECT_TRUE(other.send().ok());
  EXPECT_TRUE(wait_until_nothing_runs());
  EXPECT_EQ(other.num_finals(), 0);
  open_gate();
  EXPECT_TRUE(other.wait());
  EXPECT_EQ(here.replies().size(), 1u);
  caller.join();
}

}  // namespace
}  // namespace nereid::server
