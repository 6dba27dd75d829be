#include "text/added_tokens.h"

#include <algorithm>

#include "text/json_fields.h"
#include "text/unicode/chars.h"
#include "text/unicode/classes.h"
#include "text/unicode/utf8.h"

namespace nereid::text {

namespace {

// The last code point of non-empty valid UTF-8, and its first byte's offset.
std::pair<char32_t, size_t> last_code(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return {utf8_step(text.substr(at)).code, at};
}

bool is_between_words(std::string_view before, std::string_view after) {
  const bool left_free = before.empty() || !is_word(last_code(before).first);
  return left_free && (after.empty() || !is_word(utf8_step(after).code));
}

size_t skip_space_left(std::string_view text) {
  while (!text.empty()) {
    const auto [code, at] = last_code(text);
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

StatusOr<AddedToken> AddedToken::from_json(const json::value& spec, const json::value& id) {
  AddedToken token;
  ASSIGN_OR_RETURN(const json::object* object, as_object(spec, "added token"));
  ASSIGN_OR_RETURN(token.content, string_field(*object, "content"));
  if (token.content.empty() || token.content.size() > AddedTokenFinder::kMaxContentBytes) {
    return invalid_argument("added token content of {} bytes: must have 1 to {}",
                            token.content.size(), AddedTokenFinder::kMaxContentBytes);
  }
  ASSIGN_OR_RETURN(token.id, as_token_id(id, fmt::format("added token '{}'", token.content)));
  ASSIGN_OR_RETURN(token.special, bool_field(*object, "special", false));
  ASSIGN_OR_RETURN(token.single_word, bool_field(*object, "single_word", false));
  ASSIGN_OR_RETURN(token.lstrip, bool_field(*object, "lstrip", false));
  ASSIGN_OR_RETURN(token.rstrip, bool_field(*object, "rstrip", false));
  ASSIGN_OR_RETURN(token.normalized, bool_field(*object, "normalized", !token.special));
  return token;
}

AddedTokenFinder::AddedTokenFinder() : ends_{nullptr} {}

void AddedTokenFinder::add(const AddedToken* token) {
  tokens_.push_back(token);
  first_bytes_[static_cast<uint8_t>(token->content[0])] = true;
  uint64_t node = 0;
  for (const char c : token->content) {
    const uint64_t edge = node << 8 | static_cast<uint8_t>(c);
    const auto [found, is_new] = edges_.try_emplace(edge, static_cast<uint32_t>(ends_.size()));
    if (is_new) ends_.push_back(nullptr);
    node = found->second;
  }
  ends_[node] = token;
}

const AddedToken* AddedTokenFinder::longest_at(std::string_view text) const {
  if (!first_bytes_[static_cast<uint8_t>(text[0])]) return nullptr;
  const AddedToken* longest = nullptr;
  uint64_t node = 0;
  for (const char c : text) {
    const auto edge = edges_.find(node << 8 | static_cast<uint8_t>(c));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (ends_[node] != nullptr) longest = ends_[node];
  }
  return longest;
}

void AddedTokenFinder::split(std::string_view text, bool parse_special,
                             std::vector<Match>& out) const {
  size_t done = 0;  // text before it is in `out`
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    const AddedToken* token = longest_at(text.substr(at));
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + token->content.size();
    at = end;  // what follows is searched from here even when this match does not count
    if (token->special && !parse_special) continue;
    if (token->single_word && !is_between_words(text.substr(0, begin), text.substr(end))) continue;
    if (token->lstrip) begin = skip_space_left(text.substr(0, begin));
    if (token->rstrip) end += skip_space_right(text.substr(end));
    begin = std::max(begin, done);
    end = std::max(end, begin);
    if (begin > done) out.push_back({nullptr, text.substr(done, begin - done)});
    out.push_back({token, text.substr(begin, end - begin)});
    done = end;
  }
  if (done < text.size()) out.push_back({nullptr, text.substr(done)});
}

}  // namespace nereid::text
