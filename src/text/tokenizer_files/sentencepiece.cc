// SentencePiece ".model" files, run by our own Unigram and BPE models: the SentencePiece library
// has no added tokens, no prefix rules of checkpoints and no streaming.
#include <algorithm>
#include <cmath>

#include "sentencepiece.pb.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/tokenizer_parts.h"
#include "text/tokenizer/unigram.h"
#include "text/unicode/utf8.h"

namespace nereid::text {

namespace {

namespace proto = nereid::sentencepiece;

// Rules of the model's "normalizer_spec"; user-defined pieces pass unchanged.
struct SpaceRules {
  Charsmap map;
  Trie user_defined;
  bool dummy_prefix, only_at_start, remove_extra, escape, suffix;

  // The normalised beginning of `rest`, and its length in the input.
  StatusOr<std::pair<std::string_view, size_t>> next(std::string_view rest,
                                                     EncodeWork& work) const {
    const Trie::Match own = user_defined.longest(rest);
    RETURN_IF_ERROR(work.charge(own.walked + 1));
    if (own.length > 0) return std::pair(rest.substr(0, own.length), own.length);
    const Charsmap::Match match = map.longest(rest);
    RETURN_IF_ERROR(work.charge(match.replacement.size()));
    if (match.length > 0) return std::pair(match.replacement, match.length);
    const size_t length = utf8_step(rest).length;
    return std::pair(rest.substr(0, length), length);
  }

  StatusOr<std::string> run(std::string_view text, bool at_start, EncodeWork& work) const {
    std::string out;
    const std::string_view space = escape ? kSpaceMark : " ";
    while (remove_extra && !text.empty()) {
      ASSIGN_OR_RETURN(const auto part, next(text, work));
      if (part.first != " ") break;
      text.remove_prefix(part.second);
    }
    if (text.empty()) return out;
    const bool add_space = dummy_prefix && (at_start || !only_at_start);
    if (add_space && !suffix) out += space;
    bool after_space = remove_extra;
    while (!text.empty()) {
      ASSIGN_OR_RETURN(const auto part, next(text, work));
      std::string_view normal = part.first;
      text.remove_prefix(part.second);
      while (after_space && normal.starts_with(' ')) normal.remove_prefix(1);
      for (const char c : normal) {
        if (c == ' ') {
          out += space;
        } else {
          out += c;
        }
      }
      if (!normal.empty()) after_space = remove_extra && normal.ends_with(' ');
    }
    while (remove_extra && out.ends_with(space)) out.erase(out.size() - space.size());
    if (add_space && suffix) out += space;
    return out;
  }
};

struct SentencePieceReader {
  const proto::Model& file;
  TokenizerParts& parts;
  UnusedPieces unused;
  Vocab vocab;
  std::vector<std::pair<std::string, int32_t>> user_defined;

  const proto::Trainer& trainer() const { return file.trainer_spec(); }

  Status read_pieces() {
    if (file.pieces_size() == 0 || file.pieces_size() > kMaxTokenId) {
      return invalid_argument("pieces: {}: must be 1 to {}", file.pieces_size(), kMaxTokenId);
    }
    for (int i = 0; i < file.pieces_size(); ++i) {
      const proto::Piece& piece = file.pieces(i);
      if (piece.piece().empty() || !is_valid_utf8(piece.piece()) || !std::isfinite(piece.score())) {
        return invalid_argument("pieces[{}]: must be UTF-8 text with a finite score", i);
      }
      RETURN_IF_ERROR(vocab.add(piece.piece(), i));
      if (piece.type() == proto::Piece::USER_DEFINED) user_defined.emplace_back(piece.piece(), i);
    }
    return ok();
  }

  // Control pieces are never matched in text, unless special tokens are parsed.
  Status add_control_tokens() {
    for (int i = 0; i < file.pieces_size(); ++i) {
      if (file.pieces(i).type() != proto::Piece::CONTROL) continue;
      if (file.pieces(i).piece().size() > AddedTokenFinder::kMaxContentBytes) continue;
      RETURN_IF_ERROR(parts.add_special(file.pieces(i).piece()));
    }
    return ok();
  }

  std::optional<int32_t> unknown() const {
    for (int i = 0; i < file.pieces_size(); ++i) {
      if (file.pieces(i).type() == proto::Piece::UNKNOWN) return i;
    }
    return std::nullopt;
  }

  bool is_normal(int i) const {
    const auto type = file.pieces(i).type();
    return type == proto::Piece::NORMAL || type == proto::Piece::USER_DEFINED;
  }

  StatusOr<std::unique_ptr<Model>> read_unigram() {
    std::vector<UnigramPiece> pieces;
    for (int i = 0; i < file.pieces_size(); ++i) {
      const proto::Piece& piece = file.pieces(i);
      pieces.push_back(
          {piece.piece(), piece.score(), is_normal(i), piece.type() == proto::Piece::USER_DEFINED});
    }
    const UnigramOptions options{unknown(), trainer().byte_fallback()};
    return std::make_unique<Unigram>(std::move(vocab), pieces, options);
  }

  // Every division of a piece into two pieces is a merge; the highest score has the lowest rank.
  StatusOr<std::unique_ptr<Model>> read_bpe() {
    std::vector<int> by_score;
    for (int i = 0; i < file.pieces_size(); ++i) {
      const bool is_unused = file.pieces(i).type() == proto::Piece::UNUSED;
      if (is_unused && unused == UnusedPieces::kRefused) {
        return unsupported(
            "pieces[{}].type = UNUSED: allowed in a BPE model are NORMAL, UNKNOWN, "
            "CONTROL, USER_DEFINED and BYTE",
            i);
      }
      if (file.pieces(i).type() == proto::Piece::NORMAL) by_score.push_back(i);
    }
    const auto score = [&](int i) { return file.pieces(i).score(); };
    std::stable_sort(by_score.begin(), by_score.end(),
                     [&](int a, int b) { return score(a) > score(b); });
    std::vector<MergeRule> merges;
    uint32_t rank = 0;
    for (size_t k = 0; k < by_score.size(); ++k) {
      if (k > 0 && score(by_score[k]) != score(by_score[k - 1])) ++rank;
      add_merges(by_score[k], rank, merges);
    }
    BpeOptions options;
    options.unknown = unknown();
    options.fuse_unknown = true;
    options.byte_fallback = trainer().byte_fallback();
    options.whole = user_defined;
    return std::make_unique<Bpe>(std::move(vocab), merges, std::move(options));
  }

  void add_merges(int id, uint32_t rank, std::vector<MergeRule>& merges) const {
    const std::string_view piece = file.pieces(id).piece();
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      if ((static_cast<uint8_t>(piece[cut]) & 0xC0) == 0x80) continue;  // inside a character
      const auto left = vocab.id(piece.substr(0, cut)), right = vocab.id(piece.substr(cut));
      if (!left || !right) continue;
      if (file.pieces(*left).type() != proto::Piece::NORMAL) continue;
      if (file.pieces(*right).type() != proto::Piece::NORMAL) continue;
      merges.push_back({*left, *right, id, rank});
    }
  }

  Status read_model() {
    switch (trainer().model_type()) {
      case proto::Trainer::UNIGRAM: {
        ASSIGN_OR_RETURN(parts.model, read_unigram());
        return ok();
      }
      case proto::Trainer::BPE: {
        ASSIGN_OR_RETURN(parts.model, read_bpe());
        return ok();
      }
      default:
        return unsupported("trainer_spec.model_type = {}: must be UNIGRAM or BPE",
                           proto::Trainer::Kind_Name(trainer().model_type()));
    }
  }

  // `legacy`: every piece of text between special tokens gets the leading space,
  // not only the first.
  Status read_normalizer(bool legacy) {
    const proto::NormalizerRules& rules = file.normalizer_spec();
    ASSIGN_OR_RETURN(Charsmap map, Charsmap::parse(rules.precompiled_charsmap()));
    const auto space = std::make_shared<SpaceRules>(
        SpaceRules{std::move(map), Trie({user_defined.begin(), user_defined.end()}),
                   rules.add_dummy_prefix(), !legacy, rules.remove_extra_whitespaces(),
                   rules.escape_whitespaces(), trainer().treat_whitespace_as_suffix()});
    parts.normalizer = Normalizer::from_step([space](NormalText& text) -> Status {
      ASSIGN_OR_RETURN(text.text, space->run(text.text, text.at_start, *text.work));
      return ok();
    });
    return ok();
  }

  Status make_decoder() {
    json::array stages = {json::object{{"type", "ByteFallback"}, {"keep_valid", true}},
                          json::object{{"type", "Fuse"}}};
    const proto::NormalizerRules& rules = file.normalizer_spec();
    if (rules.add_dummy_prefix() || rules.remove_extra_whitespaces()) {
      const int start = rules.remove_extra_whitespaces() ? 1 << 20 : 1;
      stages.push_back(
          json::object{{"type", "Strip"}, {"content", kSpaceMark}, {"start", start}, {"stop", 0}});
    }
    stages.push_back(
        json::object{{"type", "Replace"}, {"pattern", {{"String", kSpaceMark}}}, {"content", " "}});
    const json::value spec = {{"type", "Sequence"}, {"decoders", std::move(stages)}};
    ASSIGN_OR_RETURN(parts.decoder, Decoder::from_json(JsonNode(spec, "decoder")));
    if (unknown() && is_valid_utf8(trainer().unk_surface())) {
      parts.shown_as[*unknown()] = trainer().unk_surface();
    }
    return ok();
  }
};

// T5 has "<extra_id_99>" to "<extra_id_0>" behind the pieces, and adds an end mark to every text.
Status add_t5_tokens(const JsonNode& config, TokenizerParts& parts, int32_t eos) {
  ASSIGN_OR_RETURN(const std::string_view name, config["tokenizer_class"].string(""));
  if (name != "T5Tokenizer" && name != "T5TokenizerFast") return ok();
  ASSIGN_OR_RETURN(const int64_t count, config["extra_ids"].integer(100, 0, 10000));
  const int32_t first = parts.model->vocab().max_id() + 1;
  for (int32_t i = 0; i < count; ++i) {
    AddedToken token;
    token.content = fmt::format("<extra_id_{}>", i);
    token.id = first + static_cast<int32_t>(count) - 1 - i;
    token.normalized = false;
    token.special = true;
    if (parts.token_id(token.content)) continue;
    RETURN_IF_ERROR(parts.add(std::move(token)));
  }
  parts.post_processor.add_suffix(eos);
  return ok();
}

// Begin and end marks around a text, by default those of the Llama family.
Status add_marks(const JsonNode& config, const proto::Trainer& trainer, TokenizerParts& parts) {
  const int32_t size = parts.model->vocab().max_id();
  ASSIGN_OR_RETURN(const bool bos, config["add_bos_token"].boolean(trainer.bos_id() >= 0));
  ASSIGN_OR_RETURN(const bool eos, config["add_eos_token"].boolean(false));
  if (bos && trainer.bos_id() >= 0 && trainer.bos_id() <= size)
    parts.post_processor.add_prefix(trainer.bos_id());
  if (eos && trainer.eos_id() >= 0 && trainer.eos_id() <= size)
    parts.post_processor.add_suffix(trainer.eos_id());
  return ok();
}

}  // namespace

StatusOr<TokenizerPartsPtr> read_sentencepiece(std::string_view bytes, const json::value& config,
                                               UnusedPieces unused) {
  proto::Model file;
  if (bytes.size() > INT32_MAX ||
      !file.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return invalid_argument("{} bytes are not a SentencePiece model", bytes.size());
  }
  const JsonNode settings(config, "tokenizer_config");
  auto parts = std::make_unique<TokenizerParts>();
  SentencePieceReader reader{file, *parts, unused, {}, {}};
  RETURN_IF_ERROR(reader.read_pieces());
  ASSIGN_OR_RETURN(const bool legacy, settings["legacy"].boolean(true));
  RETURN_IF_ERROR(reader.read_normalizer(legacy));
  RETURN_IF_ERROR(reader.make_decoder());
  RETURN_IF_ERROR(reader.read_model());
  RETURN_IF_ERROR(reader.add_control_tokens());
  RETURN_IF_ERROR(add_t5_tokens(settings, *parts, file.trainer_spec().eos_id()));
  if (parts->post_processor.suffix().empty()) {
    RETURN_IF_ERROR(add_marks(settings, file.trainer_spec(), *parts));
  }
  RETURN_IF_ERROR(parts->read_config(settings));
  return parts;
}

}  // namespace nereid::text
