// Stages that change characters inside a token, and release text before the token ends.
#include <algorithm>
#include <limits>

#include "base/find_text.h"
#include "text/tokenizer/decoder_stage.h"
#include "text/tokenizer/pattern.h"

namespace nereid::text {

namespace {

constexpr size_t kMaxContentBytes = 1024;
constexpr size_t kMaxTokenTextBytes = size_t{1} << 30;

// Markers become spaces; those of the first token are dropped, unless encoding adds none there.
class MetaspaceStage : public DecoderStage {
 public:
  MetaspaceStage(std::string marker, bool drop_in_first)
      : marker_(std::move(marker)), drop_in_first_(drop_in_first) {}
  void start(State& state, bool continues, bool) const override {
    state.tokens = continues ? 1 : 0;
  }
  void part(State& state, std::string_view text, DecoderSink& sink) const override {
    const std::string_view space = drop_in_first_ && state.tokens == 0 ? "" : " ";
    std::string out;
    size_t done = 0;
    for (size_t at = 0; (at = text.find(marker_, at)) != text.npos; done = at += marker_.size()) {
      out += text.substr(done, at - done);
      out += space;
    }
    out += text.substr(done);
    sink.part(out);
  }
  void end_token(State& state, DecoderSink& sink) const override {
    ++state.tokens;
    sink.end_token();
  }

 private:
  std::string marker_;
  bool drop_in_first_;
};

// Drops up to `start` copies of a character at the front of a token and up to `stop` at its end;
// the latter are held until the next text.
class StripStage : public DecoderStage {
 public:
  StripStage(char32_t code, uint64_t start, uint64_t stop) : start_(start), stop_(stop) {
    append_utf8(content_, code);
  }
  // Text that continues other text has no front.
  void start(State& state, bool continues, bool joined) const override {
    state.text_seen = continues && joined;
  }
  void part(State& state, std::string_view text, DecoderSink& sink) const override {
    while (!state.text_seen && !text.empty()) {
      if (state.stripped < start_ && text.starts_with(content_)) {
        ++state.stripped;
        text.remove_prefix(content_.size());
      } else {
        state.text_seen = true;
      }
    }
    if (stop_ == 0) return sink.part(text);
    state.held += text;
    size_t keep = state.held.size();
    for (uint64_t i = 0; i < stop_; ++i) {
      if (!std::string_view(state.held).substr(0, keep).ends_with(content_)) break;
      keep -= content_.size();
    }
    sink.part(std::string_view(state.held).substr(0, keep));
    state.held.erase(0, keep);
  }
  void end_token(State& state, DecoderSink& sink) const override {
    sink.end_token();
    state.held.clear();
    state.stripped = 0;
    state.text_seen = false;
  }

 private:
  std::string content_;
  uint64_t start_, stop_;
};

// Replaces a string inside a token. In parts of a joined token the longest suffix that is a prefix
// of the string is held.
class ReplaceStringStage : public DecoderStage {
 public:
  ReplaceStringStage(std::string from, std::string to)
      : from_(std::move(from)), to_(std::move(to)) {}
  void part(State& state, std::string_view text, DecoderSink& sink) const override {
    state.held += text;
    std::string out;
    size_t done = 0;
    for (size_t at = 0; (at = find_text(state.held, from_, at)) != state.held.npos;
         done = at += from_.size()) {
      out.append(state.held, done, at - done);
      out += to_;
    }
    const size_t rest = state.held.size() - done;
    size_t wait = std::min(rest, from_.size() - 1);
    while (wait > 0 &&
           !from_.starts_with(std::string_view(state.held).substr(state.held.size() - wait))) {
      --wait;
    }
    out.append(state.held, done, rest - wait);
    state.held.erase(0, state.held.size() - wait);
    if (!out.empty()) sink.part(out);
  }
  void end_token(State& state, DecoderSink& sink) const override {
    sink.part(state.held);
    state.held.clear();
    sink.end_token();
  }
  size_t growth() const override {
    return std::max<size_t>(1, (to_.size() + from_.size() - 1) / from_.size());
  }

 private:
  std::string from_, to_;
};

// Replaces matches of a regular expression in a whole token.
class ReplaceRegexStage : public DecoderStage {
 public:
  ReplaceRegexStage(Pattern pattern, std::string to)
      : pattern_(std::move(pattern)), to_(std::move(to)) {}
  void part(State& state, std::string_view text, DecoderSink&) const override {
    state.held += text;
  }
  void end_token(State& state, DecoderSink& sink) const override {
    // A token on which the expression exceeds its limits stays unchanged.
    EncodeWork work(state.held.size());
    static_cast<void>(pattern_.replace_all(state.held, to_, kMaxTokenTextBytes, work).ok());
    sink.token(state.held);
    state.held.clear();
  }
  size_t growth() const override { return to_.size() + 1; }  // +1: it may match the empty text

 private:
  Pattern pattern_;
  std::string to_;
};

}  // namespace

StatusOr<DecoderStagePtr> read_metaspace_stage(const JsonNode& spec) {
  ASSIGN_OR_RETURN(const char32_t code, spec["replacement"].character());
  ASSIGN_OR_RETURN(const bool prefix, spec["add_prefix_space"].boolean(true));
  const JsonNode field = spec["prepend_scheme"];
  ASSIGN_OR_RETURN(const std::string_view scheme, field.string(prefix ? "always" : "never"));
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return field.wrong("always, first or never");
  }
  std::string marker;
  append_utf8(marker, code);
  return std::make_shared<MetaspaceStage>(std::move(marker), scheme != "never");
}

StatusOr<DecoderStagePtr> read_strip_stage(const JsonNode& spec) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  ASSIGN_OR_RETURN(const char32_t code, spec["content"].character());
  ASSIGN_OR_RETURN(const int64_t start, spec["start"].integer(0, 0, kMax));
  ASSIGN_OR_RETURN(const int64_t stop, spec["stop"].integer(0, 0, kMax));
  return std::make_shared<StripStage>(code, static_cast<uint64_t>(start),
                                      static_cast<uint64_t>(stop));
}

DecoderStagePtr make_replace_stage(std::string_view from, std::string_view to) {
  return std::make_shared<ReplaceStringStage>(std::string(from), std::string(to));
}

StatusOr<DecoderStagePtr> read_replace_stage(const JsonNode& spec) {
  ASSIGN_OR_RETURN(Pattern pattern, Pattern::from_json(spec["pattern"]));
  ASSIGN_OR_RETURN(const std::string_view to, spec["content"].bounded_string(kMaxContentBytes));
  if (const std::string* from = pattern.string()) {
    if (from->size() > kMaxContentBytes) {
      return spec["pattern"]["String"].wrong(
          fmt::format("a string of at most {} bytes", kMaxContentBytes));
    }
    return make_replace_stage(*from, to);
  }
  return std::make_shared<ReplaceRegexStage>(std::move(pattern), std::string(to));
}

}  // namespace nereid::text
