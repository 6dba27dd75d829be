// Requests for benchmarks: files in the format of trtllm-bench and prepare_dataset.py, one JSON
// object a line, and random ones by lengths.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::cli {

// {"task_id": 0, "prompt": "...", "output_tokens": 128}, or "input_ids" (old: "logits") with token
// ids instead of the prompt.
struct BenchRequest {
  int64_t task_id = -1;
  std::string prompt;
  std::vector<int32_t> input_ids;
  int64_t output_tokens = 0;
};

// InvalidArgument names the line and the field: neither or both of prompt and input_ids, an empty
// one, output_tokens missing or not positive, images ("media_paths"), adapters ("lora_request").
StatusOr<std::vector<BenchRequest>> parse_dataset(std::string_view text);
// parse_dataset() for a file of at most 1 GiB; errors begin with its path.
StatusOr<std::vector<BenchRequest>> read_dataset(const std::filesystem::path& path);
json::object dataset_line(const BenchRequest& request);

// Normally distributed token counts for `count` requests, determined by seed and lane.
std::vector<int64_t> normal_lengths(int64_t count, double mean, double stdev, uint64_t seed,
                                    uint64_t lane);
std::vector<int64_t> uniform_lengths(int64_t count, int64_t low, int64_t high, uint64_t seed,
                                     uint64_t lane);

// `count` random ids in [0, vocab_size), vocab_size > 0.
std::vector<int32_t> random_ids(int64_t count, int32_t vocab_size, uint64_t seed, uint64_t lane);
// Text of `count` tokens by `tokenizer` (approximately where no random text has that length);
// without one, `count` short words.
std::string random_text(int64_t count, const text::Tokenizer* tokenizer, uint64_t seed,
                        uint64_t lane);

}  // namespace nereid::cli
