#include "cli/flags/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/Validators.hpp>
#include <algorithm>
#include <fstream>
#include <vector>

namespace nereid::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class ConfigFileTest : public ::testing::Test {
 protected:
  ConfigFileTest() {
    app_.add_option("model", model_);
    app_.add_option("--max-size", size_)
        ->check(CLI::Range(0, 100))
        ->envname("NEREID_TEST_MAX_SIZE");
    app_.add_option("--host,--address", host_)->envname("NEREID_TEST_HOST");
    app_.add_option("--share", share_);
    app_.add_option("--key", keys_);
    app_.add_flag("--strict", strict_);
    app_.add_flag_function("--no-page", [this](int64_t count) { page_ = count <= 0; });
    app_.add_option("--config", config_);
    ::unsetenv("NEREID_TEST_MAX_SIZE");
  }
  ~ConfigFileTest() override { ::unsetenv("NEREID_TEST_MAX_SIZE"); }

  // The error of a file with this text; "" = none.
  std::string apply(const std::string& text, std::vector<std::string> words = {}) {
    std::ofstream(path_) << text;
    std::reverse(words.begin(), words.end());
    app_.parse(std::move(words));
    sources_ = OptionSources(app_);
    return std::string(message(apply_config_file(app_, path_, sources_)));
  }
  std::string source(const std::string& name) { return sources_.of(app_.get_option(name)); }

  const std::filesystem::path path_ =
      std::filesystem::path(::testing::TempDir()) / "config_file_test.toml";
  CLI::App app_;
  OptionSources sources_;
  std::string model_, host_ = "localhost", config_;
  int size_ = 7;
  double share_ = 0;
  std::vector<std::string> keys_;
  bool strict_ = false, page_ = true;
};

TEST_F(ConfigFileTest, ValuesOfEachType) {
  EXPECT_EQ(apply("# a comment\nmodel = '/m'\nmax_size = 9\nhost = \"a b\"\nshare = 0.25\n"
                  "key = ['x', 'y']\nstrict = true\nno-page = true\n"),
            "");
  EXPECT_EQ(model_, "/m");
  EXPECT_EQ(size_, 9);
  EXPECT_EQ(host_, "a b");
  EXPECT_EQ(share_, 0.25);
  EXPECT_THAT(keys_, ElementsAre("x", "y"));
  EXPECT_TRUE(strict_);
  EXPECT_FALSE(page_);
}

TEST_F(ConfigFileTest, FalseFlagsAreOff) {
  EXPECT_EQ(apply("strict = false\nno-page = false\nkey = []"), "");
  EXPECT_FALSE(strict_);
  EXPECT_TRUE(page_);
  EXPECT_TRUE(keys_.empty());
}

TEST_F(ConfigFileTest, FlagCountsMoreThanEnvironmentAndThatMoreThanTheFile) {
  const std::string text = "max-size = 1\nhost = 'file'\nshare = 1.5";
  ::setenv("NEREID_TEST_MAX_SIZE", "2", 1);
  EXPECT_EQ(apply(text, {"--host", "line"}), "");
  EXPECT_EQ(size_, 2);
  EXPECT_EQ(host_, "line");
  EXPECT_EQ(share_, 1.5);
  EXPECT_EQ(source("--max-size"), "environment NEREID_TEST_MAX_SIZE");
  EXPECT_EQ(source("--host"), "flag --host");
  EXPECT_EQ(source("--share"), path_.string() + ":3");
  EXPECT_EQ(source("--strict"), "default");
}

TEST_F(ConfigFileTest, FaultsNameFileLineAndKey) {
  EXPECT_THAT(apply("\nmax-sice = 1"),
              HasSubstr(path_.string() +
                        ":2: key 'max-sice': no flag has that name. Did you mean 'max-size'?"));
  EXPECT_THAT(apply("max-size = 101"), HasSubstr(":1: key 'max-size': "));
}

TEST_F(ConfigFileTest, ValuesThatAreRefused) {
  EXPECT_THAT(apply("max-size = 'x'"), HasSubstr("key 'max-size'"));
  EXPECT_THAT(apply("[max-size]\nx = 1"), HasSubstr("there are no tables"));
  EXPECT_THAT(apply("key = [['x']]"), HasSubstr("a list of these"));
  EXPECT_THAT(apply("max-size = 2020-01-01"), HasSubstr("expected a text"));
}

TEST_F(ConfigFileTest, OneFlagTwice) {
  EXPECT_THAT(apply("host = 'a'\naddress = 'b'"), HasSubstr("the same flag as key"));
  EXPECT_THAT(apply("max-size = 1\nmax-size = 2"), HasSubstr(":2:"));
}

TEST_F(ConfigFileTest, NoToml) {
  EXPECT_THAT(apply("max-size"), HasSubstr(path_.string() + ":1:"));
  EXPECT_THAT(apply("config = 'x'"), HasSubstr("no flag has that name"));
  EXPECT_THAT(apply("help = true"), HasSubstr("no flag has that name"));
  EXPECT_THAT(apply(std::string("host = '\xff'")), HasSubstr(":1:"));
  EXPECT_THAT(apply(std::string(size_t{2} << 20, ' ')), HasSubstr("larger than the limit"));
}

TEST_F(ConfigFileTest, MistakesOfTomlHaveHints) {
  EXPECT_THAT(apply("\nhost = localhost # mine"),
              AllOf(HasSubstr(":2:"), HasSubstr("texts stand in quotes: host = \"localhost\"")));
  EXPECT_THAT(apply("model = /models/a"), HasSubstr("model = \"/models/a\""));
  EXPECT_THAT(apply("strict = True"), HasSubstr("expected true or false"));
  EXPECT_THAT(apply("max-size: 9"), HasSubstr("a line is KEY = VALUE"));
  EXPECT_THAT(apply("max-size ="), HasSubstr("the value of 'max-size' is missing"));
  EXPECT_THAT(apply("host = \"open"), Not(HasSubstr("stand in quotes")));
}

TEST_F(ConfigFileTest, ListForOneValue) {
  EXPECT_THAT(apply("host = ['a', 'b']"), HasSubstr("key 'host'"));
}

}  // namespace
}  // namespace nereid::cli
