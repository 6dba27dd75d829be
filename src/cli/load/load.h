// Requests to a server that speaks OpenAI's API, sent at a rate or by a number of clients, and when
// each part of each answer came.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "cli/load/dataset.h"
#include "cli/load/http_client.h"

namespace nereid::cli {

enum class Endpoint : uint8_t { kCompletions, kChat };

struct LoadOptions {
  ServerUrl url;
  Endpoint endpoint = Endpoint::kCompletions;
  std::string model;
  std::string api_key;      // "": none
  json::object extra_body;  // members of every request; they win
  bool streaming = true;
  bool ignore_eos = false;      // an extension that servers of language models have
  double requests_per_s = 0;    // Poisson arrivals; 0: as fast as clients are free
  int64_t max_concurrency = 0;  // requests under way at once; 0: no limit of ours
  double timeout_s = 600;       // of a request
  uint64_t seed = 0;            // of the arrivals
};

// Requests under way at once when nothing limits them: each has a thread.
inline constexpr int64_t kMaxLoadThreads = 2048;

// What one request met. Times in seconds since the run began.
struct Outcome {
  std::string error;                  // "": a whole answer
  double planned_s = 0, begin_s = 0;  // when it was due, when it was sent
  double first_s = 0, end_s = 0;      // first text (without a stream: the answer), last byte
  std::vector<double> gaps_s;         // between one event with text and the next
  int64_t prompt_tokens = 0;          // as the server counts them; without usage: of the dataset
  int64_t output_tokens = 0;          // likewise; without usage: events with text
};

// The JSON body of one request.
std::string request_body(const LoadOptions& options, const BenchRequest& request);

// When each of `count` requests is due, in seconds: exponential gaps of mean 1 / rate; all 0 at
// rate 0.
std::vector<double> arrivals(int64_t count, double requests_per_s, uint64_t seed);

// Sends all and waits for all; outcome i belongs to request i. Never fails as a whole: what goes
// wrong is in the outcomes.
std::vector<Outcome> run_load(const LoadOptions& options,
                              const std::vector<BenchRequest>& requests);

// The first id of GET /v1/models.
StatusOr<std::string> first_model(const LoadOptions& options);

}  // namespace nereid::cli
