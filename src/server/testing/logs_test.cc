// Lines and tables of the log: a client's text cannot look like a line of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "server/testing/client.h"
#include "server/testing/probe.h"

namespace nereid::server {
namespace {

namespace fs = std::filesystem;
using testing::ContainsRegex;
using testing::HasSubstr;

// Redirects this process's log to a file, from the first use on.
class LogFile : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string name = (fs::temp_directory_path() / "nereid-log-XXXXXX").string();
    dir_ = mkdtemp(name.data());
  }
  static void TearDownTestSuite() { fs::remove_all(dir_); }

  static void write_to(const char* name, TRITONSERVER_LogFormat format) {
    path_ = dir_ / name;
    TRITONSERVER_ServerOptions* options = nullptr;
    TRITONSERVER_ServerOptionsNew(&options);
    TRITONSERVER_ServerOptionsSetLogFormat(options, format);
    const Outcome set(TRITONSERVER_ServerOptionsSetLogFile(options, path_.c_str()));
    EXPECT_TRUE(set.ok()) << set.text;
    TRITONSERVER_ServerOptionsSetLogVerbose(options, 1);
    TRITONSERVER_ServerOptionsDelete(options);
  }
  static void log(TRITONSERVER_LogLevel level, const char* text) {
    EXPECT_TRUE(Outcome(TRITONSERVER_LogMessage(level, "/somewhere/file.cc", 7, text)).ok());
  }
  // The log's text, once it contains `text`.
  static std::string with(const std::string& text) {
    std::string all;
    EXPECT_TRUE(eventually([&] {
      std::ifstream in(path_);
      all.assign(std::istreambuf_iterator<char>(in), {});
      return all.find(text) != std::string::npos;
    })) << all;
    return all;
  }

  static inline fs::path dir_, path_;
};

TEST_F(LogFile, TextIsQuotedAndEscaped) {
  write_to("default", TRITONSERVER_LOG_DEFAULT);
  log(TRITONSERVER_LOG_INFO, "a \"name\"\nI1121 00:00:00.000000 1 x.cc:1] \"forged\"\t\x01\\");
  log(TRITONSERVER_LOG_WARN, "warned");
  log(TRITONSERVER_LOG_ERROR, "failed");
  log(TRITONSERVER_LOG_VERBOSE, "verbose");
  const std::string text = with("verbose");
  EXPECT_THAT(text, HasSubstr(R"( file.cc:7] "a \"name\"\nI1121 00:00:00.000000 1 x.cc:1] )"
                              R"(\"forged\"\t\u0001\\")"
                              "\n"));
  EXPECT_THAT(text, ContainsRegex("\nW[0-9]{4} [^\n]*\"warned\"\n"));
  EXPECT_THAT(text, ContainsRegex("\nE[0-9]{4} [^\n]*\"failed\"\n"));
  EXPECT_THAT(text, ContainsRegex("\nI[0-9]{4} [^\n]*\"verbose\"\n"));
}

TEST_F(LogFile, QuotesMayBeTurnedOffButNotTheEscapes) {
  setenv("TRITON_SERVER_ESCAPE_LOG_MESSAGES", "0", 1);
  write_to("iso", TRITONSERVER_LOG_ISO8601);
  unsetenv("TRITON_SERVER_ESCAPE_LOG_MESSAGES");
  log(TRITONSERVER_LOG_INFO, "a \"name\"\r\nforged");
  EXPECT_THAT(with("forged"),
              ContainsRegex("Z I [0-9]+ file.cc:7\\] a \"name\"\\\\r\\\\nforged\n"));
}

TEST_F(LogFile, TablesKeepTheirLines) {
  write_to("tables", TRITONSERVER_LOG_DEFAULT);
  fs::create_directories(dir_ / "models" / "m" / "1");
  std::ofstream(dir_ / "models" / "m" / "config.pbtxt")
      << "backend: \"nereid_probe\" model_repository_agents { agents { name: \"checksum\" } }";
  TestServer server(dir_ / "models", [](TRITONSERVER_ServerOptions* options) {
    TRITONSERVER_ServerOptionsSetRateLimiterMode(options, TRITONSERVER_RATE_LIMIT_EXEC_COUNT);
    TRITONSERVER_ServerOptionsAddRateLimiterResource(options, "R1", 4, -2);
    TRITONSERVER_ServerOptionsAddRateLimiterResource(options, "R2", 2, 0);
  });
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  const std::string text = with("cache_enabled");
  EXPECT_THAT(text, ContainsRegex("(^|\n)I[0-9]{4} [0-9:.]+ [0-9]+ model_loading.cc:[0-9]+\\] "
                                  "\"loading: m:1\"\n"));
  EXPECT_THAT(text, ContainsRegex(" start_tables.cc:[0-9]+\\] \n\\+-"));
  EXPECT_THAT(text, HasSubstr("| Repository Agent | Path     |\n+------------------+----------+\n"
                              "| checksum         | built in |\n"));
  EXPECT_THAT(text, ContainsRegex("\n\\| rate_limit_resource\\[0\\] +\\| R1: 4, global +\\|\n"
                                  "\\| rate_limit_resource\\[1\\] +\\| R2: 2, device 0 +\\|\n"
                                  "\\| pinned_memory_pool_byte_size +\\| 268435456 +\\|\n"
                                  "\\| min_supported_compute_capability \\| 6.0 "));
}

TEST_F(LogFile, AStepsNamespaceIsSaidToChangeNothing) {
  write_to("namespace", TRITONSERVER_LOG_DEFAULT);
  const std::string io =
      "input { name: \"IN\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
      "output { name: \"OUT\" data_type: TYPE_INT32 dims: [ -1 ] }\n";
  const TestServer server({{"m", "backend: \"nereid_probe\"\n" + io},
                           {"e",
                            "platform: \"ensemble\" ensemble_scheduling { step { model_name: \"m\" "
                            "model_namespace: \"/r\" input_map { key: \"IN\" value: \"IN\" } "
                            "output_map { key: \"OUT\" value: \"OUT\" } } }\n" +
                                io}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  EXPECT_THAT(with("model_namespace"),
              HasSubstr("ensemble 'e': model_namespace '/r' of step 'm' has no effect"));
}

}  // namespace
}  // namespace nereid::server
