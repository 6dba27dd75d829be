#include "text/tokenizer/added_tokens.h"

#include <algorithm>

#include "text/unicode/chars.h"
#include "text/unicode/classes.h"
#include "text/unicode/utf8.h"

namespace nereid::text {

namespace {

bool is_between_words(std::string_view before, std::string_view after) {
  const bool left_free = before.empty() || !is_word(utf8_last(before).code);
  return left_free && (after.empty() || !is_word(utf8_step(after).code));
}

size_t skip_space_left(std::string_view text) {
  while (!text.empty()) {
    const auto [code, at] = utf8_last(text);
    if (!is_space(code)) break;
    text = text.substr(0, at);
  }
  return text.size();
}

size_t skip_space_right(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (!is_space(step.code)) break;
    at += step.length;
  }
  return at;
}

}  // namespace

StatusOr<AddedToken> AddedToken::from_json(const JsonNode& spec, int32_t id) {
  AddedToken token;
  token.id = id;
  ASSIGN_OR_RETURN(token.content,
                   spec["content"].bounded_string(AddedTokenFinder::kMaxContentBytes));
  if (token.content.empty()) return spec["content"].wrong("a string that is not empty");
  ASSIGN_OR_RETURN(token.special, spec["special"].boolean(false));
  ASSIGN_OR_RETURN(token.single_word, spec["single_word"].boolean(false));
  ASSIGN_OR_RETURN(token.lstrip, spec["lstrip"].boolean(false));
  ASSIGN_OR_RETURN(token.rstrip, spec["rstrip"].boolean(false));
  ASSIGN_OR_RETURN(token.normalized, spec["normalized"].boolean(!token.special));
  return token;
}

AddedTokenFinder::AddedTokenFinder(const std::vector<Entry>& entries) {
  std::vector<std::pair<std::string_view, int32_t>> keys;
  for (const Entry& entry : entries) {
    if (entry.pattern.empty()) continue;
    keys.emplace_back(entry.pattern, static_cast<int32_t>(tokens_.size()));
    tokens_.push_back(entry.token);
    const auto first = static_cast<uint8_t>(entry.pattern[0]);
    only_first_byte_ = tokens_.size() == 1 || only_first_byte_ == first ? first : -1;
    first_bytes_[first] = true;
  }
  trie_ = Trie(std::move(keys));
}

size_t AddedTokenFinder::next_start(std::string_view text, size_t at) const {
  if (only_first_byte_ >= 0) return text.find(static_cast<char>(only_first_byte_), at);
  while (at < text.size() && !first_bytes_[static_cast<uint8_t>(text[at])]) ++at;
  return at < text.size() ? at : text.npos;
}

Status AddedTokenFinder::split(std::string_view text, bool parse_special, EncodeWork& work,
                               std::vector<Match>& out) const {
  size_t done = 0;  // text before it is in `out`
  size_t at = tokens_.empty() ? text.npos : 0;
  while ((at = at < text.size() ? next_start(text, at) : text.npos) != text.npos) {
    const Trie::Match match = trie_.longest(text.substr(at));
    RETURN_IF_ERROR(work.charge(match.walked));
    if (match.length == 0) {
      ++at;
      continue;
    }
    const AddedToken* token = tokens_[match.value];
    size_t begin = at;
    size_t end = at + match.length;
    at = end;  // the next search begins here even if this match is refused
    if (token->special && !parse_special) continue;
    if (token->single_word && !is_between_words(text.substr(0, begin), text.substr(end))) continue;
    // Text before `done` belongs to the previous token.
    begin = std::max(begin, done);
    end = std::max(end, begin);
    if (token->lstrip) begin = done + skip_space_left(text.substr(done, begin - done));
    if (token->rstrip) end += skip_space_right(text.substr(end));
    if (begin > done) out.push_back({nullptr, text.substr(done, begin - done)});
    out.push_back({token, text.substr(begin, end - begin)});
    done = end;
  }
  if (done < text.size()) out.push_back({nullptr, text.substr(done)});
  return ok();
}

}  // namespace nereid::text
