#include "runtime/grammars/fair_jobs.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace nereid::runtime {
namespace {

// Letters stand for tenants.
class Jobs {
 public:
  std::shared_ptr<std::string> add(char tenant, int64_t cost) {
    auto job = std::make_shared<std::string>(1, tenant);
    jobs_.add(static_cast<uint64_t>(tenant), cost, job);
    return job;
  }
  char take(int64_t most_cost = 1000) {
    EXPECT_EQ(jobs_.has_up_to(most_cost), true);
    const auto job = jobs_.take(most_cost);
    return job ? (*job)->front() : '-';
  }
  std::string take_all() {
    std::string out;
    while (jobs_.size() > 0) out += take();
    return out;
  }
  FairJobs<std::shared_ptr<std::string>>& operator*() { return jobs_; }

 private:
  FairJobs<std::shared_ptr<std::string>> jobs_;
};

TEST(FairJobs, TenantsTakeTurns) {
  Jobs jobs;
  for (int i = 0; i < 4; ++i) jobs.add('a', 10);
  for (int i = 0; i < 2; ++i) jobs.add('b', 10);
  jobs.add('c', 10);
  EXPECT_EQ(jobs.take_all(), "abcabaa");
}

TEST(FairJobs, TheyAreEqualInCostNotInNumber) {
  Jobs jobs;
  for (int i = 0; i < 3; ++i) jobs.add('a', 40);
  for (int i = 0; i < 9; ++i) jobs.add('b', 10);
  EXPECT_EQ(jobs.take_all(), "babbbbabbbba");
}

TEST(FairJobs, OfATenantTheCheapestGoesFirstThenTheOldest) {
  Jobs jobs;
  const auto first = jobs.add('a', 50), second = jobs.add('a', 10), third = jobs.add('a', 10);
  EXPECT_EQ((*jobs).take(1000), second);
  EXPECT_EQ((*jobs).take(1000), third);
  EXPECT_EQ((*jobs).take(1000), first);
}

TEST(FairJobs, AThreadMayTakeCheapOnesAlone) {
  Jobs jobs;
  jobs.add('a', 50);
  EXPECT_FALSE((*jobs).has_up_to(49));
  EXPECT_FALSE((*jobs).take(49).has_value());
  jobs.add('b', 10);
  EXPECT_EQ(jobs.take(49), 'b');
  EXPECT_EQ(jobs.take(50), 'a');
}

// Neither do those who have been away have turns to spare, nor are those who come back one by one
// always the first.
TEST(FairJobs, WhoComesBackHasNoTurnsSavedUp) {
  Jobs jobs;
  for (int i = 0; i < 9; ++i) jobs.add('a', 10);
  std::string taken;
  for (int i = 0; i < 4; ++i) taken += jobs.take();
  for (int i = 0; i < 6; ++i) jobs.add('b', 10);
  for (int i = 0; i < 6; ++i) taken += jobs.take();
  EXPECT_EQ(taken, "aaaabababa");

  Jobs others;
  for (int i = 0; i < 5; ++i) others.add('a', 10);
  taken = others.take();
  for (int i = 0; i < 6; ++i) {
    others.add('b', 10);
    taken += others.take();
    if (taken.back() != 'b') taken += others.take();
  }
  EXPECT_EQ(taken.substr(0, 9), "ababababa");
}

TEST(FairJobs, AJobOfTwoTenantsIsTakenOnce) {
  Jobs jobs;
  for (int i = 0; i < 3; ++i) jobs.add('a', 10);
  const auto shared = jobs.add('a', 10);
  (*jobs).add('b', 10, shared);
  (*jobs).add('b', 10, shared);
  EXPECT_EQ((*jobs).size(), 5u);
  EXPECT_TRUE((*jobs).has(shared));
  EXPECT_EQ(jobs.take(), 'a');
  EXPECT_EQ((*jobs).take(1000), shared);
  EXPECT_FALSE((*jobs).has(shared));
  EXPECT_EQ(jobs.take_all(), "aa");
}

TEST(FairJobs, TheLongestLineGivesRoom) {
  Jobs jobs;
  jobs.add('a', 10);
  const auto last = jobs.add('a', 10);
  EXPECT_FALSE((*jobs).displace('a'));
  const auto displaced = (*jobs).displace('b');
  ASSERT_TRUE(displaced);
  EXPECT_EQ(displaced->first, 'a');
  EXPECT_EQ(displaced->second, last);
  EXPECT_FALSE((*jobs).displace('b')) << "one each is fair";
  EXPECT_EQ(jobs.take_all(), "a");
}

TEST(FairJobs, JobsThatNobodyWantsGo) {
  Jobs jobs;
  jobs.add('a', 10);
  jobs.add('b', 10);
  (*jobs).remove_if([](const auto& job) { return *job == "a"; });
  EXPECT_EQ(jobs.take_all(), "b");
}

}  // namespace
}  // namespace nereid::runtime
