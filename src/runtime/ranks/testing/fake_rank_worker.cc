// Test only: a worker whose steps only exchange, started by its leader or launched.
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "runtime/ranks/launched_group.h"
#include "runtime/ranks/testing/exchange_runner.h"

int main(int argc, char** argv) {
  using namespace nereid::runtime;  // NOLINT
  const auto opener = [] { return std::make_unique<ExchangeOpener>(); };
  if (argc > 2 && std::string_view(argv[1]) == "launched")
    std::_Exit(serve_launched(*launched_job().value(), opener,
                              std::chrono::milliseconds(std::atoi(argv[2]))));
  return rank_worker_main(argc - 1, argv + 1, opener);
}
