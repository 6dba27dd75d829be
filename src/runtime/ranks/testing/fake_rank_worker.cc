// Test only: a worker whose steps only exchange.
#include "runtime/ranks/testing/exchange_runner.h"

int main(int argc, char** argv) {
  return nereid::runtime::rank_worker_main(
      argc - 1, argv + 1, [] { return std::make_unique<nereid::runtime::ExchangeOpener>(); });
}
