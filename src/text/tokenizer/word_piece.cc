#include "text/tokenizer/word_piece.h"

#include "text/unicode/utf8.h"

namespace nereid::text {

namespace {

constexpr size_t kMaxPrefixBytes = 64;

}  // namespace

WordPiece::WordPiece(Vocab vocab, int32_t unknown, std::string_view prefix, int64_t max_characters)
    : Model(std::move(vocab)), unknown_(unknown), max_characters_(max_characters) {
  std::vector<std::pair<std::string_view, int32_t>> initial, continuing;
  for (const auto& [token, id] : vocab_.ids()) {
    const std::string_view text = token;
    initial.emplace_back(text, id);
    if (text.starts_with(prefix)) continuing.emplace_back(text.substr(prefix.size()), id);
  }
  initial_ = Trie(std::move(initial));
  continuing_ = Trie(std::move(continuing));
}

StatusOr<std::unique_ptr<WordPiece>> WordPiece::from_json(const JsonNode& spec) {
  ASSIGN_OR_RETURN(Vocab vocab, Vocab::from_json(spec["vocab"]));
  ASSIGN_OR_RETURN(const std::string_view name, spec["unk_token"].string("[UNK]"));
  const auto unknown = vocab.id(name);
  if (!unknown) return spec["unk_token"].wrong("a token of the vocabulary ([UNK] when missing)");
  std::string_view prefix = "##";
  if (!spec["continuing_subword_prefix"].is_null()) {
    ASSIGN_OR_RETURN(prefix, spec["continuing_subword_prefix"].bounded_string(kMaxPrefixBytes));
  }
  ASSIGN_OR_RETURN(const int64_t most, spec["max_input_chars_per_word"].integer(100, 0, INT64_MAX));
  return std::make_unique<WordPiece>(std::move(vocab), *unknown, prefix, most);
}

Status WordPiece::encode(std::string_view word, EncodeScratch& scratch,
                         std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  bool known = static_cast<int64_t>(utf8_length(word)) <= max_characters_;
  for (std::string_view rest = word; known && !rest.empty();) {
    const Trie::Match match = (rest.size() == word.size() ? initial_ : continuing_).longest(rest);
    RETURN_IF_ERROR(scratch.work->charge(match.walked));
    known = match.length > 0;
    if (!known) break;
    ids.push_back(match.value);
    rest.remove_prefix(match.length);
  }
  if (!known) {
    ids.resize(before);
    ids.push_back(unknown_);
  }
  return ok();
}

}  // namespace nereid::text
