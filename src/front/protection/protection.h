// The protection of an HTTP route or a gRPC rpc. Each is declared with its protection, so
// that none is without.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace nereid::front {

// The groups named by --http-restricted-api and --grpc-restricted-protocol.
enum class Api : uint8_t {
  kHealth,
  kMetadata,
  kInference,
  kSharedMemory,
  kModelConfig,
  kModelRepository,
  kStatistics,
  kTrace,
  kLogging,
};
inline constexpr std::array<std::string_view, 9> kApiNames = {
    "health",           "metadata",   "inference", "shared-memory", "model-config",
    "model-repository", "statistics", "trace",     "logging"};
constexpr std::string_view name_of(Api api) { return kApiNames[static_cast<size_t>(api)]; }

// The callers allowed.
enum class Access : uint8_t {
  kAnybody,   // everybody: probes, without a key
  kCallers,   // callers with a key, if the server has keys
  kModels,    // administrators: loading and unloading of models and adapters
  kSettings,  // administrators: settings of the process
};

// The charge of a call to its key's limits (KeyLimits).
enum class Cost : uint8_t {
  kNothing,
  kRequest,    // one request
  kTokens,     // one request, and the tokens that its handler charges
  kUncounted,  // one request that computes uncounted tokens: refused for keys with a token limit
};

struct Protection {
  constexpr Protection(Api a, Access by, Cost takes) : api(a), access(by), cost(takes) {}

  Api api;
  Access access;
  Cost cost;
};

// The shape of an API's error bodies.
enum class ErrorShape : uint8_t { kKserve, kOpenAi, kAnthropic, kOllama };

struct RouteTraits : Protection {
  constexpr RouteTraits(Api a, Access by, Cost takes, ErrorShape shape, bool large_bodies = false)
      : Protection(a, by, takes), errors(shape), has_large_bodies(large_bodies) {}

  ErrorShape errors;
  bool has_large_bodies;  // files of clients: large ones are kept in a file while they arrive
};

}  // namespace nereid::front
