#include "text/tokenizer/decoder.h"

#include <iterator>
#include <optional>

#include "text/tokenizer/decoder_stage.h"
#include "text/tokenizer/vocab.h"

namespace nereid::text {

namespace {

constexpr int kMaxNestedDecoders = 8;
constexpr size_t kMaxDecoders = 64;
constexpr size_t kMaxGrowth = 4096;  // over all stages

struct DecoderRow {
  std::string_view type;
  StatusOr<DecoderStagePtr> (*read)(const JsonNode& spec);  // null: Sequence
};

constexpr DecoderRow kDecoders[] = {
    {"Sequence", nullptr},
    {"ByteLevel", read_byte_level_stage},
    {"ByteFallback", read_byte_fallback_stage},
    {"Fuse", read_fuse_stage},
    {"Strip", read_strip_stage},
    {"Replace", read_replace_stage},
    {"Metaspace", read_metaspace_stage},
    {"WordPiece", read_word_piece_stage},
    {"BPEDecoder", read_bpe_stage},
    {"CTC", read_ctc_stage},
};

// Replacements of transformers' clean-up, in its order.
constexpr std::pair<std::string_view, std::string_view> kCleanUp[] = {
    {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
    {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};

}  // namespace

StatusOr<Decoder> Decoder::from_json(const JsonNode& spec) {
  Decoder decoder;
  if (spec.is_null()) {
    decoder.stages_.push_back(make_space_joiner());
  } else {
    RETURN_IF_ERROR(decoder.append(spec, 0));
  }
  decoder.byte_level_ &= decoder.stages_.size() == 1;
  return decoder;
}

Status Decoder::append(const JsonNode& spec, int depth) {
  if (depth > kMaxNestedDecoders || stages_.size() >= kMaxDecoders) {
    return invalid_argument("{}: more than {} nested or {} chained decoders", spec.path(),
                            kMaxNestedDecoders, kMaxDecoders);
  }
  ASSIGN_OR_RETURN(const DecoderRow* row, spec.row_of_type(kDecoders));
  if (row->read != nullptr) {
    ASSIGN_OR_RETURN(DecoderStagePtr stage, row->read(spec));
    byte_level_ = row->type == "ByteLevel";
    byte_fallback_ |= row->type == "ByteFallback";
    joined_ |= stage->joins();
    growth_ *= stage->growth();
    if (growth_ > kMaxGrowth) {
      return invalid_argument(
          "{}: the decoders up to here can make {} bytes of one, at most {} are "
          "allowed",
          spec.path(), growth_, kMaxGrowth);
    }
    stages_.push_back(std::move(stage));
    return ok();
  }
  const JsonNode list = spec["decoders"];
  ASSIGN_OR_RETURN(const json::array* items, list.array());
  for (size_t i = 0; i < items->size(); ++i) RETURN_IF_ERROR(append(list[i], depth + 1));
  return ok();
}

void Decoder::add_clean_up() {
  const JsonNode nothing(json::value(), "");
  if (!joined_) stages_.push_back(*read_fuse_stage(nothing));
  joined_ = true;
  byte_level_ = false;
  for (const auto& [from, to] : kCleanUp) stages_.push_back(make_replace_stage(from, to));
}

std::string Decoder::continuation_bytes(std::string_view token) const {
  if (byte_fallback_) {
    if (const auto byte = byte_of_token(token)) return std::string(1, static_cast<char>(*byte));
  }
  // The text between two tokens that no stage changes; the separator before the
  // second one is removed.
  constexpr std::string_view kOther = "\x01";
  const auto between = [&](std::optional<std::string_view> middle) {
    Stream stream(*this, /*continues=*/true);
    std::string text;
    stream.push(kOther, text);
    if (middle) stream.push(*middle, text);
    stream.push(kOther, text);
    stream.finish(text);
    const size_t first = text.find(kOther), last = text.rfind(kOther);
    return first < last && last != text.npos ? text.substr(first + 1, last - first - 1) : "";
  };
  std::string bytes = between(token);
  const std::string separator = between(std::nullopt);
  if (bytes.ends_with(separator)) bytes.erase(bytes.size() - separator.size());
  return bytes;
}

Decoder::Stream::Stream(const Decoder& decoder, bool continues)
    : decoder_(&decoder), continues_(continues), states_(decoder.stages_.size()) {
  bool joined = false;
  for (size_t i = 0; i < states_.size(); ++i) {
    decoder.stages_[i]->start(states_[i], continues, joined);
    joined |= decoder.stages_[i]->joins();
  }
}

void Decoder::Stream::push(std::string_view token, std::string& out) {
  DecoderSink(*this, 0, out).token(token);
}

void Decoder::Stream::finish(std::string& out) {
  for (size_t i = 0; i < states_.size(); ++i) {
    DecoderSink sink(*this, i + 1, out);
    decoder_->stages_[i]->finish(states_[i], sink);
  }
  *this = Stream(*decoder_, continues_);
}

void DecoderSink::part(std::string_view text) {
  if (stage_ == stream_.states_.size()) {
    out_ += text;
    return;
  }
  DecoderSink next(stream_, stage_ + 1, out_);
  stream_.decoder_->stages_[stage_]->part(stream_.states_[stage_], text, next);
}

void DecoderSink::end_token() {
  if (stage_ == stream_.states_.size()) return;
  DecoderSink next(stream_, stage_ + 1, out_);
  stream_.decoder_->stages_[stage_]->end_token(stream_.states_[stage_], next);
}

}  // namespace nereid::text
