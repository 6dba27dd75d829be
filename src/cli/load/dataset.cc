#include "cli/load/dataset.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/file.h"
#include "base/rng.h"

namespace nereid::cli {
namespace {

constexpr size_t kMaxDatasetBytes = size_t{1} << 30;
constexpr int64_t kMaxOutputTokens = 1 << 30;

Status read_ids(const json::value& value, std::vector<int32_t>& ids) {
  const json::array* const array = value.if_array();
  if (!array) return invalid_argument("input_ids: is not a list of token ids");
  for (const json::value& item : *array) {
    if (!item.is_int64() || item.get_int64() < 0 ||
        item.get_int64() > std::numeric_limits<int32_t>::max()) {
      return invalid_argument("input_ids: {} is no token id", json::serialize(item).substr(0, 40));
    }
    ids.push_back(static_cast<int32_t>(item.get_int64()));
  }
  return ok();
}

StatusOr<BenchRequest> read_line(std::string_view line) {
  ASSIGN_OR_RETURN(const json::value document, parse_json(line));
  if (!document.is_object()) return invalid_argument("is not a JSON object");
  const json::object& object = document.get_object();
  for (const char* other : {"media_paths", "lora_request"}) {
    if (const json::value* value = object.if_contains(other); value && !value->is_null())
      return unsupported("{}: is not supported yet; allowed: leave it out", other);
  }
  BenchRequest request;
  if (const json::value* id = object.if_contains("task_id"); id && id->is_int64())
    request.task_id = id->get_int64();
  const json::value* ids = object.if_contains("input_ids");
  if (!ids || ids->is_null()) ids = object.if_contains("logits");
  if (ids && !ids->is_null()) RETURN_IF_ERROR(read_ids(*ids, request.input_ids));
  if (const json::value* prompt = object.if_contains("prompt"); prompt && !prompt->is_null()) {
    if (!prompt->is_string()) return invalid_argument("prompt: is not text");
    request.prompt = prompt->get_string();
  }
  if (request.prompt.empty() == request.input_ids.empty())
    return invalid_argument("one of prompt and input_ids is needed, and must not be empty");
  const json::value* const output = object.if_contains("output_tokens");
  if (!output) return invalid_argument("output_tokens: is missing");
  if (!output->is_int64() || output->get_int64() < 1 || output->get_int64() > kMaxOutputTokens)
    return invalid_argument("output_tokens: {} is not in [1, {}]",
                            json::serialize(*output).substr(0, 40), kMaxOutputTokens);
  request.output_tokens = output->get_int64();
  return request;
}

// Uniform in (0, 1).
double open_uniform(uint64_t seed, uint64_t index, uint64_t lane) {
  const auto bits = philox(seed, index, lane);
  const uint64_t wide = (static_cast<uint64_t>(bits[0]) << 32) | bits[1];
  return (static_cast<double>(wide >> 12) + 0.5) * 0x1.0p-52;
}

constexpr const char* kWords[] = {"the", "of",   "and",  "to",   "in",   "is",   "that", "it",
                                  "was", "for",  "on",   "are",  "as",   "with", "his",  "they",
                                  "at",  "be",   "this", "from", "have", "or",   "one",  "had",
                                  "by",  "word", "but",  "not",  "what", "all",  "were", "we"};

}  // namespace

StatusOr<std::vector<BenchRequest>> parse_dataset(std::string_view text) {
  std::vector<BenchRequest> requests;
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    auto request = read_line(line);
    if (!request.ok()) return annotate(request.status(), fmt::format("line {}", number));
    requests.push_back(*std::move(request));
  }
  if (requests.empty()) return invalid_argument("there is no request");
  return requests;
}

StatusOr<std::vector<BenchRequest>> read_dataset(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxDatasetBytes));
  auto requests = parse_dataset(text);
  if (!requests.ok()) return annotate(requests.status(), path.string());
  return requests;
}

json::object dataset_line(const BenchRequest& request) {
  json::object line = {{"task_id", request.task_id}};
  if (request.input_ids.empty()) {
    line["prompt"] = request.prompt;
  } else {
    line["input_ids"] = json::value_from(request.input_ids);
  }
  line["output_tokens"] = request.output_tokens;
  return line;
}

std::vector<int64_t> normal_lengths(int64_t count, double mean, double stdev, uint64_t seed,
                                    uint64_t lane) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) {
    // Box-Muller transform.
    const double radius = std::sqrt(-2 * std::log(open_uniform(seed, 2 * i, lane)));
    const double angle = 2 * std::numbers::pi * open_uniform(seed, 2 * i + 1, lane);
    out.push_back(std::max<int64_t>(1, std::llround(mean + stdev * radius * std::cos(angle))));
  }
  return out;
}

std::vector<int64_t> uniform_lengths(int64_t count, int64_t low, int64_t high, uint64_t seed,
                                     uint64_t lane) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) {
    const double span = static_cast<double>(high - low + 1);
    const auto step = static_cast<int64_t>(open_uniform(seed, i, lane) * span);
    out.push_back(std::min(high, low + step));
  }
  return out;
}

std::vector<int32_t> random_ids(int64_t count, int32_t vocab_size, uint64_t seed, uint64_t lane) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(
        static_cast<int32_t>(philox(seed, i, lane)[0] % static_cast<uint32_t>(vocab_size)));
  }
  return ids;
}

std::string random_text(int64_t count, const text::Tokenizer* tokenizer, uint64_t seed,
                        uint64_t lane) {
  std::string text;
  if (!tokenizer) {
    for (int64_t i = 0; i < count; ++i) {
      text += (i ? " " : "");
      text += kWords[philox(seed, i, lane)[0] % std::size(kWords)];
    }
    return text;
  }
  // Random tokens seldom survive decoding and encoding, so the text is cut or extended until
  // its length is right.
  std::vector<int32_t> ids;
  uint64_t next = 0;
  for (int attempt = 0; attempt < 16; ++attempt) {
    while (static_cast<int64_t>(ids.size()) < count) {
      const auto id = static_cast<int32_t>(philox(seed, next++, lane)[0] %
                                           static_cast<uint32_t>(tokenizer->vocab_size()));
      if (!tokenizer->is_special(id) && !tokenizer->token_bytes(id).empty()) ids.push_back(id);
      // Nearly all tokens have no text.
      if (next > static_cast<uint64_t>(count) * 64 + 4096) return text;
    }
    ids.resize(static_cast<size_t>(count));
    text = tokenizer->decode(ids, /*skip_special_tokens=*/true);
    auto again = tokenizer->encode(text, {.add_special_tokens = false});
    if (!again.ok()) return text;
    ids = *std::move(again);
    if (static_cast<int64_t>(ids.size()) == count) return text;
  }
  return text;
}

}  // namespace nereid::cli
