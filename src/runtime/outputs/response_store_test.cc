// ResponseStore: results of await, when it blocks and when it does not.
#include "runtime/outputs/response_store.h"

#include <gmock/gmock.h>

#include <chrono>
#include <future>
#include <thread>

#include "base/status.h"
#include "base/testing/wait.h"

namespace nereid::runtime {
namespace {

using std::chrono::milliseconds;

Response response(RequestId id, bool is_final, int32_t mark = 0) {
  Response r;
  r.request_id = id;
  r.is_final = is_final;
  r.num_input_tokens = mark;
  return r;
}

TEST(ResponseStore, TakesAllInOrderOfEachRequest) {
  ResponseStore store;
  for (RequestId id : {1, 2}) store.expect(id);
  store.put(response(2, false, 20));
  store.put(response(1, false, 10));
  store.put(response(2, true, 21));
  EXPECT_EQ(store.num_ready({}), 3);
  EXPECT_EQ(store.num_ready(2), 2);
  const auto all = store.await(milliseconds(0));
  ASSERT_EQ(all.size(), 3u);
  std::vector<int32_t> of_two;
  for (const Response& r : all)
    if (r.request_id == 2) of_two.push_back(r.num_input_tokens);
  EXPECT_THAT(of_two, testing::ElementsAre(20, 21));
  EXPECT_EQ(store.num_ready({}), 0);
  EXPECT_TRUE(store.await(milliseconds(1)).empty());
}

TEST(ResponseStore, AnIdThatIsOverIsAnsweredAtOnce) {
  ResponseStore store;
  store.expect(5);
  store.put(response(5, true));
  EXPECT_TRUE(store.await(5, {})[0].status.ok());
  for (const RequestId id : {5, 6, 0}) {
    const auto again = store.await(id, {});
    ASSERT_EQ(again.size(), 1u);
    EXPECT_TRUE(absl::IsInvalidArgument(again[0].status));
    EXPECT_TRUE(again[0].is_final);
    EXPECT_EQ(again[0].request_id, id);
  }
}

TEST(ResponseStore, SeveralIdsKeepTheirOrder) {
  ResponseStore store;
  for (RequestId id : {1, 2, 3}) store.expect(id);
  store.put(response(3, true));
  const auto lists = store.await(std::vector<RequestId>{1, 3, 2}, milliseconds(1));
  ASSERT_EQ(lists.size(), 3u);
  EXPECT_TRUE(lists[0].empty());
  ASSERT_EQ(lists[1].size(), 1u);
  EXPECT_EQ(lists[1][0].request_id, 3u);
  EXPECT_TRUE(lists[2].empty());
}

// One timeout per id would take minutes.
TEST(ResponseStore, SeveralIdsShareOneTimeout) {
  ResponseStore store;
  store.expect(1);
  auto lists = std::async(std::launch::async, [&] {
    return store.await(std::vector<RequestId>(1000, 1), milliseconds(200));
  });
  const bool ended = lists.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
  EXPECT_TRUE(ended);
  if (!ended) store.put(response(1, true));
  EXPECT_EQ(lists.get().size(), 1000u);
}

TEST(ResponseStore, WaitsUntilSomethingComes) {
  ResponseStore store;
  store.expect(1);
  std::thread other([&] {
    EXPECT_TRUE(wait_until_nothing_runs());  // the thread below is blocked in await()
    store.put(response(1, false));
    store.put(response(1, true));
  });
  size_t count = 0;
  while (count < 2) count += store.await(1, milliseconds::max()).size();
  other.join();
  EXPECT_EQ(count, 2u);
}

TEST(ResponseStore, ClosedAndEmptyWaitsForNothing) {
  ResponseStore store;
  store.expect(1);
  std::thread other([&] {
    store.close();
    EXPECT_TRUE(wait_until_nothing_runs());  // as above
    store.put(response(1, true));
  });
  EXPECT_EQ(store.await(Timeout()).size(), 1u);
  EXPECT_TRUE(store.await(Timeout()).empty());
  other.join();
}

}  // namespace
}  // namespace nereid::runtime
