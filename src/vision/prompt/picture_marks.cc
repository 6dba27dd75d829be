#include "vision/prompt/picture_marks.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/find_text.h"
#include "base/json_members.h"

namespace nereid::vision {
namespace {

// The id in config.json, also inside "pretrained_config", where `build` keeps it.
std::optional<int32_t> configured_id(const std::filesystem::path& dir) {
  const auto config = read_json_file(dir / "config.json");
  if (!config.ok()) return std::nullopt;
  for (const json::object* from :
       {&object_or_empty(*config), &object_member(*config, "pretrained_config")})
    for (const char* key : {"image_token_id", "image_token_index"}) {
      const json::value& value = member_or_null(*from, key);
      if (value.is_int64() && value.get_int64() >= 0 &&
          value.get_int64() <= std::numeric_limits<int32_t>::max())
        return static_cast<int32_t>(value.get_int64());
    }
  return std::nullopt;
}

// The texts around the token of a kind of model. Source: the processors of transformers.
struct Texts {
  std::string_view token;
  std::string_view marker;  // "": the token
  std::string_view before, after;
  bool in_marker = false;  // `before` and `after` replace the marker; else templates write them
};
constexpr Texts kTexts[] = {
    {"<|image_pad|>", "", "<|vision_start|>", "<|vision_end|>", false},
    {"<image_soft_token>", "<start_of_image>", "\n\n<start_of_image>", "<end_of_image>\n\n", true},
    {"<IMG_CONTEXT>", "", "<img>", "</img>", true},
    {"[IMG]", "", "", "", false},
    {"<image>", "", "", "", false},
    {"<|image|>", "", "", "", false},
};

// Special tokens divide a text, so that each part between them has ids of its own.
StatusOr<TileMarks> tile_marks(const text::Tokenizer& tokenizer, std::string_view around) {
  TileMarks out;
  const auto encode = [&](std::string_view text, std::vector<int32_t>& ids) -> Status {
    ASSIGN_OR_RETURN(ids, tokenizer.encode(text, {.add_special_tokens = false}));
    return ok();
  };
  RETURN_IF_ERROR(encode(around, out.around));
  RETURN_IF_ERROR(encode("<global-img>", out.whole));
  RETURN_IF_ERROR(encode("\n", out.row_end));
  RETURN_IF_ERROR(encode("\n\n", out.last_row_end));
  for (size_t row = 0; row < out.names.size(); ++row)
    for (size_t column = 0; column < out.names[row].size(); ++column)
      RETURN_IF_ERROR(
          encode(fmt::format("<row_{}_col_{}>", row + 1, column + 1), out.names[row][column]));
  return out;
}

// The tokens of a picture in tiles.
void add_tiles(const TileMarks& marks, int32_t id, const PictureTokens& picture,
               std::vector<int32_t>& ids, std::vector<TokenSpan>& spans) {
  const auto add = [&](const std::vector<int32_t>& more) {
    ids.insert(ids.end(), more.begin(), more.end());
  };
  const auto add_tile = [&](const std::vector<int32_t>& name) {
    add(marks.around), add(name);
    spans.push_back({static_cast<int32_t>(ids.size()), picture.count});
    ids.insert(ids.end(), static_cast<size_t>(picture.count), id);
  };
  for (int32_t row = 0; row < picture.tile_rows; ++row) {
    for (int32_t column = 0; column < picture.tile_columns; ++column)
      add_tile(marks.names[static_cast<size_t>(row)][static_cast<size_t>(column)]);
    add(row + 1 < picture.tile_rows ? marks.row_end : marks.last_row_end);
  }
  add_tile(marks.whole);
  add(marks.around);
}

}  // namespace

bool PictureMarks::is_in(std::string_view text) const {
  return find_text(text, token) != std::string_view::npos ||
         find_text(text, marker) != std::string_view::npos;
}

StatusOr<PictureMarks> find_marks(const std::filesystem::path& dir,
                                  const text::Tokenizer& tokenizer) {
  PictureMarks out;
  const std::optional<int32_t> id = configured_id(dir);
  if (id && *id < tokenizer.vocab_size()) {
    out.token = tokenizer.token_bytes(*id);
    out.id = *id;
  }
  Texts texts;
  for (const Texts& known : kTexts) {
    const auto known_id = tokenizer.token_id(known.token);
    if (!known_id || (!out.token.empty() && out.token != known.token)) continue;
    texts = known;
    out.token = known.token;
    out.id = *known_id;
    break;
  }
  if (out.token.empty())
    return unsupported("the tokenizer in {} has no token for pictures", dir.string());
  out.marker = texts.marker.empty() ? out.token : std::string(texts.marker);
  const std::string whole = fmt::format("{}{}{}", texts.before, out.token, texts.after);
  out.shown = texts.in_marker ? whole : out.token;
  out.in_text = texts.in_marker ? out.marker : whole;
  const auto row_break = tokenizer.token_id("[IMG_BREAK]"), end = tokenizer.token_id("[IMG_END]");
  if (out.token == "[IMG]" && row_break && end) out.row_break_id = *row_break, out.end_id = *end;
  constexpr std::string_view kAround = "<fake_token_around_image>";
  if (out.token == "<image>" && tokenizer.token_id(kAround)) {
    ASSIGN_OR_RETURN(TileMarks tiles, tile_marks(tokenizer, kAround));
    out.tiles = std::make_shared<const TileMarks>(std::move(tiles));
  }
  return out;
}

std::string with_shown_marks(std::string_view prompt, const PictureMarks& marks) {
  std::string out;
  for (size_t at; (at = find_text(prompt, marks.marker)) != std::string_view::npos;) {
    out.append(prompt.substr(0, at)).append(marks.shown);
    prompt.remove_prefix(at + marks.marker.size());
  }
  return out.append(prompt);
}

StatusOr<std::vector<TokenSpan>> place_pictures(const PictureMarks& marks,
                                                const std::vector<PictureTokens>& pictures,
                                                std::vector<int32_t>& ids) {
  const auto num_marks = static_cast<size_t>(std::ranges::count(ids, marks.id));
  if (num_marks != pictures.size())
    return invalid_argument("the prompt has '{}' {} times for {} pictures", marks.token, num_marks,
                            pictures.size());
  std::vector<TokenSpan> spans;
  std::vector<int32_t> out;
  size_t index = 0;
  for (const int32_t id : ids) {
    if (id != marks.id) {
      out.push_back(id);
      continue;
    }
    const PictureTokens& picture = pictures[index++];
    if (marks.tiles) {
      add_tiles(*marks.tiles, id, picture, out, spans);
      continue;
    }
    const size_t first = out.size();
    for (int32_t i = 0; i < picture.count; ++i) {
      out.push_back(marks.id);
      const bool ends_row = marks.row_break_id >= 0 && (i + 1) % picture.columns == 0;
      if (ends_row) out.push_back(i + 1 < picture.count ? marks.row_break_id : marks.end_id);
    }
    spans.push_back({static_cast<int32_t>(first), static_cast<int32_t>(out.size() - first)});
  }
  ids = std::move(out);
  return spans;
}

}  // namespace nereid::vision
