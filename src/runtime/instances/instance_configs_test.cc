#include "runtime/instances/instance_configs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/requests/request_check.h"

namespace nereid::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ExecutorConfig instances(int32_t count) {
  ExecutorConfig config;
  config.num_instances = count;
  config.num_threads = 7;
  config.kv_cache.host_cache_bytes = 90;
  return config;
}

TEST(InstanceConfigsTest, ListsGoRound) {
  ExecutorConfig config = instances(3);
  config.devices = "cuda:0,1;cuda:2-3";
  config.participant_ids = "1,2;3,4;5,6";
  const auto all = instance_configs(config);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].devices, "cuda:0,1");
  EXPECT_EQ(all[1].devices, "cuda:2-3");
  EXPECT_EQ(all[2].devices, "cuda:0,1");
  EXPECT_EQ(all[2].participant_ids, "5,6");
  // How many share the devices.
  EXPECT_EQ(all[0].num_instances, 2);
  EXPECT_EQ(all[1].num_instances, 1);
  EXPECT_EQ(all[2].num_instances, 2);
}

TEST(InstanceConfigsTest, ThreadsAndHostMemoryAreDivided) {
  const auto all = instance_configs(instances(3));
  EXPECT_EQ(all[0].num_threads, 2);
  EXPECT_EQ(all[1].num_threads, 2);
  EXPECT_EQ(all[2].num_threads, 3);
  for (const ExecutorConfig& own : all) {
    EXPECT_EQ(own.num_instances, 3);
    EXPECT_EQ(own.kv_cache.host_cache_bytes, 30);
    EXPECT_EQ(own.devices, "");
  }
  EXPECT_EQ(instance_configs(instances(64))[5].num_threads, 1);
  ExecutorConfig one;
  EXPECT_EQ(instance_configs(one).at(0).num_threads, 0);
}

TEST(InstanceConfigsTest, OrchestratedInstancesAreRestarted) {
  ExecutorConfig config;
  EXPECT_FALSE(restarts_failed(config));
  config.process_mode = "orchestrator";
  EXPECT_TRUE(restarts_failed(config));
  config.exit_on_device_failure = true;
  EXPECT_FALSE(restarts_failed(config));
  config.exit_on_device_failure = false;
  config.restart_failed = "false";
  EXPECT_FALSE(restarts_failed(config));
  config.process_mode = "leader";
  config.restart_failed = "true";
  EXPECT_TRUE(restarts_failed(config));
}

TEST(InstanceConfigsTest, WhatDoesNotFitIsNamed) {
  const auto error = [](auto change) {
    ExecutorConfig config;
    change(config);
    return check_config(config).ToString();
  };
  EXPECT_THAT(error([](auto& c) { c.num_instances = 65; }), HasSubstr("num_instances: 65"));
  EXPECT_THAT(error([](auto& c) { c.devices = "cuda:0;gpu"; }), HasSubstr("devices: 'gpu'"));
  EXPECT_THAT(error([](auto& c) { c.process_mode = "mpi"; }), HasSubstr("process_mode: 'mpi'"));
  EXPECT_THAT(error([](auto& c) { c.restart_failed = "yes"; }), HasSubstr("restart_failed: 'yes'"));
  for (const char* bad : {"1,", "1,,2", "a", "1;", "-1"})
    EXPECT_THAT(error([&](auto& c) { c.participant_ids = bad; }), HasSubstr("participant_ids: '"))
        << bad;
  EXPECT_THAT(error([](auto& c) { c.participant_ids = "1,2;3,2"; }), HasSubstr("has 2 twice"));
  EXPECT_THAT(error([](auto& c) {
                c.participant_ids = "0,1";
                c.process_mode = "orchestrator";
              }),
              HasSubstr("'0,1' has 0, the process that serves"));
  EXPECT_THAT(error([](auto& c) {
                c.restart_failed = "true";
                c.exit_on_device_failure = true;
              }),
              HasSubstr("excludes exit_on_device_failure"));
  EXPECT_THAT(error([](auto& c) {
                c.num_instances = 2;
                c.kv_cache.event_buffer_size = 5;
              }),
              HasSubstr("num_instances is 2"));
  EXPECT_EQ(error([](auto& c) { c.participant_ids = "0,1;2,3"; }), "OK");
}

}  // namespace
}  // namespace nereid::runtime
