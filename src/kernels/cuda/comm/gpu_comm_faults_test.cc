// Groups that end: a rank that does not come, abort(), refused calls.
#include <cstdio>
#include <string>
#include <thread>

#include "base/clock.h"
#include "kernels/cuda/comm/gpu_comm_fixture.h"

namespace nereid::kernels {

// A rank that does not come: the others' wait ends with an error, and so does every later call.
Status test_missing(Ranks& ranks, const TestOptions&) {
  constexpr Duration kLimit = std::chrono::milliseconds(300);
  RETURN_IF_ERROR(ranks.join({.time_limit = kLimit, .deterministic = true, .way = "one-shot"}));
  const Time start = now();
  const int absent = ranks.size() - 1;
  RETURN_IF_ERROR(ranks.each([&](int r) -> Status {
    if (r == absent) return ok();
    ASSIGN_OR_RETURN(const Buffer x, ranks.upload(r, Bytes(1 << 16)));
    const Status status = ranks.run_alone(r, [&](Stream& s) -> Status {
      for (int i = 0; i < 50; ++i)
        RETURN_IF_ERROR(ranks.endpoint(r).all_reduce(x.data(), x.data(), 1 << 14, DType::kF32, s));
      return ranks.endpoint(r).barrier(s);
    });
    if (status.code() != absl::StatusCode::kDeadlineExceeded)
      return internal_error("the wait ended with '{}'", message(status));
    return ok();
  }));
  const double took = seconds(now() - start);
  std::printf("      %s, after %.2f s\n", std::string(message(ranks.endpoint(0).failure())).c_str(),
              took);
  if (took > 3 * seconds(kLimit) + 1) return internal_error("the waits took {:.2f} s", took);
  const Status later =
      ranks.run_alone(absent, [&](Stream& s) { return ranks.endpoint(absent).barrier(s); });
  return later.code() == absl::StatusCode::kDeadlineExceeded
             ? ok()
             : internal_error("a later call gives '{}'", message(later));
}

// abort() ends waits under way.
Status test_abort(Ranks& ranks, const TestOptions&) {
  RETURN_IF_ERROR(ranks.join(
      {.time_limit = std::chrono::seconds(60), .deterministic = true, .way = "two-shot"}));
  const Time start = now();
  RETURN_IF_ERROR(ranks.each([&](int r) -> Status {
    if (r == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      ranks.endpoint(0).abort(cancelled("as the test wants"));
      return ok();
    }
    ASSIGN_OR_RETURN(const Buffer x, ranks.upload(r, Bytes(4096)));
    const Status status = ranks.run_alone(r, [&](Stream& s) -> Status {
      RETURN_IF_ERROR(ranks.endpoint(r).recv(x.data(), 4096, 0, s));
      return ranks.endpoint(r).all_reduce(x.data(), x.data(), 1024, DType::kF32, s);
    });
    if (status.code() == absl::StatusCode::kCancelled) return ok();
    return internal_error("the wait ended with '{}'", message(status));
  }));
  if (seconds(now() - start) > 10) return internal_error("the waits went on");
  return ok();
}

// Calls that are refused end the group.
Status test_refusals(Ranks& ranks, const TestOptions&) {
  RETURN_IF_ERROR(ranks.join({.deterministic = true, .way = "direct"}));
  const Status status = ranks.run_alone(0, [&](Stream& s) {
    return ranks.endpoint(0).all_reduce(nullptr, nullptr, 8, DType::kU8, s);
  });
  if (status.code() != absl::StatusCode::kInvalidArgument)
    return internal_error("a sum of bytes gives '{}'", message(status));
  if (ranks.endpoint(1).failure().code() != absl::StatusCode::kInvalidArgument)
    return internal_error("the group goes on after a wrong call");
  if (ranks.join({.deterministic = true, .way = "pigeon"}).code() !=
      absl::StatusCode::kInvalidArgument)
    return internal_error("a way that does not exist is taken");
  return ok();
}

}  // namespace nereid::kernels
