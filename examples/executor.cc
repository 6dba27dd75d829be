// Generates from token ids with the C++ API: two requests at once, one streamed to a callback, one
// awaited. usage: example_executor MODEL_DIR [TOKEN_ID ...]
#include <cstdio>
#include <cstdlib>
#include <string>

#include "nereid/executor.h"

namespace {

int fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}

void print(const char* what, const nereid::Response& response) {
  std::printf("%s:", what);
  for (const nereid::SequenceOutput& output : response.outputs)
    for (const nereid::TokenId id : output.token_ids) std::printf(" %d", id);
  std::printf("%s\n", response.is_final ? " (final)" : "");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s MODEL_DIR [TOKEN_ID ...]\n", argv[0]);
    return 2;
  }
  nereid::ExecutorConfig config;
  config.max_batch_size = 8;
  config.kv_cache.max_tokens = 4096;
  auto created = nereid::Executor::create(argv[1], config);
  if (!created.ok()) return fail(created.status());
  nereid::Executor& executor = **created;

  nereid::Request request;
  for (int i = 2; i < argc; ++i) request.input_token_ids.push_back(std::atoi(argv[i]));
  if (request.input_token_ids.empty()) request.input_token_ids = {10, 20, 30, 40, 50};
  request.max_tokens = 12;
  request.end_ids = executor.default_end_ids();

  // Greedy, a response for each token.
  request.streaming = true;
  const auto streamed = executor.enqueue(request, [](nereid::Response response) {
    if (response.status.ok()) print("streamed", response);
  });
  if (!streamed.ok()) return fail(streamed.status());

  // Sampled, with log-probabilities, all at once.
  request.streaming = false;
  request.sampling.top_p = 0.9f;
  request.sampling.temperature = 0.8f;
  request.sampling.seed = 42;
  request.output.return_log_probs = true;
  const auto sampled = executor.enqueue(request);
  if (!sampled.ok()) return fail(sampled.status());
  for (const nereid::Response& response : executor.await_responses(*sampled)) {
    if (!response.status.ok()) return fail(response.status);
    print("sampled", response);
    std::printf("log-probability of all: %f\n", *response.outputs[0].cum_log_prob);
  }

  executor.shutdown();  // lets the streamed one finish
  const nereid::ExecutorStats stats = executor.stats();
  std::printf(
      "%lld requests, %lld tokens in %lld steps\n", static_cast<long long>(stats.num_finished),
      static_cast<long long>(stats.generated_tokens), static_cast<long long>(stats.num_steps));
  return stats.num_finished == 2 ? 0 : 1;
}
