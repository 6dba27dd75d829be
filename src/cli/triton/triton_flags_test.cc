#include "cli/triton/triton_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace nereid::cli {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

StatusOr<TritonOptions> parse_flags(std::vector<std::string> words, bool with_repository = true) {
  if (with_repository) words.insert(words.begin(), "--model-repository=/r");
  return parse_triton_flags(words);
}

std::string error(std::vector<std::string> words) {
  return std::string(message(parse_flags(std::move(words)).status()));
}

TEST(TritonFlags, ValuesComeAfterEqualsOrABlankAndNamesMayBeShortened) {
  const auto got =
      parse_flags({"--http-port", "9000", "--grpc-port=9001", "--metrics-p=9002",
                   "--http-port=9003", "--http-thread-count=3", "--allow-grpc", "OFF",
                   "--model-control-mode=explicit", "--load-model=a", "--load-model=b"});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->http.http_port, 9003);  // the last one counts
  EXPECT_EQ(got->grpc.port, 9001);
  EXPECT_EQ(got->http.metrics_port, 9002);
  EXPECT_EQ(got->http.threads, 3);
  EXPECT_FALSE(got->allow_grpc);
  EXPECT_THAT(got->load_models, ElementsAre("a", "b"));
}

// Command lines of launch_triton_server and of the guides.
TEST(TritonFlags, CommandLinesOfTheField) {
  EXPECT_TRUE(
      parse_flags({"--grpc-port=8001", "--http-port=8000", "--metrics-port=8002", "--log-verbose=3",
                   "--log-file=/tmp/f", "--cuda-memory-pool-byte-size=0:300000000",
                   "--pinned-memory-pool-byte-size=0", "--enable-peer-access=false",
                   "--grpc-port=8001", "--http-port=8000", "--metrics-port=8002",
                   "--disable-auto-complete-config",
                   "--backend-config=python,shm-region-prefix-name=prefix0_", ":"})
          .ok());
  EXPECT_TRUE(parse_flags({"--cache-config", "local,size=1048576", "--http-header-forward-pattern",
                           "x-fwd-.*", "--grpc-header-forward-pattern", "x-fwd-.*"})
                  .ok());
  EXPECT_EQ(parse_flags({"--trace-file=/t", "--trace-level=TIMESTAMPS", "--trace-config", "rate=5"})
                ->trace,
            (std::vector<std::string>{"triton,file=/t", "level=TIMESTAMPS", "rate=5"}));
}

// The flags of the stock server's command line, deprecated ones included.
TEST(TritonFlags, EveryFlagOfTheStockServerIsKnown) {
  constexpr const char* kStockFlags[] = {
      "allow-client-shm",
      "allow-cpu-metrics",
      "allow-gpu-metrics",
      "allow-grpc",
      "allow-http",
      "allow-metrics",
      "allow-sagemaker",
      "allow-vertex-ai",
      "backend-config",
      "backend-directory",
      "buffer-manager-thread-count",
      "cache-config",
      "cache-directory",
      "cuda-memory-pool-byte-size",
      "cuda-virtual-address-size",
      "disable-auto-complete-config",
      "enable-peer-access",
      "exit-on-error",
      "exit-timeout-secs",
      "grpc-address",
      "grpc-header-forward-pattern",
      "grpc-http2-max-ping-strikes",
      "grpc-http2-max-pings-without-data",
      "grpc-http2-min-recv-ping-interval-without-data",
      "grpc-infer-allocation-pool-size",
      "grpc-infer-response-compression-level",
      "grpc-infer-thread-count",
      "grpc-keepalive-permit-without-calls",
      "grpc-keepalive-time",
      "grpc-keepalive-timeout",
      "grpc-max-connection-age",
      "grpc-max-connection-age-grace",
      "grpc-max-response-pool-size",
      "grpc-port",
      "grpc-restricted-protocol",
      "grpc-root-cert",
      "grpc-server-cert",
      "grpc-server-key",
      "grpc-use-ssl",
      "grpc-use-ssl-mutual",
      "host-policy",
      "http-address",
      "http-header-forward-pattern",
      "http-max-input-size",
      "http-port",
      "http-restricted-api",
      "http-thread-count",
      "id",
      "load-model",
      "log-error",
      "log-file",
      "log-format",
      "log-info",
      "log-verbose",
      "log-warning",
      "metrics-address",
      "metrics-config",
      "metrics-interval-ms",
      "metrics-port",
      "min-supported-compute-capability",
      "model-config-name",
      "model-control-mode",
      "model-load-gpu-limit",
      "model-load-retry-count",
      "model-load-thread-count",
      "model-namespacing",
      "model-repository",
      "model-store",
      "pinned-memory-pool-byte-size",
      "rate-limit",
      "rate-limit-resource",
      "repoagent-directory",
      "repository-poll-secs",
      "response-cache-byte-size",
      "reuse-grpc-port",
      "reuse-http-port",
      "sagemaker-port",
      "sagemaker-safe-port-range",
      "sagemaker-thread-count",
      "strict-model-config",
      "strict-readiness",
      "trace-config",
      "trace-count",
      "trace-file",
      "trace-level",
      "trace-log-frequency",
      "trace-rate",
      "vertex-ai-default-model",
      "vertex-ai-port",
      "vertex-ai-thread-count",
  };
  std::set<std::string> names;
  TritonOptions options;
  for (const auto& flag : triton_flags(options)) names.insert(flag.name);
  for (const char* name : kStockFlags) EXPECT_TRUE(names.contains(name)) << name;
}

TEST(TritonFlags, EveryFlagHasOneDeclarationAndHelp) {
  std::set<std::string> names;
  TritonOptions options;
  for (const auto& flag : triton_flags(options)) {
    EXPECT_TRUE(names.insert(flag.name).second) << flag.name;
    EXPECT_NE(std::string(flag.help), "") << flag.name;
  }
  const std::string usage = triton_usage("tritonserver");
  for (const auto& name : names) EXPECT_THAT(usage, HasSubstr("--" + name));
}

TEST(TritonFlags, BooleansAndNumbersAreChecked) {
  EXPECT_EQ(error({"--repository-poll-secs=0"}), "");  // 0: read at the start only
  for (const char* yes : {"true", "TRUE", "on", "1"}) {
    EXPECT_TRUE(parse_flags({std::string("--reuse-grpc-port=") + yes})->grpc.reuse_port) << yes;
  }
  EXPECT_THAT(error({"--allow-http=maybe"}),
              HasSubstr("Bad option: \"--allow-http\".\ninvalid value for bool option: maybe"));
  EXPECT_THAT(error({"--http-port=abc"}), HasSubstr("Invalid option value. Got abc"));
  EXPECT_THAT(error({"--http-port=70000"}), HasSubstr("0 to 65535"));
  EXPECT_THAT(error({"--grpc-infer-thread-count=1"}), HasSubstr("2 to 128"));
  EXPECT_THAT(error({"--metrics-config=foo"}), HasSubstr("--metrics-config option format is "));
  EXPECT_THAT(error({"--rate-limit=sometimes"}), HasSubstr("invalid argument for --rate-limit"));
  EXPECT_THAT(error({"--log-format=json"}), HasSubstr("default, ISO8601"));
}

TEST(TritonFlags, MistakesAreNamed) {
  EXPECT_THAT(error({"--x"}), HasSubstr("unrecognized option '--x'"));
  EXPECT_THAT(error({"--http-prot=1"}), HasSubstr("Did you mean '--http-port'?"));
  EXPECT_THAT(error({"--allow=1"}), HasSubstr("ambiguous"));
  EXPECT_THAT(error({"stray"}), HasSubstr("Unexpected argument: stray"));
  EXPECT_THAT(error({"--http-port"}), HasSubstr("requires an argument"));
  EXPECT_THAT(error({"--model-config-name="}), HasSubstr("must not be empty"));
  EXPECT_THAT(error({"--load-model=a"}),
              HasSubstr("requires setting '--model-control-mode=explicit'"));
  EXPECT_THAT(error({"--grpc-port=8000"}),
              HasSubstr("cannot listen to HTTP requests and GRPC requests at the same address and "
                        "port 0.0.0.0:8000"));
  EXPECT_THAT(error({"--response-cache-byte-size=1", "--cache-config=local,size=1"}),
              HasSubstr("Incompatible flags"));
  EXPECT_THAT(std::string(message(parse_flags({}, /*with_repository=*/false).status())),
              HasSubstr("--model-repository must be specified"));
}

TEST(TritonFlags, RestrictedApis) {
  const auto got = parse_flags({"--http-restricted-api=model-repository,logging:admin-key=s=1"});
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_EQ(got->http.restrictions.size(), 1u);
  EXPECT_THAT(got->http.restrictions[0].apis, ElementsAre("model-repository", "logging"));
  EXPECT_EQ(got->http.restrictions[0].key, "admin-key");
  EXPECT_EQ(got->http.restrictions[0].value, "s=1");
  EXPECT_THAT(error({"--http-restricted-api=nope:k=v"}),
              HasSubstr("unknown restricted api 'nope'"));
  EXPECT_THAT(error({"--http-restricted-api=health:k=v", "--http-restricted-api=health:l=w"}),
              HasSubstr("restricted api 'health' can not be specified in multiple config groups"));
  EXPECT_THAT(error({"--grpc-restricted-protocol=health"}), HasSubstr("Got health"));
}

TEST(TritonFlags, Tls) {
  const auto got = parse_flags({"--grpc-use-ssl-mutual=true", "--grpc-server-cert=c",
                                "--grpc-server-key=k", "--grpc-root-cert=r"});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(got->grpc.tls.enabled);
  EXPECT_TRUE(got->grpc.tls.is_mutual);
  EXPECT_EQ(got->grpc.tls.server_cert, "c");
  EXPECT_EQ(got->grpc.tls.server_key, "k");
  EXPECT_EQ(got->grpc.tls.root_cert, "r");
  EXPECT_TRUE(got->warnings.empty());
  EXPECT_FALSE(got->http.tls.enabled);
  const auto http = parse_flags({"--http-use-ssl=true", "--http-server-cert=c",
                                 "--http-server-key=k", "--metrics-use-ssl=true"});
  ASSERT_TRUE(http.ok()) << http.status();
  EXPECT_TRUE(http->http.tls.enabled);
  EXPECT_TRUE(http->http.metrics_use_tls);
  EXPECT_EQ(http->http.tls.server_cert, "c");
  EXPECT_EQ(http->http.tls.server_key, "k");
  EXPECT_FALSE(http->grpc.tls.enabled);
  EXPECT_EQ(parse_flags({"--grpc-server-cert=c"})->warnings.size(), 1u);
  EXPECT_THAT(parse_flags({"--http-root-cert=c"})->warnings,
              ElementsAre(HasSubstr("--http-root-cert: no effect without --http-use-ssl")));
  EXPECT_THAT(error({"--metrics-use-ssl=true"}), HasSubstr("needs --http-use-ssl=true"));
}

TEST(TritonFlags, OriginsOfWebPages) {
  const auto got = parse_flags({"--http-cors-origin=https://a.b:8", "--http-cors-origin=*"});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(got->http.cors_origins, ElementsAre("https://a.b:8", "*"));
  EXPECT_THAT(error({"--http-cors-origin=https://a.b/"}),
              HasSubstr("origin 'https://a.b/' is neither"));
}

TEST(TritonFlags, WhatCannotWorkIsRefusedByName) {
  EXPECT_TRUE(parse_flags({"--grpc-use-ssl=false", "--allow-sagemaker=false"}).ok());
  EXPECT_THAT(error({"--allow-sagemaker=true"}), HasSubstr("--allow-sagemaker"));
  EXPECT_THAT(error({"--allow-vertex-ai=true"}), HasSubstr("--allow-vertex-ai"));
  // Settings of an endpoint that is off have no effect, but must be valid.
  EXPECT_TRUE(parse_flags({"--sagemaker-port=8080", "--sagemaker-safe-port-range=5000-6000",
                           "--sagemaker-thread-count=8", "--vertex-ai-port=8080",
                           "--vertex-ai-thread-count=8", "--vertex-ai-default-model=m"})
                  .ok());
  EXPECT_THAT(error({"--sagemaker-port=x"}), HasSubstr("--sagemaker-port"));
  EXPECT_THAT(error({"--sagemaker-safe-port-range=9-5"}), HasSubstr("9 to 65535"));
  EXPECT_THAT(error({"--vertex-ai-thread-count=0"}), HasSubstr("--vertex-ai-thread-count"));
}

TEST(TritonFlags, WrongPairsAreToldTheFormatOfTheFlag) {
  for (const char* value : {"default-max-batch-size", "default-max-batch-size=", "b,size="}) {
    EXPECT_THAT(error({"--backend-config", value}),
                HasSubstr("--backend-config option format is '<backend name>,<setting>=<value>'. "
                          "Got " +
                          std::string(value)));
  }
  EXPECT_THAT(error({"--backend-config=,default-max-batch-size=3"}),
              HasSubstr("No backend specified. --backend-config option format is"));
  EXPECT_THAT(error({"--cache-config=local"}), HasSubstr("--cache-config option format is"));
}

TEST(TritonFlags, DeprecatedOnesAreNamedOnce) {
  for (const std::string flag :
       {"--trace-file=f", "--trace-level=TIMESTAMPS", "--trace-rate=1", "--trace-count=1",
        "--trace-log-frequency=1", "--strict-model-config=true", "--response-cache-byte-size=1"}) {
    const std::string name = flag.substr(0, flag.find('='));
    const auto got = parse_flags({flag, flag});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_THAT(got->warnings,
                ElementsAre(HasSubstr("Warning: '" + name + "' has been deprecated. Please use")));
  }
}

TEST(TritonFlags, WhatTakesTheirPlaceOverridesDeprecatedOnes) {
  const auto got = parse_flags({"--disable-auto-complete-config", "--strict-model-config=false",
                                "--trace-config=rate=5", "--trace-config=triton,file=new",
                                "--trace-rate=7", "--trace-file=old", "--trace-count=3"});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(got->trace,
              ElementsAre("rate=7", "triton,file=old", "count=3", "rate=5", "triton,file=new"));
  EXPECT_THAT(got->warnings, Contains(HasSubstr("Overriding deprecated '--strict-model-config'")));
  EXPECT_THAT(got->warnings, Contains(HasSubstr("Overriding 'rate=7'")));
  EXPECT_THAT(got->warnings, Contains(HasSubstr("Overriding 'triton,file=old'")));
  EXPECT_THAT(got->warnings, Not(Contains(HasSubstr("'count=3'"))));
}

TEST(TritonFlags, WhatChangesNothingIsNamedInAWarning) {
  for (const std::string flag :
       {"--cuda-memory-pool-byte-size=0:5", "--cuda-virtual-address-size=1:5",
        "--buffer-manager-thread-count=2", "--model-load-gpu-limit=0:0.5",
        "--grpc-max-response-pool-size=10", "--grpc-infer-allocation-pool-size=8"}) {
    const auto got = parse_flags({flag});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_THAT(got->warnings, ElementsAre(HasSubstr(flag + ": no effect")));
  }
  // These values ask for the state that exists anyway.
  for (const char* flag : {"--cuda-memory-pool-byte-size=0:0", "--cuda-virtual-address-size=0:0",
                           "--buffer-manager-thread-count=0", "--model-load-gpu-limit=0:1.0"}) {
    const auto got = parse_flags({flag});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_TRUE(got->warnings.empty()) << flag;
  }
  for (const char* flag : {"--model-load-gpu-limit=0:1.5", "--model-load-gpu-limit=0.5",
                           "--cuda-memory-pool-byte-size=x:5", "--grpc-max-response-pool-size=0"}) {
    EXPECT_FALSE(parse_flags({flag}).ok()) << flag;
  }
}

// /v2/logging returns them.
TEST(TritonFlags, LogFlagsAreKeptForTheLoggingExtension) {
  const auto got = parse_flags({"--log-verbose=3", "--log-format=ISO8601", "--log-file=/f"});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->log.verbose_level, 3);
  EXPECT_EQ(got->log.format, "ISO8601");
  EXPECT_EQ(got->log.file, "/f");
  EXPECT_EQ(parse_flags({"--log-verbose=true"})->log.verbose_level, 1);
  EXPECT_EQ(parse_flags({})->log.format, "default");
}

TEST(TritonFlags, SharedMemoryIsSwitchedForBothProtocols) {
  const auto got = parse_flags({"--allow-client-shm=false"});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_FALSE(got->http.allow_shared_memory);
  EXPECT_FALSE(got->grpc.allow_shared_memory);
}

TEST(TritonFlags, TheControlModeInCapitals) {
  const auto got = parse_flags({"--model-control-mode=EXPLICIT", "--load-model=a"});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->control_mode, "explicit");
  EXPECT_NE(error({"--model-control-mode=Sometimes"}).find(": Sometimes (allowed"),
            std::string::npos);
}

TEST(TritonFlags, AdministratorsAndNamesOfTheServer) {
  const auto got = parse_flags(
      {"--admin-key=a", "--admin-key=b", "--allowed-host=box.example", "--allowed-host=*"});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(got->admin_keys, ElementsAre("a", "b"));
  EXPECT_THAT(got->http.allowed_hosts, ElementsAre("box.example", "*"));
  EXPECT_NE(error({"--allowed-host=http://x"}).find("'http://x' is neither * nor"),
            std::string::npos);
  EXPECT_NE(error({"--allowed-host=x:80"}).find("without scheme and port"), std::string::npos);
  EXPECT_NE(error({"--admin-key="}).find("must not be empty"), std::string::npos);
}

TEST(TritonFlags, WhatIsOpenToTheNetwork) {
  const auto open = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), "--model-repository=/r");
    const auto got = parse_flags(flags);
    EXPECT_TRUE(got.ok()) << got.status();
    return what_is_open(*got);
  };
  EXPECT_EQ(open({}),
            "open to the network: HTTP on 0.0.0.0, gRPC on 0.0.0.0, metrics on 0.0.0.0; with no "
            "--api-key, client shared memory; see docs/security.md");
  EXPECT_EQ(open({"--http-address=127.0.0.1", "--grpc-address=::1"}), "");
  EXPECT_EQ(open({"--http-address=localhost", "--allow-client-shm=false", "--api-key=k",
                  "--model-control-mode=explicit"}),
            "open to the network: gRPC on 0.0.0.0; with model control; see docs/security.md");
  EXPECT_EQ(open({"--allow-http=false", "--allow-metrics=false", "--allow-client-shm=false",
                  "--api-key-file=f"}),
            "open to the network: gRPC on 0.0.0.0; with API keys; see docs/security.md");
}

}  // namespace
}  // namespace nereid::cli
