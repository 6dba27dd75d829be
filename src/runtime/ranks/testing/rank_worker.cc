// Test only: a worker of engines, for tests without the program nereid.
#include "runtime/ranks/rank_worker.h"

int main(int argc, char** argv) { return nereid::runtime::rank_worker_main(argc - 1, argv + 1); }
