// Random valid requests that between them use everything a Request can ask for.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "nereid/request.h"

namespace nereid::soak {

struct Limits {
  int32_t vocab_size = 0;
  int32_t max_prompt_tokens = 300;
  int32_t max_new_tokens = 80;
  int32_t max_beam_width = 16;
};

struct Order {
  Request request;
  std::optional<std::chrono::milliseconds> cancel_after;
};

// Names of the features that requests draw from.
std::vector<std::string> feature_names();

class RequestMaker {
 public:
  // `without`: names of features that are left out.
  RequestMaker(const Limits& limits, uint64_t seed, std::set<std::string> without);

  Order make();

  // Bursts of `count` requests, each of which takes another kind of buffer to its largest size
  // (lists, logits, history of beams): by chance alone that would take hours, and would look like a
  // leak.
  std::vector<std::vector<Request>> peaks(int count);

  // A request whose result must be the same each time: no deadline, no cancel.
  Request make_repeatable();

 private:
  std::vector<TokenId> prompt();
  std::vector<TokenId> tokens(int64_t count);
  Request draw();

  const Limits limits_;
  const std::set<std::string> without_;
  std::mt19937_64 rng_;
  std::vector<std::vector<TokenId>> prefixes_;  // prompts share them, so that caches have work
};

}  // namespace nereid::soak
