#include "text/tokenizer/bpe.h"

#include <algorithm>
#include <functional>

#include "text/tokenizer/byte_level.h"
#include "text/unicode/utf8.h"

namespace nereid::text {

namespace {

// Up to this many symbols a linear scan for the lowest rank is faster than a heap.
constexpr size_t kFewSymbols = 24;
constexpr size_t kMergesToCharge = 1024;

// The first space mark after `begin` that follows another character; npos without one.
size_t next_space(std::string_view word, size_t begin) {
  constexpr std::string_view kMark = kSpaceMark;
  bool after_mark = true;
  for (size_t at = begin; at < word.size();) {
    const bool is_mark = word.substr(at).starts_with(kMark);
    if (is_mark && !after_mark) return at;
    after_mark = is_mark;
    at = is_mark ? at + kMark.size() : std::min(word.find(kMark, at), word.size());
  }
  return std::string_view::npos;
}

}  // namespace

Bpe::Bpe(Vocab vocab, const std::vector<MergeRule>& merges, BpeOptions options)
    : Model(std::move(vocab)), options_(std::move(options)) {
  merges_.reserve(merges.size());
  for (const MergeRule& rule : merges) {
    merges_[pair_key(rule.left, rule.right)] = {rule.rank, rule.id};
  }
  by_code_.fill(-1);
  for (char32_t code = 0; code < by_code_.size(); ++code) {
    std::string letter;
    append_utf8(letter, code);
    by_code_[code] = vocab_.id(letter).value_or(-1);
  }
  for (int byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = vocab_.byte_token(static_cast<uint8_t>(byte));
  }
  has_whole_ = !options_.whole.empty();
  if (has_whole_) whole_ = Trie({options_.whole.begin(), options_.whole.end()});
  cuts_at_spaces_ = no_token_crosses_spaces();
}

// If so, the text before a space mark and the text from it on can be encoded independently.
bool Bpe::no_token_crosses_spaces() const {
  if (!options_.prefix.empty() || !options_.suffix.empty() || !vocab_.id(kSpaceMark)) return false;
  const auto crosses = [](const std::string& token) { return next_space(token, 0) != token.npos; };
  return std::ranges::none_of(vocab_.ids(),
                              [&](const auto& entry) { return crosses(entry.first); }) &&
         std::ranges::none_of(options_.whole,
                              [&](const auto& entry) { return crosses(entry.first); });
}

bool Bpe::take_raw_bytes() {
  if (!options_.prefix.empty() || !options_.suffix.empty() || has_whole_) return false;
  std::string letter;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    letter.clear();
    append_byte_letters({&c, 1}, letter);
    const auto id = vocab_.id(letter);
    if (!id) return false;  // these bytes fall back to other tokens
    raw_byte_ids_[byte] = *id;
  }
  raw_ids_.reserve(vocab_.size());
  std::string bytes;
  for (const auto& [token, id] : vocab_.ids()) {
    if (append_bytes_of_letters(token, bytes = "")) raw_ids_.emplace(bytes, id);
  }
  byte_merges_.resize(256 * 256);
  for (size_t pair = 0; pair < byte_merges_.size(); ++pair)
    if (const Merge* merge = find_merge(raw_byte_ids_[pair >> 8], raw_byte_ids_[pair & 0xFF]))
      byte_merges_[pair] = *merge;
  raw_ = true;
  return true;
}

Status Bpe::encode(std::string_view word, EncodeScratch& scratch, std::vector<int32_t>& ids) const {
  if (!cuts_at_spaces_ || WordCache::fits(word)) {
    return encode_word(word, scratch, ids);
  }
  for (size_t begin = 0; begin < word.size();) {
    const size_t end = std::min(next_space(word, begin), word.size());
    RETURN_IF_ERROR(encode_word(word.substr(begin, end - begin), scratch, ids));
    begin = end;
  }
  return ok();
}

Status Bpe::encode_word(std::string_view word, EncodeScratch& scratch,
                        std::vector<int32_t>& ids) const {
  if (!WordCache::fits(word)) return encode_new(word, scratch, ids);
  const WordCache::Key key = WordCache::key_of(word);
  WordCache::Entry& entry = scratch.cache.place(key);
  if (WordCache::holds(entry, key)) {
    for (uint32_t i = 0; i < entry.count; ++i) ids.push_back(entry.ids[i]);  // mostly one
    return ok();
  }
  const size_t before = ids.size();
  RETURN_IF_ERROR(encode_new(word, scratch, ids));
  WordCache::keep(entry, key, ids.data() + before, ids.size() - before);
  return ok();
}

Status Bpe::encode_new(std::string_view word, EncodeScratch& scratch,
                       std::vector<int32_t>& ids) const {
  if (options_.ignore_merges) {
    const StringMap<int32_t>& all = raw_ ? raw_ids_ : vocab_.ids();
    if (const auto whole = all.find(word); whole != all.end()) {
      ids.push_back(whole->second);
      return ok();
    }
  }
  RETURN_IF_ERROR(start_symbols(word, scratch));
  if (scratch.symbols.size() <= kFewSymbols) {
    merge_few(word, scratch);
    for (const auto& symbol : scratch.symbols) ids.push_back(symbol.id);
    return ok();
  }
  RETURN_IF_ERROR(merge_many(scratch));
  for (int32_t i = 0; i >= 0; i = scratch.symbols[i].next) ids.push_back(scratch.symbols[i].id);
  return ok();
}

int32_t Bpe::id_of_character(std::string_view character, char32_t code) const {
  if (code < by_code_.size()) return by_code_[code];
  return vocab_.id(character).value_or(-1);
}

bool Bpe::start_bytes(std::string_view text, EncodeScratch& scratch) const {
  for (const char c : text) {
    if (byte_ids_[static_cast<uint8_t>(c)] < 0) return false;
  }
  for (const char c : text) scratch.symbols.push_back({byte_ids_[static_cast<uint8_t>(c)], 0, 0});
  return true;
}

// One symbol for each character; a character without a token becomes its bytes, the unknown
// token, or nothing. As in the reference, an unknown token is emitted before the next
// character that has a token.
Status Bpe::start_symbols(std::string_view word, EncodeScratch& scratch) const {
  auto& symbols = scratch.symbols;
  symbols.clear();
  if (raw_) {
    for (const char c : word) symbols.push_back({raw_byte_ids_[static_cast<uint8_t>(c)], 0, 0});
    return ok();
  }
  const bool affixed = !options_.prefix.empty() || !options_.suffix.empty();
  std::string with_affixes;
  bool unknown_waits = false;
  const auto flush_unknown = [&] {
    if (unknown_waits) symbols.push_back({*options_.unknown, 0, 0});
    unknown_waits = false;
  };
  for (std::string_view rest = word; !rest.empty();) {
    if (has_whole_) {
      const Trie::Match match = whole_.longest(rest);
      RETURN_IF_ERROR(scratch.work->charge(match.walked));
      if (match.length > 0) {
        flush_unknown();
        symbols.push_back({match.value, 0, 0});
        rest.remove_prefix(match.length);
        continue;
      }
    }
    const Utf8Step step = utf8_step(rest);
    std::string_view character = rest.substr(0, step.length);
    const bool first = rest.size() == word.size();
    rest.remove_prefix(step.length);
    int32_t id = -1;
    if (affixed) {
      with_affixes = fmt::format("{}{}{}", first ? "" : options_.prefix, character,
                                 rest.empty() ? options_.suffix : "");
      character = with_affixes;
      id = vocab_.id(character).value_or(-1);
    } else {
      id = id_of_character(character, step.code);
    }
    if (id >= 0) {
      flush_unknown();
      symbols.push_back({id, 0, 0});
    } else if (!(options_.byte_fallback && start_bytes(character, scratch)) && options_.unknown) {
      if (!options_.fuse_unknown) flush_unknown();
      unknown_waits = true;
    }
  }
  flush_unknown();
  return ok();
}

// Merges with an array of ranks beside the symbols: a scan finds the lowest, and
// later symbols move up.
void Bpe::merge_few(std::string_view word, EncodeScratch& scratch) const {
  auto& symbols = scratch.symbols;
  uint32_t ranks[kFewSymbols];
  int32_t merged[kFewSymbols];
  size_t count = symbols.size();
  const auto take = [&](size_t i, const Merge& merge) {
    ranks[i] = merge.rank;
    merged[i] = merge.id;
  };
  const auto look_up = [&](size_t i) {
    const Merge* merge = i + 1 < count ? find_merge(symbols[i].id, symbols[i + 1].id) : nullptr;
    take(i, merge == nullptr ? Merge() : *merge);
  };
  if (raw_)
    for (size_t i = 0; i + 1 < count; ++i)
      take(i, byte_merges_[static_cast<size_t>(static_cast<uint8_t>(word[i])) << 8 |
                           static_cast<uint8_t>(word[i + 1])]);
  else
    for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  if (count > 0) take(count - 1, Merge());  // no right neighbour
  while (count > 1) {
    const size_t best = static_cast<size_t>(std::min_element(ranks, ranks + count - 1) - ranks);
    if (merged[best] < 0) break;
    symbols[best].id = merged[best];
    for (size_t i = best + 1; i + 1 < count; ++i) {
      symbols[i] = symbols[i + 1];
      ranks[i] = ranks[i + 1];
      merged[i] = merged[i + 1];
    }
    --count;
    look_up(best);
    if (best > 0) look_up(best - 1);
  }
  symbols.resize(count);
}

void Bpe::push_pair(EncodeScratch& scratch, int32_t left) const {
  const EncodeScratch::Symbol& symbol = scratch.symbols[left];
  const Merge* merge = find_merge(symbol.id, scratch.symbols[symbol.next].id);
  if (merge == nullptr) return;
  scratch.heap.push_back(static_cast<uint64_t>(merge->rank) << 32 | static_cast<uint32_t>(left));
}

Status Bpe::merge_many(EncodeScratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const auto count = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols[i].previous = i - 1;
    symbols[i].next = i + 1 < count ? i + 1 : -1;
  }
  heap.clear();
  for (int32_t i = 0; i + 1 < count; ++i) push_pair(scratch, i);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto push = [&](int32_t left) {
    const size_t size = heap.size();
    push_pair(scratch, left);
    if (heap.size() > size) std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  for (size_t taken = 1; !heap.empty(); ++taken) {
    if (taken % kMergesToCharge == 0) RETURN_IF_ERROR(scratch.work->charge(kMergesToCharge));
    const uint64_t top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const auto left = static_cast<int32_t>(top & 0xFFFFFFFF);
    EncodeScratch::Symbol& symbol = symbols[left];
    if (symbol.id < 0 || symbol.next < 0) continue;
    EncodeScratch::Symbol& right = symbols[symbol.next];
    const Merge* merge = find_merge(symbol.id, right.id);
    if (merge == nullptr || merge->rank != top >> 32) continue;  // stale entry
    symbol.id = merge->id;
    symbol.next = right.next;
    right.id = -1;
    if (symbol.next >= 0) {
      symbols[symbol.next].previous = left;
      push(left);
    }
    if (symbol.previous >= 0) push(symbol.previous);
  }
  return ok();
}

}  // namespace nereid::text
