#include "text/tokenizer/tokenizer.h"

#include <mutex>

#include "text/tokenizer/tokenizer_parts.h"
#include "text/unicode/utf8.h"

namespace nereid::text {

namespace {

constexpr size_t kWordsAtATime = 1024;  // a batch whose word spans stay in the nearest cache

// Scratch memory taken from the tokenizer's pool for one text.
class PooledScratch {
 public:
  explicit PooledScratch(const TokenizerParts& parts) : parts_(parts) {
    std::lock_guard lock(parts.mutex);
    if (!parts.idle.empty()) {
      scratch_ = std::move(parts.idle.back());
      parts.idle.pop_back();
    }
    if (scratch_ == nullptr) scratch_ = std::make_unique<EncodeScratch>();
  }
  ~PooledScratch() {
    free_if_large(scratch_->path);
    free_if_large(scratch_->symbols);
    free_if_large(scratch_->heap);
    free_if_large(scratch_->words);
    std::lock_guard lock(parts_.mutex);
    parts_.idle.push_back(std::move(scratch_));
  }
  EncodeScratch& operator*() { return *scratch_; }

 private:
  static constexpr size_t kMaxKept = size_t{1} << 16;  // elements
  template <class T>
  static void free_if_large(std::vector<T>& list) {
    if (list.capacity() > kMaxKept) std::vector<T>().swap(list);
  }
  const TokenizerParts& parts_;
  std::unique_ptr<EncodeScratch> scratch_;
};

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::from_json(const json::value& tokenizer,
                                                                const json::value& config) {
  ASSIGN_OR_RETURN(TokenizerPartsPtr parts, read_tokenizer_json(tokenizer, config));
  RETURN_IF_ERROR(parts->finish());
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(parts)));
}

StatusOr<std::vector<int32_t>> Tokenizer::encode(std::string_view text,
                                                 const EncodeOptions& options) const {
  if (text.size() > kMaxTextBytes) {
    return invalid_argument("text of {} bytes is longer than {}", text.size(), kMaxTextBytes);
  }
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = repair_utf8(text);
    text = repaired;
  }
  EncodeWork work(text.size(), options.is_unwanted);
  std::vector<AddedTokenFinder::Match> matches;
  RETURN_IF_ERROR(parts_->raw_finder.split(text, options.parse_special, work, matches));
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 8);
  if (options.add_special_tokens) ids = parts_->post_processor.prefix();
  PooledScratch scratch(*parts_);
  (*scratch).work = &work;
  for (const AddedTokenFinder::Match& match : matches) {
    if (match.token != nullptr) {
      ids.push_back(match.token->id);
    } else {
      const bool at_start = match.text.data() == text.data();
      RETURN_IF_ERROR(encode_piece(match.text, at_start, options, *scratch, ids));
    }
  }
  if (options.add_special_tokens) {
    const std::vector<int32_t>& suffix = parts_->post_processor.suffix();
    ids.insert(ids.end(), suffix.begin(), suffix.end());
  }
  return ids;
}

// Encodes text between the added tokens that are searched in the input itself.
Status Tokenizer::encode_piece(std::string_view text, bool at_start, const EncodeOptions& options,
                               EncodeScratch& scratch, std::vector<int32_t>& ids) const {
  EncodeWork& work = *scratch.work;
  NormalText normal{{}, &work};
  if (!parts_->normalizer.empty()) {
    normal.text = text;
    normal.at_start = at_start;
    RETURN_IF_ERROR(parts_->normalizer.run(normal));
    text = normal.text;
    at_start = normal.at_start;
  }
  std::vector<AddedTokenFinder::Match> matches;
  RETURN_IF_ERROR(parts_->normalized_finder.split(text, options.parse_special, work, matches));
  Pieces pieces;
  for (const AddedTokenFinder::Match& match : matches) {
    if (match.token != nullptr) {
      ids.push_back(match.token->id);
      continue;
    }
    if (const auto rule = parts_->pre_tokenizer.only_rule()) {
      RETURN_IF_ERROR(encode_words(*rule, match.text, scratch, ids));
      continue;
    }
    const bool first = at_start && match.text.data() == text.data();
    RETURN_IF_ERROR(parts_->pre_tokenizer.run(match.text, first, work, pieces));
    for (size_t i = 0; i < pieces.spans.size(); ++i) {
      RETURN_IF_ERROR(work.charge(pieces.piece(i).size()));
      RETURN_IF_ERROR(parts_->model->encode(pieces.piece(i), scratch, ids));
    }
  }
  return ok();
}

Status Tokenizer::encode_words(WordRule rule, std::string_view text, EncodeScratch& scratch,
                               std::vector<int32_t>& ids) const {
  std::vector<Span>& words = scratch.words;
  for (size_t at = 0; at < text.size();) {
    words.clear();
    const size_t begin = at;
    at = scan_some_words(rule, text, at, kWordsAtATime, words);
    RETURN_IF_ERROR(scratch.work->charge(at - begin));
    for (const Span& word : words) {
      const std::string_view piece = text.substr(word.begin, word.end - word.begin);
      RETURN_IF_ERROR(parts_->model->encode(piece, scratch, ids));
    }
  }
  return ok();
}

size_t Tokenizer::text_bytes(std::span<const int32_t> ids) const {
  size_t sum = 0;
  for (const int32_t id : ids) sum += token_bytes(id).size();
  return sum;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string out;
  out.reserve(text_bytes(ids));
  if (parts_->decoder.is_byte_level()) {
    Utf8Stream stream;
    for (const int32_t id : ids) {
      if (!(skip_special_tokens && is_special(id))) stream.push(token_bytes(id), out);
    }
    stream.finish(out);
    return out;
  }
  Decoder::Stream stream(parts_->decoder, /*continues=*/false);
  for (const int32_t id : ids) {
    if (const auto text = token_text(id, skip_special_tokens)) stream.push(*text, out);
  }
  stream.finish(out);
  return out;
}

std::optional<std::string_view> Tokenizer::token_text(int32_t id, bool skip_special_tokens) const {
  if (id < 0 || id >= vocab_size() || !parts_->known[id]) return std::nullopt;
  if (skip_special_tokens && parts_->special[id]) return std::nullopt;
  return parts_->texts[id];
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  return id < 0 || id >= vocab_size() ? std::string_view() : parts_->bytes[id];
}

std::optional<int32_t> Tokenizer::token_id(std::string_view token) const {
  return parts_->token_id(token);
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && parts_->special[id];
}

int32_t Tokenizer::vocab_size() const { return parts_->size(); }

}  // namespace nereid::text
