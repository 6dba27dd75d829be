// Tests of families: the tiny Llama's configuration, changed, written to a folder and read.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/testing/source_dir.h"
#include "models/family.h"

namespace nereid::models {

inline const std::string kSource = source_dir();

class ModelsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/models.XXXXXX";
    dir_ = ::mkdtemp(name.data());
    config_ = read_json_file(kSource + "/tests/models/llama/config.json")->as_object();
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  StatusOr<Model> read(const json::object& config) {
    EXPECT_TRUE(write_file_atomic(dir_ / "config.json", json::serialize(config)).ok());
    return read_model(dir_);
  }
  std::string error_with(std::string_view key, const json::value& value) {
    json::object config = config_;
    config[key] = value;
    const auto model = read(config);
    return model.ok() ? "" : std::string(message(model.status()));
  }
  std::string error_without(std::string_view key) {
    json::object config = config_;
    config.erase(key);
    const auto model = read(config);
    return model.ok() ? "" : std::string(message(model.status()));
  }

  std::filesystem::path dir_;
  json::object config_;
};

}  // namespace nereid::models
