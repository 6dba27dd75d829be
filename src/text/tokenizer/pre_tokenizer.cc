#include "text/tokenizer/pre_tokenizer.h"

#include <utility>

#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/word_scanner.h"
#include "text/unicode/chars.h"
#include "text/unicode/classes.h"
#include "text/unicode/scripts.h"
#include "text/unicode/utf8.h"

namespace nereid::text {

namespace {

using Step = PreTokenizer::Step;
using Steps = std::vector<Step>;

constexpr int kMaxNestedSteps = 8;
constexpr size_t kMaxSteps = 64;

Step split_step(FindMatches find, SplitBehavior behavior, bool invert = false) {
  return {[find = std::move(find), behavior, invert](Pieces& pieces) {
    return split_pieces(pieces, find, behavior, invert);
  }};
}

// Finds every character for which `is_match` is true.
template <class IsMatch>
FindMatches each_character(IsMatch is_match) {
  return [is_match](std::string_view word, std::vector<Span>& matches, EncodeWork&) {
    for (size_t at = 0; at < word.size();) {
      const Utf8Step step = utf8_step(word.substr(at));
      if (is_match(step.code)) matches.push_back({at, at + step.length});
      at += step.length;
    }
    return ok();
  };
}

bool is_punctuation(char32_t c) { return is_ascii_punctuation(c) || (char_class(c) & kPunct) != 0; }

Step word_step(WordRule rule) {
  const auto cut = [rule](Pieces& pieces) {
    std::vector<Span> out;
    out.reserve(pieces.text.size() / 4);
    for (size_t i = 0; i < pieces.spans.size(); ++i) {
      scan_words(rule, pieces.piece(i), pieces.spans[i].begin, out);
    }
    // White space before the first word was dropped.
    if (!out.empty() && out[0].begin != pieces.spans[0].begin) pieces.at_start = false;
    pieces.spans = std::move(out);
    return ok();
  };
  return {cut, rule};
}

Status read_split(const JsonNode& spec, Steps& steps) {
  ASSIGN_OR_RETURN(const SplitBehavior behavior, read_split_behavior(spec["behavior"]));
  ASSIGN_OR_RETURN(const bool invert, spec["invert"].boolean(false));
  ASSIGN_OR_RETURN(const Pattern pattern, Pattern::from_json(spec["pattern"]));
  // These patterns' matches leave no gaps.
  const auto rule = pattern.string() ? std::nullopt : word_rule_of(pattern.text());
  if (rule &&
      (behavior == SplitBehavior::kIsolated || (behavior == SplitBehavior::kRemoved && invert))) {
    steps.push_back(word_step(*rule));
    return ok();
  }
  steps.push_back(
      split_step([pattern](std::string_view word, std::vector<Span>& matches,
                           EncodeWork& work) { return pattern.find_all(word, matches, work); },
                 behavior, invert));
  return ok();
}

Status read_byte_level(const JsonNode& spec, Steps& steps) {
  ASSIGN_OR_RETURN(const bool prefix, spec["add_prefix_space"].boolean(true));
  ASSIGN_OR_RETURN(const bool use_regex, spec["use_regex"].boolean(true));
  if (prefix) {
    steps.push_back({[](Pieces& pieces) {
      rewrite_pieces(pieces, [](std::string_view word, bool, std::string& out) {
        if (word[0] != ' ') out += ' ';
        out += word;
      });
      return ok();
    }});
  }
  if (use_regex) steps.push_back(word_step(WordRule::kGpt2));
  steps.push_back({[](Pieces& pieces) {
    rewrite_pieces(pieces, [](std::string_view word, bool, std::string& out) {
      append_byte_letters(word, out);
    });
    return ok();
  }});
  return ok();
}

enum class Prepend { kAlways, kFirst, kNever };

StatusOr<Prepend> read_prepend_scheme(const JsonNode& spec) {
  ASSIGN_OR_RETURN(const bool prefix, spec["add_prefix_space"].boolean(true));
  const JsonNode field = spec["prepend_scheme"];
  ASSIGN_OR_RETURN(const std::string_view name, field.string(prefix ? "always" : "never"));
  if (name == "always") return Prepend::kAlways;
  if (name == "first") return Prepend::kFirst;
  if (name == "never") return Prepend::kNever;
  return field.wrong("always, first or never");
}

Status read_metaspace(const JsonNode& spec, Steps& steps) {
  ASSIGN_OR_RETURN(const char32_t code, spec["replacement"].character());
  ASSIGN_OR_RETURN(const Prepend prepend, read_prepend_scheme(spec));
  ASSIGN_OR_RETURN(const bool split, spec["split"].boolean(true));
  std::string mark;
  append_utf8(mark, code);
  steps.push_back({[mark, prepend](Pieces& pieces) {
    rewrite_pieces(pieces, [&](std::string_view word, bool at_start, std::string& out) {
      const bool marked = word[0] == ' ' || word.starts_with(mark);
      const bool wanted = prepend == Prepend::kAlways || (prepend == Prepend::kFirst && at_start);
      if (wanted && !marked) out += mark;
      for (const char c : word) {
        if (c == ' ') {
          out += mark;
        } else {
          out += c;
        }
      }
    });
    return ok();
  }});
  if (!split) return ok();
  steps.push_back(
      split_step([pattern = Pattern::of_string(mark)](
                     std::string_view word, std::vector<Span>& matches,
                     EncodeWork& work) { return pattern.find_all(word, matches, work); },
                 SplitBehavior::kMergedWithNext));
  return ok();
}

Status read_digits(const JsonNode& spec, Steps& steps) {
  ASSIGN_OR_RETURN(const bool individual, spec["individual_digits"].boolean(false));
  steps.push_back(
      split_step(each_character([](char32_t c) { return (char_class(c) & kNumber) != 0; }),
                 individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous));
  return ok();
}

Status read_punctuation(const JsonNode& spec, Steps& steps) {
  SplitBehavior behavior = SplitBehavior::kIsolated;
  if (!spec["behavior"].is_null()) {
    ASSIGN_OR_RETURN(behavior, read_split_behavior(spec["behavior"]));
  }
  steps.push_back(split_step(each_character(is_punctuation), behavior));
  return ok();
}

Status read_whitespace(const JsonNode&, Steps& steps) {
  steps.push_back(word_step(WordRule::kWhitespace));
  return ok();
}

Status read_whitespace_split(const JsonNode&, Steps& steps) {
  steps.push_back(split_step(each_character(is_space), SplitBehavior::kRemoved));
  return ok();
}

Status read_bert(const JsonNode& spec, Steps& steps) {
  RETURN_IF_ERROR(read_whitespace_split(spec, steps));
  steps.push_back(split_step(each_character(is_punctuation), SplitBehavior::kIsolated));
  return ok();
}

Status read_delimiter(const JsonNode& spec, Steps& steps) {
  ASSIGN_OR_RETURN(const char32_t delimiter, spec["delimiter"].character());
  steps.push_back(split_step(each_character([delimiter](char32_t c) { return c == delimiter; }),
                             SplitBehavior::kRemoved));
  return ok();
}

// Splits into runs of one script. A space belongs to the run before it; spaces before the
// first run are dropped.
Status read_scripts(const JsonNode&, Steps& steps) {
  const auto find = [](std::string_view word, std::vector<Span>& matches, EncodeWork&) {
    int last = kAnyScript;
    for (size_t at = 0; at < word.size();) {
      const Utf8Step step = utf8_step(word.substr(at));
      const int script = script_of(step.code);
      const size_t end = at + step.length;
      if (script != kAnyScript && (matches.empty() || script != last)) {
        matches.push_back({at, end});
        last = script;
      } else if (!matches.empty()) {
        matches.back().end = end;
      }
      at = end;
    }
    return ok();
  };
  steps.push_back(split_step(find, SplitBehavior::kRemoved, /*invert=*/true));
  return ok();
}

Status read_fixed_length(const JsonNode& spec, Steps& steps) {
  ASSIGN_OR_RETURN(const int64_t length, spec["length"].integer(5, 1, 1 << 20));
  const auto find = [length](std::string_view word, std::vector<Span>& matches, EncodeWork&) {
    size_t begin = 0, at = 0;
    for (int64_t count = 0; at < word.size();) {
      at += utf8_step(word.substr(at)).length;
      if (++count % length == 0 || at == word.size()) {
        matches.push_back({begin, at});
        begin = at;
      }
    }
    return ok();
  };
  steps.push_back(split_step(find, SplitBehavior::kIsolated));
  return ok();
}

struct PreTokenizerRow {
  std::string_view type;
  Status (*read)(const JsonNode& spec, Steps& steps);  // null: Sequence
};

constexpr PreTokenizerRow kPreTokenizers[] = {
    {"Sequence", nullptr},
    {"ByteLevel", read_byte_level},
    {"Split", read_split},
    {"Metaspace", read_metaspace},
    {"Digits", read_digits},
    {"Punctuation", read_punctuation},
    {"Whitespace", read_whitespace},
    {"WhitespaceSplit", read_whitespace_split},
    {"BertPreTokenizer", read_bert},
    {"CharDelimiterSplit", read_delimiter},
    {"UnicodeScripts", read_scripts},
    {"FixedLength", read_fixed_length},
};

}  // namespace

StatusOr<PreTokenizer> PreTokenizer::from_json(const JsonNode& spec) {
  PreTokenizer result;
  if (!spec.is_null()) RETURN_IF_ERROR(result.append(spec, 0));
  return result;
}

Status PreTokenizer::append(const JsonNode& spec, int depth) {
  if (depth > kMaxNestedSteps || steps_.size() > kMaxSteps) {
    return invalid_argument("{}: more than {} nested or {} chained steps", spec.path(),
                            kMaxNestedSteps, kMaxSteps);
  }
  ASSIGN_OR_RETURN(const PreTokenizerRow* row, spec.row_of_type(kPreTokenizers));
  if (row->read != nullptr) {
    RETURN_IF_ERROR(row->read(spec, steps_));
    byte_letters_ = row->type == "ByteLevel";
    return ok();
  }
  const JsonNode list = spec["pretokenizers"];
  ASSIGN_OR_RETURN(const json::array* items, list.array());
  for (size_t i = 0; i < items->size(); ++i) RETURN_IF_ERROR(append(list[i], depth + 1));
  return ok();
}

void PreTokenizer::drop_byte_letters() {
  if (byte_letters_) steps_.pop_back();
  byte_letters_ = false;
}

Status PreTokenizer::run(std::string_view text, bool at_start, EncodeWork& work,
                         Pieces& pieces) const {
  pieces.reset(text, at_start, work);
  for (const Step& step : steps_) {
    RETURN_IF_ERROR(work.charge(pieces.text.size() + pieces.spans.size() + 1));
    RETURN_IF_ERROR(step.run(pieces));
    RETURN_IF_ERROR(work.check_bytes(pieces.text.size()));
  }
  return ok();
}

}  // namespace nereid::text
