#include "text/tokenizer/normalizer.h"

#include <memory>

#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/pattern.h"
#include "text/unicode/chars.h"
#include "text/unicode/classes.h"
#include "text/unicode/normalize.h"
#include "text/unicode/utf8.h"

namespace nereid::text {

namespace {

constexpr int kMaxNestedNormalizers = 8;
constexpr size_t kMaxNormalizers = 64;
constexpr size_t kMaxInsertBytes = 4096;

constexpr char32_t kDropped = 0xFFFFFFFF;

// Replaces every character by `map` of it; kDropped removes it.
template <class Map>
void map_characters(NormalText& text, const Map& map) {
  std::string out;
  out.reserve(text.text.size());
  for (std::string_view rest = text.text; !rest.empty();) {
    const Utf8Step step = utf8_step(rest);
    const char32_t mapped = map(step.code);
    if (mapped != kDropped) {
      append_utf8(out, mapped);
    } else if (out.empty()) {
      text.at_start = false;
    }
    rest.remove_prefix(step.length);
  }
  text.text = std::move(out);
}

void lower_case(NormalText& text) {
  std::string out;
  out.reserve(text.text.size());
  for (std::string_view rest = text.text; !rest.empty();) {
    const Utf8Step step = utf8_step(rest);
    append_lower_case(out, step.code);
    rest.remove_prefix(step.length);
  }
  text.text = std::move(out);
}

template <NormalForm kForm>
StatusOr<NormalizerStep> read_form(const JsonNode&) {
  return [](NormalText& text) { return normalize_unicode(kForm, text.text); };
}

StatusOr<NormalizerStep> read_lowercase(const JsonNode&) {
  return [](NormalText& text) {
    lower_case(text);
    return ok();
  };
}

StatusOr<NormalizerStep> read_strip_accents(const JsonNode&) {
  return [](NormalText& text) {
    map_characters(text, [](char32_t c) { return (char_class(c) & kMark) != 0 ? kDropped : c; });
    return ok();
  };
}

StatusOr<NormalizerStep> read_strip(const JsonNode& spec) {
  ASSIGN_OR_RETURN(const bool left, spec["strip_left"].boolean(true));
  ASSIGN_OR_RETURN(const bool right, spec["strip_right"].boolean(true));
  return [left, right](NormalText& text) {
    std::string_view rest = text.text;
    while (left && !rest.empty()) {
      const Utf8Step step = utf8_step(rest);
      if (!is_space(step.code)) break;
      rest.remove_prefix(step.length);
      text.at_start = false;
    }
    while (right && !rest.empty()) {
      const auto [code, at] = utf8_last(rest);
      if (!is_space(code)) break;
      rest = rest.substr(0, at);
    }
    text.text = std::string(rest);
    return ok();
  };
}

StatusOr<NormalizerStep> read_prepend(const JsonNode& spec) {
  ASSIGN_OR_RETURN(const std::string_view prefix, spec["prepend"].bounded_string(kMaxInsertBytes));
  return [prefix = std::string(prefix)](NormalText& text) {
    if (!text.text.empty()) text.text.insert(0, prefix);
    return ok();
  };
}

StatusOr<NormalizerStep> read_replace(const JsonNode& spec) {
  ASSIGN_OR_RETURN(const Pattern pattern, Pattern::from_json(spec["pattern"]));
  ASSIGN_OR_RETURN(const std::string_view content, spec["content"].bounded_string(kMaxInsertBytes));
  return [pattern, content = std::string(content)](NormalText& text) -> Status {
    ASSIGN_OR_RETURN(const bool start_stays,
                     pattern.replace_all(text.text, content, text.work->max_bytes(), *text.work));
    text.at_start = text.at_start && start_stays;
    return ok();
  };
}

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

char32_t clean_character(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return ' ';
  if (c == 0 || c == 0xFFFD || (char_class(c) & kControl) != 0) return kDropped;
  return is_space(c) ? ' ' : c;
}

void space_around_chinese(NormalText& text) {
  std::string out;
  out.reserve(text.text.size() + text.text.size() / 2);
  for (std::string_view rest = text.text; !rest.empty();) {
    const Utf8Step step = utf8_step(rest);
    const bool chinese = is_chinese(step.code);
    if (chinese) out += ' ';
    out += rest.substr(0, step.length);
    if (chinese) out += ' ';
    rest.remove_prefix(step.length);
  }
  text.text = std::move(out);
}

StatusOr<NormalizerStep> read_bert(const JsonNode& spec) {
  ASSIGN_OR_RETURN(const bool clean, spec["clean_text"].boolean(true));
  ASSIGN_OR_RETURN(const bool chinese, spec["handle_chinese_chars"].boolean(true));
  ASSIGN_OR_RETURN(const bool lower, spec["lowercase"].boolean(true));
  ASSIGN_OR_RETURN(const bool strip, spec["strip_accents"].boolean(lower));
  return [clean, chinese, lower, strip](NormalText& text) -> Status {
    if (clean) map_characters(text, clean_character);
    if (chinese) space_around_chinese(text);
    if (strip) {
      RETURN_IF_ERROR(normalize_unicode(NormalForm::kNfd, text.text));
      map_characters(text, [](char32_t c) { return is_nonspacing_mark(c) ? kDropped : c; });
    }
    if (lower) lower_case(text);
    return ok();
  };
}

char32_t nmt_character(char32_t c) {
  if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
      c == 0x9F) {
    return kDropped;
  }
  const bool blank = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                     (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                     c == 0xFEFF || c == 0xFFFD;
  return blank ? ' ' : c;
}

StatusOr<NormalizerStep> read_nmt(const JsonNode&) {
  return [](NormalText& text) {
    map_characters(text, nmt_character);
    return ok();
  };
}

// The reference's rule: a short grapheme cluster that begins with a key becomes the replacement of
// the shortest such key; other clusters are mapped character by character.
Status apply_charsmap(const Charsmap& map, NormalText& text) {
  constexpr size_t kLongCluster = 6;
  std::string out;
  out.reserve(text.text.size());
  const auto put = [&](std::string_view part) {
    const Charsmap::Match match = map.shortest(part);
    out += match.length > 0 ? match.replacement : part;
  };
  for (std::string_view rest = text.text; !rest.empty();) {
    const std::string_view cluster = rest.substr(0, grapheme_length(rest));
    rest.remove_prefix(cluster.size());
    RETURN_IF_ERROR(text.work->check_bytes(out.size()));
    if (cluster.size() < kLongCluster) {
      const Charsmap::Match match = map.shortest(cluster);
      if (match.length > 0) {
        out += match.replacement;
        continue;
      }
    }
    for (std::string_view part = cluster; !part.empty();) {
      RETURN_IF_ERROR(text.work->check_bytes(out.size()));
      const size_t length = utf8_step(part).length;
      put(part.substr(0, length));
      part.remove_prefix(length);
    }
  }
  text.text = std::move(out);
  return ok();
}

StatusOr<NormalizerStep> read_precompiled(const JsonNode& spec) {
  const JsonNode field = spec["precompiled_charsmap"];
  ASSIGN_OR_RETURN(const std::string_view text, field.string());
  auto map = Charsmap::parse_base64(text);
  if (!map.ok()) return annotate(map.status(), field.path());
  return [map = std::make_shared<const Charsmap>(*std::move(map))](NormalText& text) {
    return map->empty() ? ok() : apply_charsmap(*map, text);
  };
}

StatusOr<NormalizerStep> read_byte_level(const JsonNode&) {
  return [](NormalText& text) {
    std::string out;
    append_byte_letters(text.text, out);
    text.text = std::move(out);
    return ok();
  };
}

struct NormalizerRow {
  std::string_view type;
  StatusOr<NormalizerStep> (*read)(const JsonNode& spec);  // null: Sequence
};

constexpr NormalizerRow kNormalizers[] = {
    {"Sequence", nullptr},
    {"NFC", read_form<NormalForm::kNfc>},
    {"NFD", read_form<NormalForm::kNfd>},
    {"NFKC", read_form<NormalForm::kNfkc>},
    {"NFKD", read_form<NormalForm::kNfkd>},
    {"Lowercase", read_lowercase},
    {"Strip", read_strip},
    {"StripAccents", read_strip_accents},
    {"Prepend", read_prepend},
    {"Replace", read_replace},
    {"BertNormalizer", read_bert},
    {"Precompiled", read_precompiled},
    {"Nmt", read_nmt},
    {"ByteLevel", read_byte_level},
};

}  // namespace

StatusOr<Normalizer> Normalizer::from_json(const JsonNode& spec) {
  Normalizer result;
  if (!spec.is_null()) RETURN_IF_ERROR(result.append(spec, 0));
  return result;
}

Normalizer Normalizer::from_step(NormalizerStep step) {
  Normalizer result;
  result.steps_.push_back(std::move(step));
  return result;
}

Status Normalizer::append(const JsonNode& spec, int depth) {
  if (depth > kMaxNestedNormalizers || steps_.size() >= kMaxNormalizers) {
    return invalid_argument("{}: more than {} nested or {} chained normalizers", spec.path(),
                            kMaxNestedNormalizers, kMaxNormalizers);
  }
  ASSIGN_OR_RETURN(const NormalizerRow* row, spec.row_of_type(kNormalizers));
  if (row->read != nullptr) {
    ASSIGN_OR_RETURN(NormalizerStep step, row->read(spec));
    steps_.push_back(std::move(step));
    return ok();
  }
  const JsonNode list = spec["normalizers"];
  ASSIGN_OR_RETURN(const json::array* items, list.array());
  for (size_t i = 0; i < items->size(); ++i) RETURN_IF_ERROR(append(list[i], depth + 1));
  return ok();
}

Status Normalizer::run(NormalText& text) const {
  for (const NormalizerStep& step : steps_) {
    RETURN_IF_ERROR(text.work->charge(text.text.size() + 1));
    RETURN_IF_ERROR(step(text));
    RETURN_IF_ERROR(text.work->check_bytes(text.text.size()));
  }
  return ok();
}

}  // namespace nereid::text
