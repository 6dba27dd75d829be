// Times of words, from the decoder's attention to the encoder's positions.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "speech/transcript.h"
#include "speech/vocabulary.h"

namespace nereid::speech {

// Scores (before the softmax) of some heads' attention over the encoder's positions, 20 ms each.
struct Attention {
  int64_t num_heads = 0, num_tokens = 0, num_positions = 0;
  std::vector<float> scores;  // [num_heads, num_tokens, num_positions]
};

// The median of `width` (odd) values around each one; the row is mirrored at its ends. Rows of at
// most width / 2 values stay.
void median_filter(std::span<float> row, int width);

// The cheapest path through costs [rows, columns] from the first cell to the last, each step one
// down, one right, or both: the cells' rows and columns.
std::vector<std::pair<int64_t, int64_t>> cheapest_path(std::span<const float> costs, int64_t rows,
                                                       int64_t columns);

// The seconds behind the window's begin at which each of tokens [first, last) of the attention
// begins. Scores of the window's `num_frames` (10
// ms) are turned into weights, standardised over the tokens, smoothed and averaged over the heads.
// InvalidArgument: shapes that do not fit. Source: timing.py of openai/whisper.
StatusOr<std::vector<double>> token_times(Attention attention, int64_t first, int64_t last,
                                          int64_t num_frames);

// A word's tokens.
struct TokenWord {
  std::string text;
  std::vector<int32_t> tokens;
};
using Decode = std::function<std::string(std::span<const int32_t>)>;

// Text tokens in words: at characters that are whole, where `by_spaces` at spaces and punctuation.
std::vector<TokenWord> split_words(std::span<const int32_t> tokens, const Decode& decode,
                                   bool by_spaces);
// Whether words of the language are written with spaces between them.
bool has_spaces(std::string_view language);

// Puts opening punctuation to the word behind it, other punctuation to the word before.
void merge_punctuation(std::vector<Word>& words);

// Words with times behind the window's begin, for the segments' text tokens in order: gives the
// segments their words, shortens such as are too long for what they are, and moves the segments'
// ends to them. `offset` is the window's begin and `last_speech` the end of the word before, which
// is updated; all in seconds.
void add_words(std::vector<Word> words, double offset, const Vocabulary& vocabulary,
               std::vector<Segment>& segments, double& last_speech);

}  // namespace nereid::speech
