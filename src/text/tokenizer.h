// Byte-level BPE tokenizer read from a Hugging Face tokenizer.json: text to token ids and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace nereid::text {

struct EncodeOptions {
  // Run the post-processor (BOS, EOS and the like). Off for rendered chat templates.
  bool add_special_tokens = true;
  // Text that spells a special token becomes its id. When off it is tokenised like other text;
  // added tokens that are not special are recognised either way.
  bool parse_special = true;
};

// Immutable once loaded; every member is safe to call from many threads at once.
class Tokenizer {
 public:
  // Longest text that encode() takes, in bytes.
  static constexpr size_t kMaxTextBytes = size_t{1} << 28;

  // Reads tokenizer.json and, when there, tokenizer_config.json from `model_dir`. Unimplemented
  // names the component type that this tokenizer family does not have; InvalidArgument names the
  // damaged field.
  static StatusOr<std::shared_ptr<const Tokenizer>> load(const std::filesystem::path& model_dir);

  // The same from parsed documents; `config` (tokenizer_config.json) may be null.
  static StatusOr<std::shared_ptr<const Tokenizer>> from_json(const json::value& tokenizer,
                                                              const json::value& config = nullptr);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Each maximal invalid UTF-8 sequence in `text` counts as one U+FFFD, as a lossy conversion ahead
  // of the reference tokenizer would make it. InvalidArgument when the text is longer than
  // kMaxTextBytes or exhausts the match limits of the model's regular expressions.
  StatusOr<std::vector<int32_t>> encode(std::string_view text,
                                        const EncodeOptions& options = {}) const;

  // Ids that have no token are skipped. Bytes that do not form UTF-8 become U+FFFD, one per maximal
  // invalid sequence. `skip_special_tokens` drops special tokens, not all added ones.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  // The bytes that the token adds to the text; empty for ids without a token. Not always UTF-8.
  std::string_view token_bytes(int32_t id) const;
  // The id of the token as written in the vocabulary (byte-level alphabet) or as an added token.
  std::optional<int32_t> token_id(std::string_view token) const;
  bool is_special(int32_t id) const;
  // One more than the largest id.
  int32_t vocab_size() const;

 private:
  struct Parts;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);
  std::unique_ptr<const Parts> parts_;
};

}  // namespace nereid::text
