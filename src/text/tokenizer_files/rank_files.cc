// Rank files, byte strings by rank: tiktoken's, and Mistral's tekken.json. Two tokens merge if
// their concatenation is a token; the lowest rank merges first.
#include <algorithm>
#include <charconv>
#include <iterator>

#include "base/base64.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/tokenizer_parts.h"
#include "text/tokenizer/word_patterns.h"

namespace nereid::text {

namespace {

constexpr size_t kMaxRankBytes = 1024;  // of one token

// Properties not in a rank file, by file name. The first row is for every other name.
struct RankFileRow {
  std::string_view name;
  std::string_view words;
};
constexpr RankFileRow kRankFiles[] = {{"", kCl100kPattern},
                                      {"gpt2.tiktoken", kGpt2Pattern},
                                      {"multilingual.tiktoken", kGpt2Pattern},
                                      {"qwen.tiktoken", kQwen2Pattern},
                                      {"tiktoken.model", kKimiPattern}};

// Byte strings with their ids, in order of rank.
class Ranks {
 public:
  Status add(std::string_view bytes, int32_t id) {
    if (bytes.size() > kMaxRankBytes) {
      return invalid_argument("token of {} bytes: at most {} are allowed", bytes.size(),
                              kMaxRankBytes);
    }
    if (bytes.empty()) return ok();  // the id stays without a token
    if (!ids_.emplace(bytes, id).second) return invalid_argument("token {}: is there twice", id);
    std::string letters;
    append_byte_letters(bytes, letters);
    return vocab_.add(letters, id);
  }

  // Byte-level BPE with the word pattern `words`.
  StatusOr<TokenizerPartsPtr> make_parts(std::string_view words) && {
    auto parts = std::make_unique<TokenizerParts>();
    const json::value split = {
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"},
           {"pattern", {{"Regex", json::string_view(words.data(), words.size())}}},
           {"behavior", "Removed"},
           {"invert", true}},
          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
    ASSIGN_OR_RETURN(parts->pre_tokenizer, PreTokenizer::from_json(JsonNode(split, "config")));
    const json::value decoder = {{"type", "ByteLevel"}};
    ASSIGN_OR_RETURN(parts->decoder, Decoder::from_json(JsonNode(decoder, "decoder")));
    std::vector<MergeRule> merges;
    for (const auto& [bytes, id] : ids_) add_merges(bytes, id, merges);
    BpeOptions options;
    options.ignore_merges = true;
    parts->model = std::make_unique<Bpe>(std::move(vocab_), merges, std::move(options));
    return parts;
  }

 private:
  void add_merges(std::string_view bytes, int32_t id, std::vector<MergeRule>& merges) const {
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = ids_.find(bytes.substr(0, cut));
      if (left == ids_.end()) continue;
      const auto right = ids_.find(bytes.substr(cut));
      if (right == ids_.end()) continue;
      merges.push_back({left->second, right->second, id, static_cast<uint32_t>(id)});
    }
  }

  StringMap<int32_t> ids_;
  Vocab vocab_;
};

struct RankLine {
  std::string bytes;
  int32_t rank;
};

// A line: BASE64 SPACE RANK.
StatusOr<RankLine> read_line(std::string_view line) {
  const size_t space = line.find(' ');
  RankLine result{"", -1};
  if (space != line.npos) {
    const char* end = line.data() + line.size();
    const auto [stop, error] = std::from_chars(line.data() + space + 1, end, result.rank);
    if (error != std::errc() || stop != end) result.rank = -1;
  }
  if (result.rank < 0) {
    return invalid_argument("'{}': must be base64, a space and a rank", line.substr(0, 64));
  }
  // Whisper's files mark an omitted rank with "=".
  if (line.substr(0, space) != "=") {
    ASSIGN_OR_RETURN(result.bytes, decode_base64(line.substr(0, space)));
  }
  return result;
}

AddedToken special_token(std::string content, int32_t id) {
  AddedToken token;
  token.content = std::move(content);
  token.id = id;
  token.normalized = false;
  token.special = true;
  return token;
}

// The special tokens that Llama 3's own code puts behind its 128,000 ranks.
Status add_llama3_tokens(int32_t first, TokenizerParts& parts) {
  std::vector<std::string> names = {"<|begin_of_text|>",
                                    "<|end_of_text|>",
                                    "<|reserved_special_token_0|>",
                                    "<|reserved_special_token_1|>",
                                    "<|finetune_right_pad_id|>",
                                    "<|step_id|>",
                                    "<|start_header_id|>",
                                    "<|end_header_id|>",
                                    "<|eom_id|>",
                                    "<|eot_id|>",
                                    "<|python_tag|>"};
  while (names.size() < 256) {
    names.push_back(fmt::format("<|reserved_special_token_{}|>", names.size() - 9));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const int32_t id = first + static_cast<int32_t>(i);
    if (parts.token_id(names[i]) || parts.added_by_id.contains(id)) continue;
    RETURN_IF_ERROR(parts.add(special_token(names[i], id)));
  }
  parts.post_processor.add_prefix(first);
  return ok();
}

Status add_qwen_tokens(int32_t first, TokenizerParts& parts) {
  std::vector<std::string> names = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  for (int i = 0; i < 205; ++i) names.push_back(fmt::format("<|extra_{}|>", i));
  for (size_t i = 0; i < names.size(); ++i) {
    if (parts.token_id(names[i])) continue;
    RETURN_IF_ERROR(parts.add(special_token(names[i], first + static_cast<int32_t>(i))));
  }
  return ok();
}

// The special tokens of a tekken.json by rank. Files before version 7 do not list them;
// they are mistral-common's.
StatusOr<std::vector<std::string>> read_tekken_names(const JsonNode& list, int64_t num_special) {
  static constexpr const char* kUnlisted[] = {"<unk>",
                                              "<s>",
                                              "</s>",
                                              "[INST]",
                                              "[/INST]",
                                              "[AVAILABLE_TOOLS]",
                                              "[/AVAILABLE_TOOLS]",
                                              "[TOOL_RESULTS]",
                                              "[/TOOL_RESULTS]",
                                              "[TOOL_CALLS]",
                                              "[IMG]",
                                              "<pad>",
                                              "[IMG_BREAK]",
                                              "[IMG_END]",
                                              "[PREFIX]",
                                              "[MIDDLE]",
                                              "[SUFFIX]",
                                              "[SYSTEM_PROMPT]",
                                              "[/SYSTEM_PROMPT]",
                                              "[TOOL_CONTENT]"};
  std::vector<std::string> names(static_cast<size_t>(num_special));
  if (list.is_null()) {
    for (size_t i = 0; i < std::min(names.size(), std::size(kUnlisted)); ++i)
      names[i] = kUnlisted[i];
    return names;
  }
  ASSIGN_OR_RETURN(const json::array* entries, list.array());
  for (size_t i = 0; i < entries->size(); ++i) {
    const JsonNode place = list[i]["rank"];
    ASSIGN_OR_RETURN(const int64_t rank, place.integer(-1, 0, num_special - 1));
    if (rank < 0) return place.wrong("the special token's id");
    ASSIGN_OR_RETURN(names[static_cast<size_t>(rank)],
                     list[i]["token_str"].bounded_string(AddedTokenFinder::kMaxContentBytes));
  }
  return names;
}

}  // namespace

bool looks_like_tiktoken(std::string_view bytes) {
  return read_line(bytes.substr(0, bytes.find('\n'))).ok();
}

StatusOr<TokenizerPartsPtr> read_tiktoken(std::string_view bytes, std::string_view name,
                                          const json::value& config) {
  Ranks ranks;
  int32_t count = 0;
  for (size_t line = 1; !bytes.empty(); ++line) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    std::string_view text = bytes.substr(0, end);
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text.empty()) continue;
    auto entry = read_line(text);
    const Status status = entry.ok() ? ranks.add(entry->bytes, entry->rank) : entry.status();
    if (!status.ok()) return annotate(status, fmt::format("line {}", line));
    count = std::max(count, entry->rank + 1);
  }
  const RankFileRow* row = kRankFiles;
  for (const RankFileRow& known : kRankFiles) {
    if (known.name == name) row = &known;
  }
  ASSIGN_OR_RETURN(TokenizerPartsPtr parts, std::move(ranks).make_parts(row->words));
  RETURN_IF_ERROR(parts->read_config(JsonNode(config, "tokenizer_config")));
  constexpr int32_t kLlama3Ranks = 128000;
  if (row == kRankFiles && count == kLlama3Ranks) RETURN_IF_ERROR(add_llama3_tokens(count, *parts));
  if (row->words == kQwen2Pattern) RETURN_IF_ERROR(add_qwen_tokens(count, *parts));
  return parts;
}

// {"config": {"pattern", "default_vocab_size", "default_num_special_tokens"}, "vocab": [{"rank",
// "token_bytes"}], "special_tokens": [{"rank", "token_str", "is_control"}]}. Ids are ranks plus the
// number of special tokens.
StatusOr<TokenizerPartsPtr> read_tekken(const json::value& document) {
  const JsonNode root(document, "");
  const JsonNode config = root["config"], vocab = root["vocab"];
  ASSIGN_OR_RETURN(const std::string_view words,
                   config["pattern"].bounded_string(Pattern::kMaxBytes));
  ASSIGN_OR_RETURN(const int64_t num_special,
                   config["default_num_special_tokens"].integer(0, 0, 1 << 16));
  ASSIGN_OR_RETURN(const json::array* entries, vocab.array());
  ASSIGN_OR_RETURN(const int64_t size,
                   config["default_vocab_size"].integer(
                       static_cast<int64_t>(entries->size()) + num_special, num_special + 1,
                       static_cast<int64_t>(entries->size()) + num_special));
  Ranks ranks;
  for (size_t i = 0; i < static_cast<size_t>(size - num_special); ++i) {
    const JsonNode entry = vocab[i];
    ASSIGN_OR_RETURN(const int64_t rank, entry["rank"].integer(-1, 0, kMaxTokenId));
    if (rank != static_cast<int64_t>(i))
      return entry["rank"].wrong("the entry's place in the list");
    ASSIGN_OR_RETURN(const std::string_view text, entry["token_bytes"].string());
    const auto bytes = decode_base64(text);
    const Status status =
        bytes.ok() ? ranks.add(*bytes, static_cast<int32_t>(rank + num_special)) : bytes.status();
    if (!status.ok()) return annotate(status, entry["token_bytes"].path());
  }
  ASSIGN_OR_RETURN(TokenizerPartsPtr parts, std::move(ranks).make_parts(words));
  ASSIGN_OR_RETURN(std::vector<std::string> names,
                   read_tekken_names(root["special_tokens"], num_special));
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) names[i] = fmt::format("<SPECIAL_{}>", i);
    RETURN_IF_ERROR(parts->add(special_token(names[i], static_cast<int32_t>(i))));
  }
  if (const auto bos = parts->token_id("<s>")) parts->post_processor.add_prefix(*bos);
  return parts;
}

}  // namespace nereid::text
