// Test only: groups of processes that are started, loaded, run, and killed at a random moment.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "runtime/ranks/testing/exchange_ranks.h"

namespace nereid::runtime {

// Children that execute their program. Before that a child shares this process's memory, and a
// thread of this process waits for it in the kernel: one that is suspended there suspends both.
inline std::vector<pid_t> child_processes() {
  std::vector<pid_t> all;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    if (std::atoi(entry.path().filename().c_str()) == 0) continue;
    std::FILE* const file = std::fopen((entry.path() / "stat").c_str(), "r");
    if (!file) continue;  // it has ended
    char bytes[512];
    const std::string text(bytes, std::fread(bytes, 1, sizeof(bytes), file));
    std::fclose(file);
    const size_t name_end = text.rfind(") ");
    if (name_end == std::string::npos || text.find("(fake_rank") == std::string::npos) continue;
    // "1234 (name) S PARENT ..."; Z: it has ended already.
    if (text[name_end + 2] != 'Z' && std::atoi(text.c_str() + name_end + 4) == ::getpid())
      all.push_back(std::atoi(text.c_str()));
  }
  return all;
}

// One start of 2 to 4 ranks; a random process is killed (one in eight is suspended instead) at its
// start, after the load, or while steps run. OK: the failure was found, and no process is left.
inline Status kill_once(uint64_t seed) {
  uint64_t num_drawn = 0;
  const auto random = [&](uint64_t end) { return philox(seed, num_drawn++)[0] % end; };
  RankProcessOptions options = exchange_options(2 + static_cast<int32_t>(random(3)));
  options.silence_limit = std::chrono::milliseconds(300);
  const uint64_t moment = random(3), patience = random(3000), victim = random(64);
  const int signal = random(8) == 0 ? SIGSTOP : SIGKILL;
  std::atomic<bool> is_loaded = false, is_over = false;
  std::thread killer([&] {
    std::vector<pid_t> children;
    const size_t num_wanted = moment == 0 ? 1 : static_cast<size_t>(options.tp - 1);
    while (!is_over && (children.size() < num_wanted || (moment > 0 && !is_loaded)))
      children = child_processes();
    for (uint64_t i = 0; i < patience && moment != 1; ++i) std::this_thread::yield();
    if (!is_over && !children.empty()) ::kill(children[victim % children.size()], signal);
  });
  Status status;
  {
    ExchangeRanks ranks;
    status = ranks.open(options);
    is_loaded = true;
    if (status.ok()) status = ranks.run(1 << 30);
    if (status.ok())
      status = internal_error("steps went on");
    else if (ranks.processes && ranks.health.failure().ok())
      status = internal_error("no failure: {}", message(status));
    is_over = true;
    killer.join();
  }
  if (!has_no_children()) return internal_error("a process is left");
  if (status.code() == absl::StatusCode::kUnavailable &&
      message(status).find("(process ") != std::string_view::npos)
    return ok();
  return annotate(status, fmt::format("seed {}", seed));
}

}  // namespace nereid::runtime
