#include "text/pre_tokenizer.h"

#include <algorithm>
#include <optional>

#include "text/byte_level.h"
#include "text/json_fields.h"
#include "text/unicode/chars.h"
#include "text/unicode/utf8.h"

namespace nereid::text {

namespace {

constexpr int kMaxNestedSteps = 8;
constexpr size_t kMaxSteps = 64;
// GPT-2's word pattern, which ByteLevel applies when use_regex is set.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

bool starts_with_space(std::string_view piece) {
  return !piece.empty() && is_space(utf8_step(piece).code);
}

}  // namespace

void Pieces::add(std::string_view piece) {
  if (piece.empty()) return;
  text += piece;
  ends.push_back(text.size());
}

std::string_view Pieces::piece(size_t i) const {
  const size_t begin = i == 0 ? 0 : ends[i - 1];
  return std::string_view(text).substr(begin, ends[i] - begin);
}

StatusOr<PreTokenizer> PreTokenizer::from_json(const json::value& spec) {
  PreTokenizer result;
  if (!spec.is_null()) RETURN_IF_ERROR(result.append(spec, 0));
  return result;
}

Status PreTokenizer::append(const json::value& spec, int depth) {
  if (depth > kMaxNestedSteps || steps_.size() > kMaxSteps) {
    return invalid_argument("pre_tokenizer: more than {} nested or {} chained steps",
                            kMaxNestedSteps, kMaxSteps);
  }
  ASSIGN_OR_RETURN(const json::object* object, as_object(spec, "pre_tokenizer"));
  ASSIGN_OR_RETURN(const std::string_view type, string_field(*object, "type"));
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const json::array* list, array_field(*object, "pretokenizers"));
    for (const json::value& item : *list) RETURN_IF_ERROR(append(item, depth + 1));
    return ok();
  }
  if (type == "Split") return append_split(*object);
  if (type == "ByteLevel") return append_byte_level(*object);
  if (type == "Digits") {
    ASSIGN_OR_RETURN(const bool individual, bool_field(*object, "individual_digits", false));
    ASSIGN_OR_RETURN(Regex regex, Regex::compile("\\p{N}"));
    steps_.push_back(
        Split{std::move(regex), individual ? Behavior::kIsolated : Behavior::kContiguous, false});
    return ok();
  }
  return unsupported("pre_tokenizer type '{}': allowed are Sequence, Split, ByteLevel and Digits",
                     type);
}

Status PreTokenizer::append_split(const json::object& spec) {
  static constexpr std::pair<std::string_view, Behavior> kBehaviors[] = {
      {"Removed", Behavior::kRemoved},
      {"Isolated", Behavior::kIsolated},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous}};
  ASSIGN_OR_RETURN(const std::string_view name, string_field(spec, "behavior"));
  const auto* behavior = std::find_if(std::begin(kBehaviors), std::end(kBehaviors),
                                      [&](const auto& entry) { return entry.first == name; });
  if (behavior == std::end(kBehaviors)) {
    return invalid_argument(
        "Split behavior '{}': allowed are Removed, Isolated, MergedWithPrevious, MergedWithNext "
        "and Contiguous",
        name);
  }
  ASSIGN_OR_RETURN(const bool invert, bool_field(spec, "invert", false));
  ASSIGN_OR_RETURN(const json::object* pattern, object_field(spec, "pattern"));
  std::optional<Regex> regex;
  if (pattern->contains("Regex")) {
    ASSIGN_OR_RETURN(const std::string_view text, string_field(*pattern, "Regex"));
    ASSIGN_OR_RETURN(regex, Regex::compile(text));
  } else {
    ASSIGN_OR_RETURN(const std::string_view text, string_field(*pattern, "String"));
    ASSIGN_OR_RETURN(regex, Regex::literal(text));
  }
  steps_.push_back(Split{*std::move(regex), behavior->second, invert});
  return ok();
}

Status PreTokenizer::append_byte_level(const json::object& spec) {
  ASSIGN_OR_RETURN(const bool prefix, bool_field(spec, "add_prefix_space", true));
  ASSIGN_OR_RETURN(const bool use_regex, bool_field(spec, "use_regex", true));
  if (prefix) steps_.push_back(PrefixSpace{});
  if (use_regex) {
    ASSIGN_OR_RETURN(Regex regex, Regex::compile(kGpt2Pattern));
    steps_.push_back(Split{std::move(regex), Behavior::kIsolated, false});
  }
  steps_.push_back(BytesToLetters{});
  return ok();
}

StatusOr<Pieces> PreTokenizer::run(std::string_view text) const {
  Pieces pieces;
  pieces.add(text);
  std::vector<Span> scratch;
  for (const Step& step : steps_) {
    Pieces next;
    next.text.reserve(pieces.text.size());
    next.ends.reserve(pieces.ends.size());
    for (size_t i = 0; i < pieces.ends.size(); ++i) {
      const std::string_view piece = pieces.piece(i);
      if (const auto* split = std::get_if<Split>(&step)) {
        RETURN_IF_ERROR(run_split(*split, piece, scratch, next));
      } else if (std::holds_alternative<PrefixSpace>(step)) {
        if (!starts_with_space(piece)) next.text += ' ';
        next.add(piece);
      } else {
        append_byte_letters(piece, next.text);
        next.ends.push_back(next.text.size());
      }
    }
    pieces = std::move(next);
  }
  return pieces;
}

// The pieces are matches and the gaps between them; `behavior` says which of them join or vanish.
Status PreTokenizer::run_split(const Split& split, std::string_view piece,
                               std::vector<Span>& scratch, Pieces& out) {
  scratch.clear();
  RETURN_IF_ERROR(split.regex.find_all(piece, scratch));
  struct Part {
    Span span;
    bool match;
  };
  std::vector<Part> parts;
  size_t at = 0;
  for (const Span& m : scratch) {
    if (m.begin > at) parts.push_back({{at, m.begin}, split.invert});
    parts.push_back({m, !split.invert});
    at = m.end;
  }
  if (at < piece.size()) parts.push_back({{at, piece.size()}, split.invert});

  std::vector<Span> joined;
  bool previous_match = false;
  const auto grow = [&](const Part& part, bool join) {
    if (join && !joined.empty()) {
      joined.back() = {std::min(joined.back().begin, part.span.begin),
                       std::max(joined.back().end, part.span.end)};
    } else {
      joined.push_back(part.span);
    }
    previous_match = part.match;
  };
  switch (split.behavior) {
    case Behavior::kRemoved:
      for (const Part& p : parts) {
        if (!p.match) joined.push_back(p.span);
      }
      break;
    case Behavior::kIsolated:
      for (const Part& p : parts) joined.push_back(p.span);
      break;
    case Behavior::kContiguous:
      for (const Part& p : parts) grow(p, p.match == previous_match);
      break;
    case Behavior::kMergedWithPrevious:
      for (const Part& p : parts) grow(p, p.match && !previous_match);
      break;
    case Behavior::kMergedWithNext:
      std::for_each(parts.rbegin(), parts.rend(),
                    [&](const Part& p) { grow(p, p.match && !previous_match); });
      std::reverse(joined.begin(), joined.end());
      break;
  }
  for (const Span& span : joined) out.add(piece.substr(span.begin, span.end - span.begin));
  return ok();
}

}  // namespace nereid::text
