// What protects a route of HTTP or an rpc of gRPC. Each says it where it is added, so that there is
// none without.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace nereid::front {

// The groups that --http-restricted-api and --grpc-restricted-protocol name.
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

// Who may call it.
enum class Access : uint8_t {
  kAnybody,   // probes: no key is needed
  kCallers,   // who shows a key, where there are keys
  kModels,    // administrators: loads and unloads models and adapters
  kSettings,  // administrators: changes settings of the process
};

// What a call takes of its key's limits (KeyLimits).
enum class Cost : uint8_t {
  kNothing,
  kRequest,    // one request
  kTokens,     // one request, and the tokens that its handler charges
  kUncounted,  // one request that computes tokens which nobody counts: not for keys with such a
               // limit
};

struct Protection {
  constexpr Protection(Api a, Access by, Cost takes) : api(a), access(by), cost(takes) {}

  Api api;
  Access access;
  Cost cost;
};

// How a client of an API reads errors.
enum class ErrorShape : uint8_t { kKserve, kOpenAi, kAnthropic, kOllama };

struct RouteTraits : Protection {
  constexpr RouteTraits(Api a, Access by, Cost takes, ErrorShape shape)
      : Protection(a, by, takes), errors(shape) {}

  ErrorShape errors;
};

}  // namespace nereid::front
