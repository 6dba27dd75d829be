// Load generator: requests to a server with OpenAI's API, sent at a rate or by a number of clients,
// and the times of the parts of each response.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "cli/load/dataset.h"
#include "front/client/http_client.h"

namespace nereid::cli {

enum class Endpoint : uint8_t { kCompletions, kChat };

struct LoadOptions {
  front::Url url;
  std::shared_ptr<const front::TlsClient> tls;  // for https; else null
  Endpoint endpoint = Endpoint::kCompletions;
  std::string model;
  std::string api_key;      // "": none
  json::object extra_body;  // members added to every request, replacing others
  bool streaming = true;
  bool ignore_eos = false;      // an extension of language model servers
  double requests_per_s = 0;    // Poisson arrivals; 0: as soon as a client is free
  int64_t max_concurrency = 0;  // most requests in flight; 0: no limit
  double timeout_s = 600;       // per request
  uint64_t seed = 0;            // for the arrivals
};

// Most requests in flight without another limit: each has a thread.
inline constexpr int64_t kMaxLoadThreads = 2048;

// Measurements of one request. Times in seconds since the run began.
struct Outcome {
  std::string error;                  // "": complete response
  double planned_s = 0, begin_s = 0;  // times when it was due and when it was sent
  // Times of the first text (without a stream: the response) and of the last byte.
  double first_s = 0, end_s = 0;
  std::vector<double> gaps_s;  // times between successive events with text
  int64_t prompt_tokens = 0;   // from the server's usage; without it: from the dataset
  int64_t output_tokens = 0;   // from the server's usage; without it: events with text
};

// The JSON body of one request.
std::string request_body(const LoadOptions& options, const BenchRequest& request);

// Due times of `count` requests, in seconds: exponential gaps of mean 1 / rate; all 0 at rate 0.
std::vector<double> arrivals(int64_t count, double requests_per_s, uint64_t seed);

// Sends all requests and waits for all; outcome i is that of request i. Errors are in the outcomes.
std::vector<Outcome> run_load(const LoadOptions& options,
                              const std::vector<BenchRequest>& requests);

// The first model id of GET /v1/models.
StatusOr<std::string> first_model(const LoadOptions& options);

}  // namespace nereid::cli
