// Marks of pictures in prompts: a text, then a token for each row of the encoder's output.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer/tokenizer.h"
#include "vision/picture.h"

namespace nereid::vision {

// Tokens around pictures in tiles (Idefics 3, SmolVLM): `around`, the tile's name, its tokens; a
// line break behind each row; the whole picture likewise, and `around`.
struct TileMarks {
  std::vector<int32_t> around, whole, row_end, last_row_end;
  // By row and column.
  std::array<std::array<std::vector<int32_t>, kMaxTilesOnSide>, kMaxTilesOnSide> names;
};

struct PictureMarks {
  std::string marker;   // as chat templates write it
  std::string shown;    // in its place before the prompt is tokenised, with `token` once
  std::string in_text;  // in a message whose template has no parts
  std::string token;    // the one that is repeated
  int32_t id = 0;       // of `token`
  // Tokens behind each row of a picture and behind its last row (Pixtral); -1: none.
  int32_t row_break_id = -1, end_id = -1;
  std::shared_ptr<const TileMarks> tiles;  // null: a picture's tokens are its own

  // Whether `text` could stand for a picture.
  bool is_in(std::string_view text) const;
};

// The marks of a model: its token is image_token_id or image_token_index of `dir`/config.json, else
// a token that models use for pictures. Unimplemented: the tokenizer has none.
StatusOr<PictureMarks> find_marks(const std::filesystem::path& dir,
                                  const text::Tokenizer& tokenizer);

// `prompt` with `shown` for each marker.
std::string with_shown_marks(std::string_view prompt, const PictureMarks& marks);

using TokenSpan = std::array<int32_t, 2>;  // first token, number of tokens

// The tokens of a picture, `count` of which `columns` are in a row, or those of each of its tiles;
// numbers of tiles as in Patches.
struct PictureTokens {
  int32_t count = 0, columns = 0;
  int32_t tile_rows = 0, tile_columns = 0;
};
inline PictureTokens tokens_of(const Patches& p) {
  return {p.num_tokens, p.token_columns, p.tile_rows, p.tile_columns};
}

// Repeats the i-th token of a picture in `ids` as `pictures`[i] has it, with the marks' breaks: the
// spans, breaks included, of tiles one each. InvalidArgument, with `ids` as they were: there are
// more or fewer.
StatusOr<std::vector<TokenSpan>> place_pictures(const PictureMarks& marks,
                                                const std::vector<PictureTokens>& pictures,
                                                std::vector<int32_t>& ids);

}  // namespace nereid::vision
