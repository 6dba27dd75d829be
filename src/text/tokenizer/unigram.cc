#include "text/tokenizer/unigram.h"

#include <algorithm>
#include <cmath>

#include "text/unicode/utf8.h"

namespace nereid::text {

namespace {

constexpr double kUnknownPenalty = 10;

}  // namespace

Unigram::Unigram(Vocab vocab, const std::vector<UnigramPiece>& pieces,
                 const UnigramOptions& options)
    : Model(std::move(vocab)), options_(options) {
  std::vector<std::pair<std::string_view, int32_t>> entries;
  double lowest = INFINITY, highest = -INFINITY;
  for (size_t i = 0; i < pieces.size(); ++i) {
    scores_.push_back(pieces[i].score);
    user_defined_.push_back(pieces[i].user_defined);
    if (pieces[i].usable) entries.emplace_back(pieces[i].text, static_cast<int32_t>(i));
    if (!pieces[i].usable || pieces[i].user_defined) continue;
    lowest = std::min(lowest, pieces[i].score);
    highest = std::max(highest, pieces[i].score);
  }
  trie_ = Trie(std::move(entries));
  unknown_score_ = lowest - kUnknownPenalty;
  best_score_ = highest;
  for (int byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = vocab_.byte_token(static_cast<uint8_t>(byte));
  }
}

// [["PIECE", SCORE], ...]
StatusOr<std::unique_ptr<Unigram>> Unigram::from_json(const JsonNode& spec) {
  const JsonNode list = spec["vocab"];
  ASSIGN_OR_RETURN(const json::array* items, list.array());
  if (items->empty() || items->size() > kMaxTokenId) {
    return invalid_argument("{}: {} pieces: must be 1 to {}", list.path(), items->size(),
                            kMaxTokenId);
  }
  Vocab vocab;
  std::vector<UnigramPiece> pieces;
  for (size_t i = 0; i < items->size(); ++i) {
    const json::array* pair = (*items)[i].if_array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() ||
        !(*pair)[1].is_number() || !std::isfinite((*pair)[1].to_number<double>())) {
      return list[i].wrong("a piece and its score");
    }
    const std::string_view text = view_of((*pair)[0].get_string());
    RETURN_IF_ERROR(vocab.add(text, static_cast<int32_t>(i)));
    pieces.push_back({std::string(text), (*pair)[1].to_number<double>()});
  }
  UnigramOptions options;
  ASSIGN_OR_RETURN(options.byte_fallback, spec["byte_fallback"].boolean(false));
  if (!spec["unk_id"].is_null()) {
    ASSIGN_OR_RETURN(const int64_t id,
                     spec["unk_id"].integer(0, 0, static_cast<int64_t>(pieces.size()) - 1));
    options.unknown = static_cast<int32_t>(id);
  }
  return std::make_unique<Unigram>(std::move(vocab), pieces, options);
}

Status Unigram::find_path(std::string_view word, EncodeScratch& scratch) const {
  auto& path = scratch.path;
  path.assign(word.size() + 1, {0, -1, 0});
  const auto reach = [&](size_t begin, size_t end, double score, int32_t id) {
    EncodeScratch::PathNode& node = path[end];
    const double sum = score + path[begin].score;
    if (node.begin >= 0 && !(sum > node.score)) return;
    node = {sum, static_cast<int64_t>(begin), id};
  };
  for (size_t at = 0; at < word.size();) {
    const size_t length = utf8_step(word.substr(at)).length;
    bool has_single = false;
    uint32_t node = Trie::kRoot;
    size_t end = at;
    while (end < word.size()) {
      node = trie_.step(node, static_cast<uint8_t>(word[end++]));
      if (node == Trie::kRoot) break;
      const int32_t id = trie_.value(node);
      if (id < 0) continue;
      const double bonus = static_cast<double>(end - at) * best_score_ - 0.1;
      reach(at, end, user_defined_[id] ? bonus : scores_[id], id);
      has_single |= end - at == length;
    }
    RETURN_IF_ERROR(scratch.work->charge(end - at));
    if (!has_single) {
      if (!options_.unknown) {
        return invalid_argument("the model has no token for '{}' and no unknown token",
                                word.substr(at, length));
      }
      reach(at, at + length, unknown_score_, *options_.unknown);
    }
    at += length;
  }
  return ok();
}

// A run of unknown characters is looked up as a whole, then becomes its bytes or the unknown token.
Status Unigram::append_piece(std::string_view piece, std::vector<int32_t>& ids) const {
  if (const auto id = vocab_.id(piece)) {
    ids.push_back(*id);
    return ok();
  }
  if (options_.byte_fallback && std::all_of(piece.begin(), piece.end(), [&](char c) {
        return byte_ids_[static_cast<uint8_t>(c)] >= 0;
      })) {
    for (const char c : piece) ids.push_back(byte_ids_[static_cast<uint8_t>(c)]);
    return ok();
  }
  ids.push_back(*options_.unknown);
  return ok();
}

Status Unigram::encode(std::string_view word, EncodeScratch& scratch,
                       std::vector<int32_t>& ids) const {
  auto& path = scratch.path;
  RETURN_IF_ERROR(find_path(word, scratch));
  size_t end = word.size();
  std::vector<std::pair<size_t, int32_t>> tokens;  // end, id; last token first
  while (end > 0) {
    tokens.emplace_back(end, path[end].id);
    end = static_cast<size_t>(path[end].begin);
  }
  size_t begin = 0;
  for (auto token = tokens.rbegin(); token != tokens.rend(); ++token) {
    const bool unknown = options_.unknown && token->second == *options_.unknown;
    const auto next = std::next(token);
    if (unknown && next != tokens.rend() && next->second == token->second) continue;  // one run
    if (unknown) {
      RETURN_IF_ERROR(append_piece(word.substr(begin, token->first - begin), ids));
    } else {
      ids.push_back(token->second);
    }
    begin = token->first;
  }
  return ok();
}

}  // namespace nereid::text
