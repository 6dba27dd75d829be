#include "cli/process/running.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace nereid::cli {
namespace {

TEST(Running, NotesOfLiveProcessesOnly) {
  const std::filesystem::path dir = std::filesystem::path(::testing::TempDir()) / "running";
  std::filesystem::remove_all(dir);
  EXPECT_TRUE(running_servers(dir).empty());
  {
    const RunningNote note(dir,
                           {.url = "http://localhost:8000", .model = "a \"b\"", .source = "/x"});
    // A process that has ended, one that is younger than its note, and damaged notes.
    std::ofstream(dir / "1.json") << R"({"pid": 1, "started": -1})";
    std::ofstream(dir / "2.json") << R"({"pid": 2147483647, "started": 1})";
    std::ofstream(dir / "3.json") << "{";
    std::ofstream(dir / "4.json") << R"({"pid": "x", "started": {}})";
    const auto servers = running_servers(dir);
    ASSERT_EQ(servers.size(), 1U);
    EXPECT_EQ(servers[0].pid, ::getpid());
    EXPECT_EQ(servers[0].model, "a \"b\"");
    EXPECT_EQ(servers[0].url, "http://localhost:8000");
    EXPECT_FALSE(std::filesystem::exists(dir / "3.json"));
  }
  EXPECT_TRUE(running_servers(dir).empty());
  std::filesystem::remove_all(dir);
}

TEST(Running, FolderThatCannotBeWrittenIsNoFault) {
  const RunningNote note("/proc/none", {.url = "x"});
  EXPECT_TRUE(running_servers("/proc/none").empty());
}

}  // namespace
}  // namespace nereid::cli
