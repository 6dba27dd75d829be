// Tokenizers of all published kinds: text to token ids and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace nereid::text {

struct EncodeScratch;
enum class WordRule;
struct TokenizerParts;

struct EncodeOptions {
  // Runs the post-processor (BOS, EOS and the like). Off for rendered chat templates.
  bool add_special_tokens = true;
  // Text that spells a special token becomes its id. When off it is tokenised like other text;
  // added tokens that are not special are recognised either way.
  bool parse_special = true;
  // Called every few milliseconds, if set; true ends the encoding (Cancelled).
  std::function<bool()> is_unwanted = {};
};

// Immutable once loaded; thread safe.
class Tokenizer {
 public:
  // Longest text that encode() takes, in bytes.
  static constexpr size_t kMaxTextBytes = size_t{1} << 28;
  // Most memory of encode() per byte of a text while it runs, its ids included.
  static constexpr size_t kScratchPerByte = 64;

  // `path` is a file, or a model directory that is searched, in this order, for: tokenizer.json;
  // tekken.json; tokenizer.model or spiece.model (SentencePiece, or tiktoken ranks); *.tiktoken or
  // tiktoken.model; vocab.json with merges.txt; vocab.txt; *.gguf. tokenizer_config.json,
  // special_tokens_map.json and added_tokens.json beside it are read too. Errors name file and path
  // in it, value and what is allowed; NotFound lists the files searched for.
  static StatusOr<std::shared_ptr<const Tokenizer>> load(const std::filesystem::path& path);
  // The file that load() reads in `model`, or a GGUF file itself; empty without one.
  static std::filesystem::path file_of(const std::filesystem::path& model);
  static bool has_files(const std::filesystem::path& model) { return !file_of(model).empty(); }
  // 16 hex digits that change with the files that load() and chat templates read in `model`, a
  // directory or a file: a hash of contents; of size and time for very large files.
  static std::string files_hash(const std::filesystem::path& model);

  // From a parsed tokenizer.json; `config` (tokenizer_config.json) may be null.
  static StatusOr<std::shared_ptr<const Tokenizer>> from_json(const json::value& tokenizer,
                                                              const json::value& config = nullptr);

  // From the metadata of a GGUF file.
  static StatusOr<std::shared_ptr<const Tokenizer>> from_gguf(const json::object& metadata);

  // From the bytes of a SentencePiece model or of a file of tiktoken ranks called `name`.
  static StatusOr<std::shared_ptr<const Tokenizer>> from_model_file(
      std::string_view bytes, std::string_view name, const json::value& config = nullptr);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Each maximal invalid UTF-8 sequence in `text` counts as one U+FFFD, as after a lossy conversion
  // for the reference tokenizer. InvalidArgument when the text is longer than kMaxTextBytes or
  // exhausts the match limits of the model's regular expressions; ResourceExhausted when the
  // tokenizer's stages take more than EncodeWork allows.
  StatusOr<std::vector<int32_t>> encode(std::string_view text,
                                        const EncodeOptions& options = {}) const;

  // Ids without a token are skipped. For byte-level tokens, bytes that do not form UTF-8
  // become U+FFFD, one per maximal invalid sequence. `skip_special_tokens` drops special
  // tokens, not all added ones.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  // The bytes that the token adds to a text behind others; empty for ids without a
  // token. Not always UTF-8.
  std::string_view token_bytes(int32_t id) const;
  // An estimate of the bytes that decode() would make of `ids`.
  size_t text_bytes(std::span<const int32_t> ids) const;
  // The id of the token as written in the vocabulary or as an added token.
  std::optional<int32_t> token_id(std::string_view token) const;
  bool is_special(int32_t id) const;
  // One more than the largest id.
  int32_t vocab_size() const;

 private:
  friend class Detokenizer;
  explicit Tokenizer(std::unique_ptr<const TokenizerParts> parts);
  Status encode_piece(std::string_view text, bool at_start, const EncodeOptions& options,
                      EncodeScratch& scratch, std::vector<int32_t>& ids) const;
  Status encode_words(WordRule rule, std::string_view text, EncodeScratch& scratch,
                      std::vector<int32_t>& ids) const;
  // The decoder's input for `id`; nullopt when the id has no token or is skipped.
  std::optional<std::string_view> token_text(int32_t id, bool skip_special_tokens) const;
  std::unique_ptr<const TokenizerParts> parts_;
};

}  // namespace nereid::text
