#include "hub/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>

namespace nereid::hub {
namespace {

using ::testing::HasSubstr;

constexpr const char* kNames[] = {"HF_ENDPOINT",
                                  "HF_TOKEN",
                                  "HUGGING_FACE_HUB_TOKEN",
                                  "HF_TOKEN_PATH",
                                  "HF_HOME",
                                  "HF_HUB_CACHE",
                                  "HF_HUB_OFFLINE",
                                  "XDG_CACHE_HOME",
                                  "HUGGINGFACE_HUB_CACHE",
                                  "NEREID_CACHE_DIR",
                                  "HF_HUB_DISABLE_IMPLICIT_TOKEN",
                                  "HOME"};

// Has only the variables of a test, and puts the others back.
class SettingsTest : public ::testing::Test {
 protected:
  SettingsTest() {
    for (const char* name : kNames) {
      if (const char* value = std::getenv(name)) before_[name] = value;
      ::unsetenv(name);
    }
    ::setenv("HOME", dir_.c_str(), 1);
    std::filesystem::create_directories(dir_);
  }
  ~SettingsTest() override {
    for (const char* name : kNames) {
      ::unsetenv(name);
      if (before_.contains(name)) ::setenv(name, before_[name].c_str(), 1);
    }
    std::filesystem::remove_all(dir_);
  }
  std::string error() { return std::string(message(settings_from_environment().status())); }

  std::map<std::string, std::string> before_;
  const std::filesystem::path dir_ = std::filesystem::path(::testing::TempDir()) / "hub_settings";
};

TEST_F(SettingsTest, Defaults) {
  const HubSettings settings = settings_from_environment().value();
  EXPECT_EQ(settings.endpoint, "https://huggingface.co");
  EXPECT_EQ(settings.token, "");
  EXPECT_FALSE(settings.offline);
  EXPECT_EQ(settings.models_dir, dir_ / ".cache/nereid/models");
  EXPECT_EQ(settings.hub_cache, dir_ / ".cache/huggingface/hub");
  EXPECT_EQ(settings_from_environment("/c")->models_dir, "/c/models");
}

TEST_F(SettingsTest, FoldersAndEndpoint) {
  ::setenv("HF_HOME", "/h", 1);
  ::setenv("NEREID_CACHE_DIR", "/n", 1);
  ::setenv("HF_ENDPOINT", "https://mirror.example/hub//", 1);
  ::setenv("HF_HUB_OFFLINE", "yes", 1);
  HubSettings settings = settings_from_environment().value();
  EXPECT_EQ(settings.hub_cache, "/h/hub");
  EXPECT_EQ(settings.models_dir, "/n/models");
  EXPECT_EQ(settings.endpoint, "https://mirror.example/hub");
  EXPECT_TRUE(settings.offline);
  ::setenv("HF_HUB_CACHE", "/c", 1);
  EXPECT_EQ(settings_from_environment()->hub_cache, "/c");
  for (const char* endpoint : {"mirror.example", "ftp://a", "https://", "https://u:p@a",
                               "https://a?b", "https://a b", "file:///etc"}) {
    ::setenv("HF_ENDPOINT", endpoint, 1);
    EXPECT_THAT(error(), HasSubstr("HF_ENDPOINT: '")) << endpoint;
  }
}

TEST_F(SettingsTest, TokensByVariableAndFile) {
  std::filesystem::create_directories(dir_ / ".cache/huggingface");
  std::ofstream(dir_ / ".cache/huggingface/token") << "of_file\n";
  EXPECT_EQ(settings_from_environment()->token, "of_file");
  std::ofstream(dir_ / "other") << "of_other";
  ::setenv("HF_TOKEN_PATH", (dir_ / "other").c_str(), 1);
  EXPECT_EQ(settings_from_environment()->token, "of_other");
  ::setenv("HF_TOKEN", " of_variable ", 1);
  EXPECT_EQ(settings_from_environment()->token, "of_variable");
  EXPECT_EQ(settings_from_environment()->token_source, "HF_TOKEN");
  ::setenv("HF_TOKEN", "a\r\nX-Header: b", 1);
  EXPECT_THAT(error(), HasSubstr("HF_TOKEN: a token has"));
  EXPECT_EQ(error().find("X-Header"), std::string::npos);
  ::setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1", 1);
  EXPECT_EQ(settings_from_environment()->token, "");
}

}  // namespace
}  // namespace nereid::hub
