#include "backend/executor_config/executor_config.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace nereid::backend {
namespace {

// The devices of a model with these instance groups.
std::string devices_of(const char* groups, const char* parameters = "{}") {
  const auto config = parse_json(fmt::format(
      R"({{"name": "m", "parameters": {}, "instance_group": {}}})", parameters, groups));
  const auto read = read_executor_config(ModelSettings::of(config->as_object()));
  return read.ok() ? read->devices : std::string(message(read.status()));
}

TEST(ExecutorConfig, GpusOfTheInstanceGroupAreThoseOfTheRanks) {
  EXPECT_EQ(devices_of(R"([{"count": 1, "gpus": [1]}])"), "cuda:1");
  EXPECT_EQ(devices_of(R"([{"count": 1, "gpus": [2, 3]}])"), "cuda:2,3");
  EXPECT_EQ(devices_of(R"([{"count": 1, "gpus": [0, 1]}])"), "") << "what auto takes";
  EXPECT_EQ(devices_of(R"([{"count": 2}])"), "");
  EXPECT_EQ(
      devices_of(R"([{"count": 1, "gpus": [1]}])", R"({"gpu_device_ids": {"string_value": "3"},
                           "gpt_model_path": {"string_value": "/"}})"),
      "cuda:3");
  EXPECT_EQ(devices_of(R"([{"count": 1, "gpus": [1]}])", R"({"device": {"string_value": "cpu"}})"),
            "");
}

}  // namespace
}  // namespace nereid::backend
