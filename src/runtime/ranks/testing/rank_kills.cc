// Starts groups of rank processes and kills one of each at a random moment.
// usage: rank_kills [NUMBER [FIRST_SEED [SECONDS]]]   (10000 1, without limit)
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/clock.h"
#include "base/log.h"
#include "runtime/ranks/testing/kill_loop.h"

int main(int argc, char** argv) {
  const auto argument = [&](int i, long other) {
    return argc > i ? std::strtol(argv[i], nullptr, 10) : other;
  };
  nereid::set_log_level("off").IgnoreError();
  const long number = argument(1, 10'000), first = argument(2, 1);
  constexpr long kWithoutLimit = 1L << 30;
  const nereid::Time end = nereid::now() + std::chrono::seconds(argument(3, kWithoutLimit));
  long i = 0;
  for (; i < number && nereid::now() < end; ++i) {
    const nereid::Status status = nereid::runtime::kill_once(static_cast<uint64_t>(first + i));
    if (!status.ok()) {
      std::fprintf(stderr, "rank_kills: %s\n", status.ToString().c_str());
      return 1;
    }
    if ((i + 1) % 1000 == 0) std::fprintf(stderr, "%ld groups\n", i + 1);
  }
  std::printf("%ld groups of processes: no hang, no process left\n", i);
  return 0;
}
