// Jobs of several tenants that wait for a thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

namespace nereid::runtime {

// Start-time fair queueing (Goyal, Vin, Cheng 1996): each tenant has a line of jobs and a turn, the
// sum of what its jobs cost, and the lowest turn is next. A tenant that comes or comes back has at
// least the turn of the job that was taken last, so that idle tenants save up no turns; all begin
// anew when no job waits. Job is a pointer; a job may stand in several lines. Not thread-safe.
template <class Job>
class FairJobs {
 public:
  // In the tenant's line, behind jobs that cost as much or less. `cost` > 0.
  void add(uint64_t tenant, int64_t cost, const Job& job) {
    Line& line = lines_[tenant];
    if (line.jobs.empty()) line.turn = std::max(line.turn, turn_);
    if (line.has(job)) return;
    line.jobs.emplace(std::pair(cost, ++num_added_), job);
    ++size_;
  }

  // Whether there is a job that costs at most so much.
  bool has_up_to(int64_t most_cost) { return next(most_cost) != nullptr; }
  bool has(const Job& job) const {
    return std::ranges::any_of(lines_, [&](const auto& line) { return line.second.has(job); });
  }
  size_t size() const { return size_; }  // places in lines

  // The next job that costs at most so much; its tenant is charged for it.
  std::optional<Job> take(int64_t most_cost) {
    Line* const line = next(most_cost);
    if (line == nullptr) return std::nullopt;
    const auto first = line->jobs.begin();
    turn_ = std::max(turn_, line->turn);
    line->turn += first->first.first;
    const Job job = first->second;
    remove_if([&](const Job& other) { return other == job; });
    return job;
  }

  // The last job of the longest line, taken out of that line, and its tenant; nothing unless
  // that line is longer than `tenant`'s would be with one job more.
  std::optional<std::pair<uint64_t, Job>> displace(uint64_t tenant) {
    const auto longest = std::ranges::max_element(
        lines_, {}, [](const auto& line) { return line.second.jobs.size(); });
    if (longest == lines_.end()) return std::nullopt;
    const auto own = lines_.find(tenant);
    const size_t num_own = own == lines_.end() ? 0 : own->second.jobs.size();
    auto& jobs = longest->second.jobs;
    if (jobs.size() <= num_own + 1) return std::nullopt;
    std::pair<uint64_t, Job> out(longest->first, std::prev(jobs.end())->second);
    jobs.erase(std::prev(jobs.end()));
    --size_;
    return out;
  }

  // From all lines.
  template <class Predicate>
  void remove_if(const Predicate& is_so) {
    for (auto& [_, line] : lines_)
      size_ -= std::erase_if(line.jobs, [&](const auto& entry) { return is_so(entry.second); });
    const bool forgets = size_ == 0 || lines_.size() > kMostLines;
    std::erase_if(lines_, [&](const auto& entry) {
      const Line& line = entry.second;
      return line.jobs.empty() && (forgets || line.turn <= turn_);
    });
  }

 private:
  static constexpr size_t kMostLines = 1024;  // with more, empty ones are forgotten

  struct Line {
    int64_t turn = 0;
    std::map<std::pair<int64_t, uint64_t>, Job> jobs = {};  // by cost, then age

    bool has(const Job& job) const {
      return std::ranges::any_of(jobs, [&](const auto& entry) { return entry.second == job; });
    }
  };

  // Among equal turns the cheapest job, then the oldest.
  Line* next(int64_t most_cost) {
    const auto rank = [](const Line& line) {
      return std::pair(line.turn, line.jobs.begin()->first);
    };
    Line* best = nullptr;
    for (auto& [_, line] : lines_) {
      if (line.jobs.empty() || line.jobs.begin()->first.first > most_cost) continue;
      if (best == nullptr || rank(line) < rank(*best)) best = &line;
    }
    return best;
  }

  std::map<uint64_t, Line> lines_;
  int64_t turn_ = 0;  // of the job that was taken last
  uint64_t num_added_ = 0;
  size_t size_ = 0;
};

}  // namespace nereid::runtime
