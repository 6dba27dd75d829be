#!/usr/bin/env bash
# Unit tests under a sanitizer, end-to-end tests and damaged requests too with address; or only the build of them. Waits
# for another one that builds the same.  usage: sanitize.sh address|thread [build]
# Threads: the tests of folders that start threads; kernels run on the pool, and the scheduler on the engine's thread, in
# runtime_test and soak (sched_test has one thread). Not exactness_test: under a sanitizer it takes a quarter of an hour
# for what runtime_test and soak also run. Nor the quality of a trained model's rounded weights: twelve minutes for what
# the tests of tiny models beside it also run. Nor whole models by the generic kernels: five minutes for what kernels_test
# runs of these kernels, and models with the processor's best ones of the rest. Nor the reference kernels compared with
# themselves, cut and by threads: six minutes; every other kernel's case runs them too. Nor tiny models by the reference
# kernels (exec_test has them by the processor's) and a statistic of drafts: four minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
case "$1" in
  address) preset=asan targets=(all) filter=(-E '^exactness_test') ;;
  thread)
    preset=tsan
    tests=(base_test tensor_test comm_test runtime_ranks_test runtime_test capi_test server_test server_backend_test
      server_plugin_test backend_testing_test front_http_test front_grpc_test front_trace_test front_test soak)
    targets=("${tests[@]}") filter=(-R "^($(IFS='|'; echo "${tests[*]}"))(_[0-9]+)?$") ;;
  *) echo "usage: sanitize.sh address|thread [build]" >&2; exit 2 ;;
esac
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/tools/tsan.supp
export NEREID_FUZZ_SEEDS=1000  # of the scheduler and the block pool; the release build runs 10,000, with every check
left_out=QuantizeTest.CalibrationMakesFourBitsBetter:Isa/Golden*/generic:Cpu/EveryKernel.*_ref:Cpu/Sampling.*/ref:ForwardTest.TinyModelsEqualTheirGoldens:PartitionTest.RanksGiveTheGoldenIds:PartitionTest.AdaptersHaveTheirColumnsOnTheRanks:ForwardTest.OptionalPassesDoNotChangeABit:SpeculationTest.NoiseCostsLittle
export GTEST_FILTER=-$left_out
mkdir -p build
exec 9>"build/$preset.lock"
flock 9
cmake --preset "$preset"
cmake --build "build/$preset" --target "${targets[@]}"
[ "${2:-}" != build ] || exit 0
flock -u 9
. tools/skips.sh
skip "exactness_test, ${left_out//:/, }$([ "$preset" = asan ] || echo ", sched_test")" \
  "left to 'make test' ($preset; see the top of tools/sanitize.sh)"
tools/unit.sh "build/$preset" "${filter[@]}"
if [ "$preset" = asan ]; then
  NEREID_E2E_SLOW=1 tests/e2e/run.sh build/asan
  tests/stock/run.sh build/asan mutations 20000
fi
