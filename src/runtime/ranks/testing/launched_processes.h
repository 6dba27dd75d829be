// Test only: processes as a launcher starts them, with this one as process 0.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/random_hex.h"
#include "runtime/ranks/child_process.h"
#include "runtime/ranks/launched_job.h"
#include "runtime/ranks/testing/exchange_ranks.h"

namespace nereid::runtime {

class LaunchedProcesses {
 public:
  explicit LaunchedProcesses(int32_t size) {
    set(kLaunchedSize, std::to_string(size));
    set(kLaunchedKey, random_hex());
    set(kLaunchedRank, "0");
  }
  ~LaunchedProcesses() {
    for (auto& [rank, process] : processes_) {
      process.kill();
      process.ended(kForever);
    }
    for (const char* const name : {kLaunchedSize, kLaunchedKey, kLaunchedRank}) ::unsetenv(name);
  }

  // Starts process `rank`, whose ranks only exchange. It waits `meet_ms` for this one.
  ChildProcess& start(int32_t rank, int meet_ms = 60000) {
    // By env(1): this process's other threads may read its environment.
    auto process = ChildProcess::start(
        "/usr/bin/env",
        {std::string(kLaunchedRank) + "=" + std::to_string(rank),
         program_beside_this("fake_rank_worker"), "launched", std::to_string(meet_ms)},
        3, {});
    NEREID_CHECK(process.ok());
    return processes_.emplace(rank, *std::move(process)).first->second;
  }
  ChildProcess& operator[](int32_t rank) { return processes_.at(rank); }
  LaunchedJob job() const { return *launched_job().value(); }

  static constexpr auto kForever = std::chrono::seconds(60);

 private:
  static void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

  std::map<int32_t, ChildProcess> processes_;
};

}  // namespace nereid::runtime
