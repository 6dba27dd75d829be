// One stage of a decoder. A token may come in parts when an earlier stage has joined tokens.
#pragma once

#include <memory>
#include <string_view>

#include "text/tokenizer/decoder.h"
#include "text/tokenizer_files/json_node.h"

namespace nereid::text {

// The output of a stage: the input of the next one, or the text behind the last one.
class DecoderSink {
 public:
  DecoderSink(Decoder::Stream& stream, size_t stage, std::string& out)
      : stream_(stream), stage_(stage), out_(out) {}
  void part(std::string_view text);
  void end_token();
  void token(std::string_view text) {
    part(text);
    end_token();
  }

 private:
  Decoder::Stream& stream_;
  size_t stage_;  // stage that reads this output
  std::string& out_;
};

// Immutable. `part` takes the current token's text, divided between characters; `end_token` ends
// it; `finish` ends the sequence after its last token.
class DecoderStage {
 public:
  using State = DecoderStageState;
  virtual ~DecoderStage() = default;
  // `continues`: the sequence continues another; `joined`: all tokens come as parts of one.
  virtual void start(State&, bool /*continues*/, bool /*joined*/) const {}
  virtual void part(State& state, std::string_view text, DecoderSink& sink) const = 0;
  virtual void end_token(State& state, DecoderSink& sink) const = 0;
  virtual void finish(State&, DecoderSink&) const {}
  // The most bytes that one byte can become.
  virtual size_t growth() const { return 1; }
  // True when the output is a single token.
  virtual bool joins() const { return false; }
};

using DecoderStagePtr = std::shared_ptr<const DecoderStage>;

DecoderStagePtr make_space_joiner();
StatusOr<DecoderStagePtr> read_byte_level_stage(const JsonNode& spec);
StatusOr<DecoderStagePtr> read_byte_fallback_stage(const JsonNode& spec);
StatusOr<DecoderStagePtr> read_fuse_stage(const JsonNode& spec);
StatusOr<DecoderStagePtr> read_metaspace_stage(const JsonNode& spec);
StatusOr<DecoderStagePtr> read_word_piece_stage(const JsonNode& spec);
StatusOr<DecoderStagePtr> read_bpe_stage(const JsonNode& spec);
StatusOr<DecoderStagePtr> read_strip_stage(const JsonNode& spec);
StatusOr<DecoderStagePtr> read_replace_stage(const JsonNode& spec);
StatusOr<DecoderStagePtr> read_ctc_stage(const JsonNode& spec);
DecoderStagePtr make_replace_stage(std::string_view from, std::string_view to);

}  // namespace nereid::text
