// Test only: golden outputs of the tiny encoder-decoder models (tests/golden/encoder).
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/testing/source_dir.h"
#include "io/safetensors.h"
#include "nereid/executor.h"
#include "runtime/testing/test_config.h"

namespace nereid::runtime::exactness {

inline const std::filesystem::path kSource = source_dir();

inline std::vector<TokenId> ids(const json::value& list) {
  std::vector<TokenId> out;
  for (const json::value& v : list.as_array()) out.push_back(v.to_number<TokenId>());
  return out;
}

struct Case {
  Request request;
  std::vector<TokenId> greedy;
};

// Audio features of the golden file, [1, bins, frames], as [frames, bins].
inline std::vector<float> golden_features(const std::string& model) {
  const auto file =
      io::TensorFile::open(kSource / "tests/golden/encoder" / (model + ".safetensors"));
  if (!file.ok()) return {};
  const auto tensor = std::ranges::find(file->tensors(), "input_features", &io::StoredTensor::name);
  if (tensor == file->tensors().end()) return {};
  const auto bins = static_cast<size_t>(tensor->shape[1]);
  const auto frames = static_cast<size_t>(tensor->shape[2]);
  const auto* const numbers = reinterpret_cast<const float*>(tensor->data.data());
  std::vector<float> out(bins * frames);
  for (size_t f = 0; f < frames; ++f)
    for (size_t b = 0; b < bins; ++b) out[f * bins + b] = numbers[b * frames + f];
  return out;
}

inline std::vector<Case> golden_cases(const std::string& model, const EncoderFacts& encoder) {
  const json::value golden =
      read_json_file(kSource / "tests/golden/encoder" / (model + ".json")).value();
  std::vector<Case> all;
  for (const json::value& v : golden.at("cases").as_array()) {
    Case& c = all.emplace_back();
    EncoderInput& input = c.request.encoder_input.emplace();
    if (encoder.feature_width > 0) {
      input.features = golden_features(model);
      c.request.input_token_ids = ids(v.at("prompt_ids"));
    } else {
      input.token_ids = ids(v.at("prompt_ids"));
      c.request.input_token_ids = {encoder.decoder_start_id};
    }
    c.greedy = ids(v.at("greedy_ids"));
    c.request.max_tokens = static_cast<int32_t>(c.greedy.size());
    c.request.output.return_log_probs = true;
  }
  return all;
}

inline ExecutorConfig encoder_config() {
  ExecutorConfig config = test_config();
  config.num_threads = 2;
  config.max_batch_size = 8;
  config.max_beam_width = 4;
  config.kv_cache.max_tokens = 2048;
  config.kv_cache.tokens_per_block = 16;
  config.cache_dir = std::filesystem::path(testing::TempDir()) / "nereid_encoder_test";
  return config;
}

}  // namespace nereid::runtime::exactness
