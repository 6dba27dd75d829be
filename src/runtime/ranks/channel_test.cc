#include "runtime/ranks/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/ranks/rank_wire.h"

namespace nereid::runtime {
namespace {

using ::testing::HasSubstr;

struct Ends {
  Channel a, b;
};
Ends make_ends() {
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  return {Channel(comm::Descriptor(fds[0])), Channel(comm::Descriptor(fds[1]))};
}

std::vector<std::byte> bytes_of(size_t count, int seed) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < count; ++i)
    bytes.push_back(static_cast<std::byte>(i * 7 + i / 251 + seed));
  return bytes;
}

TEST(Channel, MessagesComeWholeInOrderAndAligned) {
  Ends ends = make_ends();
  for (const size_t count : {0, 1, 15, 16, 17, 1000, 3}) {
    ASSERT_TRUE(ends.a.send(Kind::kStep, bytes_of(count, 1)).ok());
    ASSERT_TRUE(ends.a.send(Kind::kMasks, bytes_of(count, 2)).ok());
  }
  for (const size_t count : {0, 1, 15, 16, 17, 1000, 3}) {
    for (const Kind kind : {Kind::kStep, Kind::kMasks}) {
      const auto message = ends.b.receive();
      ASSERT_TRUE(message.ok()) << message.status();
      EXPECT_EQ(message->kind, kind);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(message->bytes.data()) % 16, 0u);
      const auto expected = bytes_of(count, kind == Kind::kStep ? 1 : 2);
      EXPECT_TRUE(std::equal(message->bytes.begin(), message->bytes.end(), expected.begin(),
                             expected.end()));
    }
  }
}

// Each one is larger than the sockets' memory.
TEST(Channel, TwoThatSendToEachOtherDoNotWait) {
  Ends ends = make_ends();
  const auto from_a = bytes_of(9'000'001, 3), from_b = bytes_of(11'000'003, 4);
  const auto trade = [](Channel& channel, const auto& mine, const auto& theirs) {
    for (int turn = 0; turn < 3; ++turn) ASSERT_TRUE(channel.send(Kind::kStep, mine).ok());
    for (int turn = 0; turn < 3; ++turn) {
      const auto message = channel.receive();
      ASSERT_TRUE(message.ok());
      ASSERT_EQ(message->bytes.size(), theirs.size());
      EXPECT_EQ(std::memcmp(message->bytes.data(), theirs.data(), theirs.size()), 0);
    }
  };
  std::thread other([&] { trade(ends.b, from_b, from_a); });
  trade(ends.a, from_a, from_b);
  other.join();
}

TEST(Channel, EndsWithTheOtherSide) {
  {
    Ends ends = make_ends();
    std::thread closes([&] { ends.a.close(); });
    EXPECT_EQ(ends.a.receive().status().code(), absl::StatusCode::kUnavailable);
    closes.join();
    EXPECT_EQ(ends.a.send(Kind::kStep).code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(ends.b.receive().status().code(), absl::StatusCode::kUnavailable);
  }
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  Channel channel{comm::Descriptor(fds[0])};
  const comm::Descriptor raw(fds[1]);
  const std::string noise(64, '\xff');
  ASSERT_EQ(::write(raw.get(), noise.data(), noise.size()), 64);
  EXPECT_EQ(channel.receive().status().code(), absl::StatusCode::kDataLoss);
}

// A message that is cut off anywhere is an error, never less than what was sent.
template <class Get>
void check_cuts(const Writer& writer, const Get& get) {
  EXPECT_TRUE(get(writer.bytes()).ok()) << get(writer.bytes());
  for (size_t n = 0; n < writer.bytes().size(); ++n)
    EXPECT_EQ(get(writer.bytes().first(n)).code(), absl::StatusCode::kDataLoss) << n;
}

TEST(RankWire, ReportsComeBack) {
  const std::vector<kernels::SampleResult> drawn = {{.token = 7, .log_prob = -1}};
  const std::vector<int32_t> path = {0, 1}, likeliest = {5};
  const std::vector<kernels::TopToken> top = {{3, -2.5f}};
  const std::vector<float> logits = {1, 2, 3};
  const std::vector<BF16> hidden = {to_bf16(4)};
  const std::vector<exec::RowResult> rows = {
      {.drawn = drawn,
       .path = path,
       .likeliest = likeliest,
       .top = top,
       .logits = logits,
       .hidden = hidden},
      {.status = resource_exhausted("no memory for this row")}};
  Writer writer;
  put_report(writer, 42, {{3, "cpu", 17, 0.5}}, {ok(), data_loss("block 3")},
             exec::StepResult(rows));
  StepReport report;
  check_cuts(writer, [&](auto bytes) { return get_report(bytes, report); });
  ASSERT_TRUE(get_report(writer.bytes(), report).ok());
  EXPECT_EQ(report.history, 42u);
  ASSERT_EQ(report.figures.size(), 1u);
  EXPECT_EQ(report.figures[0].num_steps, 17);
  EXPECT_THAT(report.onboarded, testing::ElementsAre(ok(), data_loss("block 3")));
  ASSERT_EQ(report.rows.size(), 2u);
  EXPECT_EQ(report.rows[0].drawn[0].token, 7);
  EXPECT_THAT(report.rows[0].path, testing::ElementsAre(0, 1));
  EXPECT_THAT(report.rows[0].likeliest, testing::ElementsAre(5));
  EXPECT_EQ(report.rows[0].top[0].token, 3);
  EXPECT_THAT(report.rows[0].logits, testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(to_float(report.rows[0].hidden[0]), 4);
  EXPECT_EQ(report.rows[1].status, rows[1].status);

  writer.clear();
  put_report(writer, 1, {}, {}, unavailable("device cpu has failed"));
  check_cuts(writer, [&](auto bytes) { return get_report(bytes, report); });
  ASSERT_TRUE(get_report(writer.bytes(), report).ok());
  EXPECT_EQ(report.status, unavailable("device cpu has failed"));
}

TEST(RankWire, ModelsAndLoadsComeBack) {
  RankModel model{.groups = {{.window = 4, .layers = {0, 2}}, {.latent = 512}},
                  .memory = {{"weights", 77, 3}},
                  .vocab_size = 1,
                  .hidden_size = 2,
                  .num_states = 3,
                  .embedding_width = 4,
                  .weighs_drafts = true,
                  .draws = false};
  model.limits.max_rows = 9;
  Writer writer;
  put(writer, StatusOr<RankModel>(model));
  check_cuts(writer, [](auto bytes) { return get_model(bytes).status(); });
  const auto copy = get_model(writer.bytes()).value();
  EXPECT_EQ(copy.limits.max_rows, 9);
  EXPECT_THAT(copy.groups[0].layers, testing::ElementsAre(0, 2));
  EXPECT_EQ(copy.groups[1].latent, 512);
  EXPECT_EQ(copy.memory[0].what, "weights");
  EXPECT_EQ(copy.memory[0].rank, 3);
  EXPECT_EQ(copy.vocab_size + copy.hidden_size * 10 + copy.num_states * 100, 321);
  EXPECT_EQ(copy.embedding_width, 4);
  EXPECT_TRUE(copy.weighs_drafts);
  EXPECT_FALSE(copy.draws);

  writer.clear();
  put(writer, RankLoad{.engine = "/a/rank3.engine", .limits = model.limits, .forced = {"a:b"}});
  check_cuts(writer, [](auto bytes) { return get_load(bytes).status(); });
  const auto load = get_load(writer.bytes()).value();
  EXPECT_EQ(load.engine, "/a/rank3.engine");
  EXPECT_EQ(load.limits.max_rows, 9);
  EXPECT_THAT(load.forced, testing::ElementsAre("a:b"));

  writer.clear();
  put(writer, StatusOr<DeviceInfo>(DeviceInfo{.kind = DeviceKind::kCuda, .index = 3, .sm = 90}));
  check_cuts(writer, [](auto bytes) { return get_device(bytes).status(); });
  EXPECT_EQ(get_device(writer.bytes())->id(), "cuda:3");
}

}  // namespace
}  // namespace nereid::runtime
