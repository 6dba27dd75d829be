#include "cli/process/process_signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace nereid::cli {
namespace {

TEST(ProcessSignals, ASignalDuringTheStartEndsTheProcessAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const int signal : {SIGTERM, SIGINT}) {
    EXPECT_EXIT(
        {
          const sigset_t signals = block_stop_signals();
          const OnSignal guard(signals, [](int received) {
            std::fputs("cleaned up", stderr);
            end_by(received);
          });
          ::kill(::getpid(), signal);
          while (true) ::pause();
        },
        testing::KilledBySignal(signal), "cleaned up");
  }
}

TEST(ProcessSignals, AfterTheStartSignalsWait) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const sigset_t signals = block_stop_signals();
        { const OnSignal guard(signals, end_by); }
        ::kill(::getpid(), SIGTERM);
        std::exit(::sigwaitinfo(&signals, nullptr));
      },
      testing::ExitedWithCode(SIGTERM), "");
}

TEST(ProcessSignals, CrashesPrintTheStack) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // At least one frame: a place in a file and its address.
  EXPECT_EXIT((print_stack_on_crash(), std::abort()), testing::KilledBySignal(SIGABRT),
              "Signal \\(06\\) received\\..*\\[0x[0-9a-f]+\\]");
}

TEST(ProcessSignals, HandlersOfOthersStay) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ::signal(SIGSEGV, [](int) { ::_exit(7); });
        print_stack_on_crash();
        ::raise(SIGSEGV);
      },
      testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace nereid::cli
