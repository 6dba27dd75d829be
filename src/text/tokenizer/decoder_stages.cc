// Stages that join tokens, and stages that work on whole tokens.
#include <utility>

#include "absl/strings/str_replace.h"
#include "base/find_text.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/decoder_stage.h"
#include "text/tokenizer/vocab.h"

namespace nereid::text {

namespace {

constexpr size_t kMaxDecoderAffixBytes = 1024;

std::string replace_all(std::string text, std::string_view from, std::string_view to) {
  size_t at = from.empty() ? text.npos : find_text(text, from);
  if (at == text.npos) return text;
  std::string out;
  size_t done = 0;
  for (; at != text.npos; at = find_text(text, from, done)) {
    out.append(text, done, at - done);
    out += to;
    done = at + from.size();
  }
  out.append(text, done);
  return out;
}

// Collects the parts of a token for a stage that needs the whole token.
class WholeTokenStage : public DecoderStage {
 public:
  void part(State& state, std::string_view text, DecoderSink&) const override {
    state.last += text;
  }
  void end_token(State& state, DecoderSink& sink) const override {
    const std::string token = std::exchange(state.last, {});
    whole_token(state, token, sink);
    ++state.tokens;
  }

 protected:
  virtual void whole_token(State& state, const std::string& token, DecoderSink& sink) const = 0;
};

// The default without a decoder: a space between tokens.
class SpaceJoiner : public DecoderStage {
 public:
  void start(State& state, bool continues, bool) const override {
    state.tokens = continues ? 1 : 0;
  }
  void part(State& state, std::string_view text, DecoderSink& sink) const override {
    if (!state.text_seen && state.tokens > 0) sink.part(" ");
    state.text_seen = true;
    sink.part(text);
  }
  void end_token(State& state, DecoderSink&) const override {
    ++state.tokens;
    state.text_seen = false;
  }
  bool joins() const override { return true; }
};

class FuseStage : public DecoderStage {
 public:
  void part(State&, std::string_view text, DecoderSink& sink) const override { sink.part(text); }
  void end_token(State&, DecoderSink&) const override {}
  void finish(State&, DecoderSink& sink) const override { sink.end_token(); }
  bool joins() const override { return true; }
};

// Converts letters of the byte-level alphabet to bytes, and all bytes to text.
class ByteLevelStage : public WholeTokenStage {
 public:
  void finish(State& state, DecoderSink& sink) const override {
    std::string text;
    state.utf8.finish(text);
    sink.token(text);
  }
  bool joins() const override { return true; }

 protected:
  void whole_token(State& state, const std::string& token, DecoderSink& sink) const override {
    std::string text;
    state.utf8.push(letters_to_bytes(token), text);
    sink.part(text);
  }
};

// A run of "<0xHH>" becomes text if it is UTF-8, else one U+FFFD for each byte; so the whole run is
// held until it ends.
class ByteFallbackStage : public WholeTokenStage {
 public:
  explicit ByteFallbackStage(bool keep_valid) : keep_valid_(keep_valid) {}
  void finish(State& state, DecoderSink& sink) const override { flush(state, sink); }

 protected:
  void whole_token(State& state, const std::string& token, DecoderSink& sink) const override {
    if (const auto byte = byte_of_token(token)) {
      state.held += static_cast<char>(*byte);
      if (keep_valid_) flush_complete(state, sink);
      return;
    }
    flush(state, sink);
    sink.token(token);
  }

 private:
  // SentencePiece's rule: complete characters are kept, every other byte is a U+FFFD.
  static void flush_complete(State& state, DecoderSink& sink) {
    while (!state.held.empty()) {
      const Utf8Step step = utf8_step(state.held);
      if (step.kind == Utf8Step::kIncomplete) return;
      const bool valid = step.kind == Utf8Step::kValid;
      sink.token(valid ? std::string_view(state.held).substr(0, step.length) : kReplacement);
      state.held.erase(0, valid ? step.length : 1);
    }
  }
  void flush(State& state, DecoderSink& sink) const {
    const std::string run = std::exchange(state.held, {});
    if (run.empty()) return;
    if (is_valid_utf8(run)) {
      sink.token(run);
    } else {
      for (size_t i = 0; i < run.size(); ++i) sink.token(kReplacement);
    }
  }

  bool keep_valid_;
};

constexpr std::pair<std::string_view, std::string_view> kBlanks[] = {
    {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
    {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
    {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};

std::string without_blanks(std::string text) {
  for (const auto& [from, to] : kBlanks) text = replace_all(std::move(text), from, to);
  return text;
}

class WordPieceStage : public WholeTokenStage {
 public:
  WordPieceStage(std::string prefix, bool clean_up)
      : prefix_(std::move(prefix)), clean_up_(clean_up) {}
  void start(State& state, bool continues, bool) const override {
    state.tokens = continues ? 1 : 0;
  }

 protected:
  void whole_token(State& state, const std::string& token, DecoderSink& sink) const override {
    std::string text = token;
    if (state.tokens > 0) {
      text = token.starts_with(prefix_) ? token.substr(prefix_.size()) : " " + token;
    }
    sink.token(clean_up_ ? without_blanks(std::move(text)) : text);
  }

 private:
  std::string prefix_;
  bool clean_up_;
};

// The suffix of a word becomes a space, but is dropped in the last token; so one token is held.
class BpeStage : public WholeTokenStage {
 public:
  explicit BpeStage(std::string suffix) : suffix_(std::move(suffix)) {}
  void finish(State& state, DecoderSink& sink) const override {
    if (state.tokens > 0) sink.token(replace_all(state.held, suffix_, ""));
  }

 protected:
  void whole_token(State& state, const std::string& token, DecoderSink& sink) const override {
    if (state.tokens > 0) sink.token(replace_all(state.held, suffix_, " "));
    state.held = token;
  }

 private:
  std::string suffix_;
};

class CtcStage : public WholeTokenStage {
 public:
  CtcStage(std::string pad, std::string delimiter, bool clean_up)
      : pad_(std::move(pad)), delimiter_(std::move(delimiter)), clean_up_(clean_up) {}

 protected:
  void whole_token(State& state, const std::string& token, DecoderSink& sink) const override {
    if (state.tokens > 0 && token == state.held) return;
    state.held = token;
    std::string text = replace_all(token, pad_, "");
    if (clean_up_) text = replace_all(without_blanks(std::move(text)), delimiter_, " ");
    if (!text.empty()) sink.token(text);
  }

 private:
  std::string pad_, delimiter_;
  bool clean_up_;
};

}  // namespace

DecoderStagePtr make_space_joiner() { return std::make_shared<SpaceJoiner>(); }

StatusOr<DecoderStagePtr> read_byte_level_stage(const JsonNode&) {
  return std::make_shared<ByteLevelStage>();
}

// "keep_valid" is set for SentencePiece models, never in files.
StatusOr<DecoderStagePtr> read_byte_fallback_stage(const JsonNode& spec) {
  ASSIGN_OR_RETURN(const bool keep_valid, spec["keep_valid"].boolean(false));
  return std::make_shared<ByteFallbackStage>(keep_valid);
}

StatusOr<DecoderStagePtr> read_fuse_stage(const JsonNode&) { return std::make_shared<FuseStage>(); }

StatusOr<DecoderStagePtr> read_word_piece_stage(const JsonNode& spec) {
  std::string_view prefix = "##";
  if (!spec["prefix"].is_null()) {
    ASSIGN_OR_RETURN(prefix, spec["prefix"].bounded_string(kMaxDecoderAffixBytes));
  }
  ASSIGN_OR_RETURN(const bool clean_up, spec["cleanup"].boolean(true));
  return std::make_shared<WordPieceStage>(std::string(prefix), clean_up);
}

StatusOr<DecoderStagePtr> read_bpe_stage(const JsonNode& spec) {
  std::string_view suffix = "</w>";
  if (!spec["suffix"].is_null()) {
    ASSIGN_OR_RETURN(suffix, spec["suffix"].bounded_string(kMaxDecoderAffixBytes));
  }
  return std::make_shared<BpeStage>(std::string(suffix));
}

StatusOr<DecoderStagePtr> read_ctc_stage(const JsonNode& spec) {
  ASSIGN_OR_RETURN(const std::string_view pad, spec["pad_token"].string("<pad>"));
  ASSIGN_OR_RETURN(const std::string_view delimiter, spec["word_delimiter_token"].string("|"));
  ASSIGN_OR_RETURN(const bool clean_up, spec["cleanup"].boolean(true));
  return std::make_shared<CtcStage>(std::string(pad), std::string(delimiter), clean_up);
}

}  // namespace nereid::text
