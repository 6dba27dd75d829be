// Starts groups of rank processes and kills one of each at a random moment.
// usage: rank_kills [NUMBER [FIRST_SEED]]   (10000 1)
#include <cstdio>
#include <cstdlib>

#include "base/log.h"
#include "runtime/ranks/testing/kill_loop.h"

int main(int argc, char** argv) {
  const auto argument = [&](int i, long other) {
    return argc > i ? std::strtol(argv[i], nullptr, 10) : other;
  };
  nereid::set_log_level("off").IgnoreError();
  const long number = argument(1, 10'000), first = argument(2, 1);
  for (long i = 0; i < number; ++i) {
    const nereid::Status status = nereid::runtime::kill_once(static_cast<uint64_t>(first + i));
    if (!status.ok()) {
      std::fprintf(stderr, "rank_kills: %s\n", status.ToString().c_str());
      return 1;
    }
    if ((i + 1) % 1000 == 0) std::fprintf(stderr, "%ld groups\n", i + 1);
  }
  std::printf("%ld groups of processes: no hang, no process left\n", number);
  return 0;
}
