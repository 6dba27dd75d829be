#include "text/bpe.h"

#include <algorithm>

#include "text/json_fields.h"
#include "text/unicode/utf8.h"

namespace nereid::text {

StatusOr<Bpe> Bpe::from_json(const json::value& model) {
  ASSIGN_OR_RETURN(const json::object* object, as_object(model, "model"));
  ASSIGN_OR_RETURN(const std::string_view type, string_field(*object, "type", "BPE"));
  if (type != "BPE") return unsupported("model type '{}': allowed is BPE", type);
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    ASSIGN_OR_RETURN(const std::string_view value, string_field(*object, affix, ""));
    if (!value.empty()) return unsupported("model field '{}' = '{}': must be empty", affix, value);
  }
  const json::value& dropout = field_or_null(*object, "dropout");
  if (dropout.is_number() && dropout.to_number<double>() != 0.0) {
    return unsupported("model field 'dropout': must be null or 0");
  }
  Bpe bpe;
  RETURN_IF_ERROR(bpe.read_vocab(*object));
  ASSIGN_OR_RETURN(bpe.fuse_unknown_, bool_field(*object, "fuse_unk", false));
  ASSIGN_OR_RETURN(bpe.byte_fallback_, bool_field(*object, "byte_fallback", false));
  ASSIGN_OR_RETURN(bpe.ignore_merges_, bool_field(*object, "ignore_merges", false));
  ASSIGN_OR_RETURN(const std::string_view unknown, string_field(*object, "unk_token", ""));
  if (!unknown.empty()) {
    bpe.unknown_ = bpe.token_id(unknown);
    if (!bpe.unknown_) return invalid_argument("unk_token '{}' is not in the vocabulary", unknown);
  }
  ASSIGN_OR_RETURN(const json::array* merges, array_field(*object, "merges"));
  RETURN_IF_ERROR(bpe.read_merges(*merges));
  return bpe;
}

Status Bpe::read_vocab(const json::object& model) {
  ASSIGN_OR_RETURN(const json::object* vocab, object_field(model, "vocab"));
  vocab_.reserve(vocab->size());
  for (const auto& entry : *vocab) {
    const std::string_view token(entry.key().data(), entry.key().size());
    ASSIGN_OR_RETURN(const int32_t id,
                     as_token_id(entry.value(), fmt::format("vocab entry '{}'", token)));
    vocab_.emplace(token, id);
  }
  by_code_.fill(-1);
  for (char32_t code = 0; code < by_code_.size(); ++code) {
    std::string letter;
    append_utf8(letter, code);
    by_code_[code] = token_id(letter).value_or(-1);
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = token_id(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
  return ok();
}

Status Bpe::read_merges(const json::array& merges) {
  merges_.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const json::value& merge = merges[i];
    if (const json::string* text = merge.if_string()) {
      const std::string_view line(text->data(), text->size());
      const size_t space = line.find(' ');
      if (space == line.npos || line.find(' ', space + 1) != line.npos) {
        return invalid_argument("merge {} '{}': must be two tokens and one space", i, line);
      }
      RETURN_IF_ERROR(add_merge(line.substr(0, space), line.substr(space + 1), i));
      continue;
    }
    const json::array* pair = merge.if_array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() ||
        !(*pair)[1].is_string()) {
      return invalid_argument("merge {}: must be a string or a pair of strings", i);
    }
    const json::string& left = (*pair)[0].get_string();
    const json::string& right = (*pair)[1].get_string();
    RETURN_IF_ERROR(add_merge({left.data(), left.size()}, {right.data(), right.size()}, i));
  }
  return ok();
}

Status Bpe::add_merge(std::string_view left, std::string_view right, size_t index) {
  const std::string joined = fmt::format("{}{}", left, right);
  for (const std::string_view token : {left, right, std::string_view(joined)}) {
    if (!vocab_.contains(token)) {
      return invalid_argument("merge {}: token '{}' is not in the vocabulary", index, token);
    }
  }
  merges_[pair_key(*token_id(left), *token_id(right))] = {static_cast<uint32_t>(index),
                                                          *token_id(joined)};
  return ok();
}

std::optional<int32_t> Bpe::token_id(std::string_view token) const {
  const auto found = vocab_.find(token);
  if (found == vocab_.end()) return std::nullopt;
  return found->second;
}

bool Bpe::start_bytes(std::string_view character, Scratch& scratch) const {
  for (const char c : character) {
    if (byte_ids_[static_cast<uint8_t>(c)] < 0) return false;
  }
  for (const char c : character) {
    scratch.symbols.push_back({byte_ids_[static_cast<uint8_t>(c)], 0, 0});
  }
  return true;
}

// One symbol per character; a character without a token becomes its bytes, the unknown token, or
// nothing.
void Bpe::start_symbols(std::string_view word, Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  symbols.clear();
  bool after_unknown = false;
  while (!word.empty()) {
    const Utf8Step step = utf8_step(word);
    const std::string_view character = word.substr(0, step.length);
    word.remove_prefix(step.length);
    int32_t id = -1;
    if (step.code < by_code_.size()) {
      id = by_code_[step.code];
    } else if (const auto found = vocab_.find(character); found != vocab_.end()) {
      id = found->second;
    }
    if (id >= 0) {
      symbols.push_back({id, 0, 0});
      after_unknown = false;
    } else if (byte_fallback_ && start_bytes(character, scratch)) {
      after_unknown = false;
    } else if (unknown_) {
      if (!(fuse_unknown_ && after_unknown)) symbols.push_back({*unknown_, 0, 0});
      after_unknown = true;
    }
  }
  const int32_t count = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols[i].previous = i - 1;
    symbols[i].next = i + 1 < count ? i + 1 : -1;
  }
}

void Bpe::push_pair(Scratch& scratch, int32_t left) const {
  const Scratch::Symbol& symbol = scratch.symbols[left];
  const auto merge = merges_.find(pair_key(symbol.id, scratch.symbols[symbol.next].id));
  if (merge == merges_.end()) return;
  scratch.heap.push_back(static_cast<uint64_t>(merge->second.rank) << 32 |
                         static_cast<uint32_t>(left));
}

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (ignore_merges_) {
    if (const auto whole = vocab_.find(word); whole != vocab_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  start_symbols(word, scratch);
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  if (symbols.empty()) return;
  heap.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) push_pair(scratch, static_cast<int32_t>(i));
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto push = [&](int32_t left) {
    const size_t size = heap.size();
    push_pair(scratch, left);
    if (heap.size() > size) std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    const uint64_t top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const int32_t left = static_cast<int32_t>(top & 0xFFFFFFFF);
    Scratch::Symbol& symbol = symbols[left];
    if (symbol.id < 0 || symbol.next < 0) continue;
    Scratch::Symbol& right = symbols[symbol.next];
    const auto merge = merges_.find(pair_key(symbol.id, right.id));
    if (merge == merges_.end() || merge->second.rank != top >> 32) continue;
    symbol.id = merge->second.id;
    symbol.next = right.next;
    right.id = -1;
    if (symbol.next >= 0) {
      symbols[symbol.next].previous = left;
      push(left);
    }
    if (symbol.previous >= 0) push(symbol.previous);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) ids.push_back(symbols[i].id);
}

}  // namespace nereid::text
