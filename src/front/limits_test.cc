// Protection of other clients against one: workers for long work, the byte budget, the measurement
// of event loops' turns.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <string>
#include <thread>

#include "front/http/io_stall.h"
#include "front/http/listener.h"
#include "front/http/workers.h"
#include "front/protection/byte_budget.h"
#include "front/testing/test_socket.h"

namespace nereid::front {
namespace {

using std::chrono::milliseconds;

// An exchange whose posted work waits until the test runs it.
class PostedExchange final : public Exchange {
 public:
  Request& request() override { return request_; }
  void post(std::function<void()> work) override { posted.set_value(std::move(work)); }
  void send(Response) override {}
  void begin_stream(Response, std::string) override {}
  void write(std::string_view) override {}
  void end() override {}
  void on_disconnect(std::function<void()>) override {}
  bool disconnected() const override { return is_gone; }

  std::promise<std::function<void()>> posted;
  bool is_gone = false;

 private:
  Request request_;
};

TEST(Workers, LongWorkLeavesTheLoop) {
  Workers workers(1);
  const auto exchange = std::make_shared<PostedExchange>();
  std::thread::id worked, answered;
  workers.run(
      exchange, false, [&] { return worked = std::this_thread::get_id(); },
      [&](std::thread::id) { answered = std::this_thread::get_id(); });
  const auto posted = exchange->posted.get_future().get();
  EXPECT_NE(worked, std::this_thread::get_id());
  EXPECT_EQ(answered, std::thread::id());
  posted();
  EXPECT_EQ(answered, std::this_thread::get_id());
}

TEST(Workers, QuickWorkStays) {
  Workers workers(1);
  const auto exchange = std::make_shared<PostedExchange>();
  std::thread::id worked;
  int result = 0;
  workers.run(
      exchange, true, [&] { return worked = std::this_thread::get_id(), 7; },
      [&](int value) { result = value; });
  EXPECT_EQ(worked, std::this_thread::get_id());
  EXPECT_EQ(result, 7);
}

TEST(Workers, EventLoopsRunFirst) {
  const int own = getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()));
  std::promise<int> niceness;
  Workers workers(1);
  workers.push(
      [&] { niceness.set_value(getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()))); });
  EXPECT_EQ(niceness.get_future().get(), std::min(own + 5, 19));
}

TEST(Workers, NobodyAnswersAClientThatLeft) {
  Workers workers(1);
  const auto exchange = std::make_shared<PostedExchange>();
  bool answered = false;
  workers.run(
      exchange, false, [&] { return exchange->is_gone = true; }, [&](bool) { answered = true; });
  exchange->posted.get_future().get()();
  EXPECT_FALSE(answered);
}

TEST(Workers, NothingIsDoneForAClientThatLeft) {
  Workers workers(1);
  std::promise<void> begun, end;
  workers.push([&] { begun.set_value(), end.get_future().wait(); });
  begun.get_future().wait();
  const auto exchange = std::make_shared<PostedExchange>();
  bool worked = false;
  workers.run(
      exchange, false, [&] { return worked = true; }, [](bool) {});
  exchange->is_gone = true;
  end.set_value();
  std::promise<void> last;
  workers.push([&] { last.set_value(); });
  last.get_future().wait();
  EXPECT_FALSE(worked);
}

TEST(Workers, WorkThatTakesLongerIsDoneInTheNextLane) {
  Workers workers(2);
  const auto exchange = std::make_shared<PostedExchange>();
  std::vector<Lane> lanes;
  int result = 0;
  workers.run(
      exchange, Lane::kLoop,
      [&](Lane lane) {
        lanes.push_back(lane);
        if (lane != Lane::kLong) throw TakesLonger();
        return 7;
      },
      [&](int value) { result = value; });
  exchange->posted.get_future().get()();
  EXPECT_EQ(lanes, (std::vector{Lane::kLoop, Lane::kWorker, Lane::kLong}));
  EXPECT_EQ(result, 7);
}

TEST(Workers, LongWorkLeavesAWorkerForTheRest) {
  std::promise<void> ends[3], first;
  std::atomic<int> begun{0};
  Workers workers(2);  // declared last, since it uses the others
  for (int i = 0; i < 3; ++i)
    workers.push(
        [&, i] {
          if (begun++ == 0) first.set_value();
          ends[i].get_future().wait();
        },
        Lane::kLong);
  first.get_future().wait();
  for (int i = 0; i < 10; ++i) {  // while one runs and two wait
    std::promise<void> done;
    workers.push([&] { done.set_value(); });
    done.get_future().wait();
  }
  EXPECT_EQ(begun, 1);
  for (auto& end : ends) end.set_value();
}

class BudgetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ListenerOptions options;
    options.host = "127.0.0.1";
    options.budget = budget_;
    options.header_timeout = options.body_timeout = std::chrono::hours(1);
    Router router([](ErrorShape, int status, std::string_view message) {
      return Response{status, "text/plain", {}, std::string(message)};
    });
    const RouteTraits open = {Api::kMetadata, Access::kAnybody, Cost::kNothing,
                              ErrorShape::kKserve};
    router.add("POST", "/echo", open, [](const ExchangePtr& x) {
      x->send({200, "text/plain", {}, x->request().body});
    });
    router.add("POST", "/hold", open, [this](const ExchangePtr& x) { held_.set_value(x); });
    auto listener = Listener::start(threads_, options, std::move(router));
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
  }
  Reply post(const std::string& path, size_t size) {
    return ask(listener_->port(), "POST", path, std::string(size, 'q'));
  }

  const std::shared_ptr<ByteBudget> budget_ = std::make_shared<ByteBudget>(1000000);
  IoThreads threads_{2};
  std::promise<ExchangePtr> held_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(BudgetTest, RequestsThatWaitCount) {
  std::thread first([&] { EXPECT_EQ(post("/hold", 900000).status, 200); });
  ExchangePtr held = held_.get_future().get();
  EXPECT_GE(budget_->used(), 900000u);
  const Reply refused = post("/echo", 400000);
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.body, "the server holds more than 1000000 bytes of requests and replies");
  EXPECT_EQ(post("/echo", 1000).status, 200);  // normal requests go on
  held->post([held] { held->send({200, "", {}, ""}); });
  held.reset();
  first.join();
  EXPECT_TRUE(eventually([&] { return budget_->used() == 0; }));
  EXPECT_EQ(post("/echo", 400000).status, 200);
}

TEST_F(BudgetTest, AStalledBodyMakesRoom) {
  const int fd = connect_to(listener_->port());
  const std::string text = request_text("POST", "/echo", std::string(900000, 'q'));
  ASSERT_GT(send(fd, text.data(), text.size() - 1, MSG_NOSIGNAL), 0);
  EXPECT_TRUE(eventually([&] { return budget_->used() > 800000; }));
  EXPECT_TRUE(eventually([&] { return budget_->used() == 0; }));
  close(fd);
}

TEST(IoStalls, CountsTurnsByTheirLength) {
  const uint64_t before = IoStalls::get().num_longer_than(0.5);
  IoStalls::get().add(700000000);
  IoStalls::get().add(1000);
  EXPECT_GE(IoStalls::get().num_longer_than(0.5), before + 1);
  const std::string page = IoStalls::get().text();
  EXPECT_NE(page.find("nereid_io_stall_seconds_bucket{le=\"0.05\"} "), std::string::npos) << page;
  EXPECT_NE(page.find("nereid_io_stall_seconds_bucket{le=\"+Inf\"} "), std::string::npos) << page;
}

}  // namespace
}  // namespace nereid::front
