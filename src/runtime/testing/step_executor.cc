// Test only: a process that executes steps. It opens an engine, reads step messages from the socket
// that is its standard input, and sends back results.
// usage: step_executor ENGINE LIMITS DEVICE THREADS
// LIMITS: the bytes of exec::RunnerLimits in hexadecimal.
#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>

#include "exec/step_message.h"
#include "kernels/open.h"
#include "runtime/testing/step_wire.h"

namespace nereid::runtime {
namespace {

constexpr int kSocket = 0;

exec::RunnerLimits limits_of(std::string_view hex) {
  exec::RunnerLimits limits;
  auto* const bytes = reinterpret_cast<unsigned char*>(&limits);
  if (hex.size() != 2 * sizeof(limits)) std::abort();
  for (size_t i = 0; i < sizeof(limits); ++i)
    bytes[i] = static_cast<unsigned char>(
        std::strtoul(std::string(hex.substr(2 * i, 2)).c_str(), nullptr, 16));
  return limits;
}

bool may_receive(int timeout_ms) {
  pollfd p{.fd = kSocket, .events = POLLIN, .revents = 0};
  return ::poll(&p, 1, timeout_ms) > 0;
}

// Statuses of ended onboards, in order.
std::vector<Status> take_onboards(exec::Runner& runner, bool may_wait) {
  std::vector<Status> all;
  while (auto ended = runner.onboarded(may_wait && all.empty())) all.push_back(*std::move(ended));
  return all;
}

struct Step {
  StatusOr<exec::Ticket> ticket;
  bool waits_for_masks = false;
};

Step launch(exec::Runner& runner, std::span<const std::byte> message) {
  const auto step = exec::decode(message);
  const bool has_masks = step.ok() && std::ranges::any_of(step->rows, [](const exec::StepRow& row) {
                           return row.has_mask != 0;
                         });
  return {.ticket = runner.launch(message), .waits_for_masks = has_masks};
}

// Passes masks to the newest step in flight.
void draw(exec::Runner& runner, std::deque<Step>& flying, std::span<const std::byte> masks) {
  if (flying.empty() || !flying.back().waits_for_masks) std::abort();
  flying.back().waits_for_masks = false;
  if (flying.back().ticket.ok()) runner.draw(*flying.back().ticket, masks);
}

// Waits for the oldest step in flight.
Status finish(exec::Runner& runner, std::deque<Step>& flying) {
  Step step = std::move(flying.front());
  flying.pop_front();
  const StatusOr<exec::StepResult> result = step.ticket.ok()
                                                ? runner.wait(*step.ticket)
                                                : StatusOr<exec::StepResult>(step.ticket.status());
  return send_bytes(kSocket, ResultWriter().take(result, take_onboards(runner, false)));
}

// Serves until the other process closes the socket.
Status serve(exec::Runner& runner) {
  std::deque<Step> flying;
  for (;;) {
    const bool may_wait = flying.empty() || flying.front().waits_for_masks;
    const bool takes_more =
        flying.size() < static_cast<size_t>(runner.limits().depth) || flying.back().waits_for_masks;
    if (takes_more && may_receive(may_wait ? -1 : 0)) {
      const auto message = receive_bytes(kSocket);
      if (!message.ok()) break;
      if (std::ranges::equal(*message, kWaitForOnboards)) {
        const exec::StepResult nothing;
        RETURN_IF_ERROR(
            send_bytes(kSocket, ResultWriter().take(nothing, take_onboards(runner, true))));
      } else if (exec::decode_masks(*message).ok()) {
        draw(runner, flying, *message);
      } else {
        flying.push_back(launch(runner, *message));
      }
    } else {
      RETURN_IF_ERROR(finish(runner, flying));
    }
  }
  while (!flying.empty()) finish(runner, flying).IgnoreError();
  return ok();
}

Status run(const char* engine, const char* limits, const char* device, int num_threads) {
  ASSIGN_OR_RETURN(const kernels::OpenedDevice opened,
                   kernels::open_device(device, {.num_threads = num_threads}));
  ASSIGN_OR_RETURN(const auto runner,
                   exec::make_runner(engine, *opened.device, opened.registry, limits_of(limits)));
  return serve(*runner);
}

}  // namespace
}  // namespace nereid::runtime

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const nereid::Status status = nereid::runtime::run(argv[1], argv[2], argv[3], std::atoi(argv[4]));
  if (!status.ok()) std::fprintf(stderr, "step_executor: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
