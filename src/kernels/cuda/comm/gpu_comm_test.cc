// Exchange between GPUs: every call of a group, on one card with two ranks and on all cards found,
// against sums on the host, bit by bit. A separate program: it needs a GPU and opens
// libnereid_cuda.so as the server does.
// usage: gpu_comm_test [--once] [--only TEXT] [--ranks 0,0]
//   --once: each size once, without long sequences (for compute-sanitizer)
//   --only: tests whose name contains TEXT
//   --ranks: cards of the ranks; several groups: more than once. Default: card 0 twice, the first
//            two, the first three, ..., all
#include <fmt/format.h>
#include <stdlib.h>

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "kernels/cuda/comm/gpu_comm_fixture.h"

namespace nereid::kernels {
namespace {

struct Test {
  std::string_view name;
  Status (*run)(Ranks&, const TestOptions&);
  bool each_way;  // joins by itself otherwise
};
constexpr Test kTests[] = {
    {"sums", test_sums, true},          {"sequences", test_sequences, true},
    {"norms", test_norms, true},        {"parts", test_parts, false},
    {"columns", test_columns, false},   {"broadcasts", test_broadcasts, false},
    {"messages", test_messages, false}, {"missing", test_missing, false},
    {"abort", test_abort, false},       {"refusals", test_refusals, false},
    {"library", test_library, false},
};

bool report(std::string_view group, std::string_view name, const Status& status, Time start) {
  std::printf("%s  %-10s %-22s %6.2f s  %s\n", status.ok() ? "PASS" : "FAIL",
              std::string(group).c_str(), std::string(name).c_str(), seconds(now() - start),
              std::string(message(status)).c_str());
  std::fflush(stdout);
  return status.ok();
}

// All tests of a group of cards; the number of failures.
int check_group(const std::vector<int>& cards, const TestOptions& options) {
  const std::string name = fmt::format("{}", fmt::join(cards, ","));
  StatusOr<std::unique_ptr<Ranks>> ranks = Ranks::open(cards);
  if (!ranks.ok()) return report(name, "open", ranks.status(), now()) ? 0 : 1;
  int num_failed = 0;
  for (const Test& test : kTests) {
    if (test.name.find(options.only) == std::string_view::npos) continue;
    for (const std::string& way : std::vector<std::string>{"one-shot", "two-shot", "direct", ""}) {
      // A sanitizer may run graphs of two ranks one after the other: no measurement under it.
      if (test.each_way ? options.once && way.empty() : way != (options.once ? "direct" : ""))
        continue;
      const Time start = now();
      Status status = (*ranks)->join(
          {.time_limit = std::chrono::seconds(20), .deterministic = true, .way = way});
      if (status.ok()) status = test.run(**ranks, options);
      num_failed += !report(name, fmt::format("{} {}", test.name, way), status, start);
      (*ranks)->leave();
    }
  }
  return num_failed;
}

int run(TestOptions options) {
  int num_cards = 0;
  while (num_cards < 8 && open_device(fmt::format("cuda:{}", num_cards)).ok()) ++num_cards;
  if (num_cards == 0) {
    std::printf("FAIL  no GPU: %s\n", std::string(message(open_device("cuda:0").status())).c_str());
    return 1;
  }
  if (options.groups.empty()) {
    options.groups.push_back({0, 0});
    std::vector<int> cards = {0};
    for (int card = 1; card < num_cards; ++card) {
      cards.push_back(card);
      options.groups.push_back(cards);
    }
  }
  int num_failed = 0;
  for (const std::vector<int>& group : options.groups) num_failed += check_group(group, options);
  std::printf("%d cards, %zu groups, %d failed\n", num_cards, options.groups.size(), num_failed);
  return num_failed == 0 ? 0 : 1;
}

std::vector<int> read_cards(std::string_view text) {
  std::vector<int> cards;
  for (const char c : text)
    if (c >= '0' && c <= '9') cards.push_back(c - '0');
  return cards;
}

}  // namespace
}  // namespace nereid::kernels

int main(int argc, char** argv) {
  // Loading a kernel waits for those that run: on one card they would wait for the rank that loads.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  nereid::kernels::TestOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--once") {
      options.once = true;
    } else if (arg == "--only" && i + 1 < argc) {
      options.only = argv[++i];
    } else if (arg == "--ranks" && i + 1 < argc) {
      options.groups.push_back(nereid::kernels::read_cards(argv[++i]));
    } else {
      std::fprintf(stderr, "usage: gpu_comm_test [--once] [--only TEXT] [--ranks 0,0]\n");
      return 2;
    }
  }
  return nereid::kernels::run(options);
}
