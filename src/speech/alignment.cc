#include "speech/alignment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

namespace nereid::speech {
namespace {

constexpr int kMedianWidth = 7;
constexpr double kSecondsPerPosition = 0.02;

void softmax(std::span<float> row) {
  const float largest = *std::ranges::max_element(row);
  double sum = 0;
  for (float& x : row) sum += x = std::exp(x - largest);
  for (float& x : row) x = static_cast<float>(x / sum);
}

// Mean 0 and variance 1 of each position over the tokens; 0 where all are equal.
void standardise(std::span<float> weights, int64_t tokens, int64_t positions) {
  for (int64_t p = 0; p < positions; ++p) {
    double sum = 0, squares = 0;
    const auto at = [&](int64_t t) -> float& {
      return weights[static_cast<size_t>(t * positions + p)];
    };
    for (int64_t t = 0; t < tokens; ++t) sum += at(t);
    const double mean = sum / static_cast<double>(tokens);
    for (int64_t t = 0; t < tokens; ++t) squares += (at(t) - mean) * (at(t) - mean);
    const double deviation = std::sqrt(squares / static_cast<double>(tokens));
    for (int64_t t = 0; t < tokens; ++t)
      at(t) = deviation == 0 ? 0 : static_cast<float>((at(t) - mean) / deviation);
  }
}

bool is_one_of(std::string_view text, std::span<const std::string_view> list) {
  return std::ranges::find(list, text) != list.end();
}

bool is_ascii_punctuation(std::string_view text) {
  return text.size() == 1 && text[0] > ' ' && text[0] < 0x7f &&
         std::string_view("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~").find(text[0]) !=
             std::string_view::npos;
}

constexpr auto kOpening =
    std::to_array<std::string_view>({"\"", "'", "“", "¿", "(", "[", "{", "-"});
constexpr auto kClosing = std::to_array<std::string_view>(
    {"\"", "'", ".", "。", ",", "，", "!", "！", "?", "？", ":", "：", "”", ")", "]", "}", "、"});
constexpr auto kSentenceEnds = std::to_array<std::string_view>({".", "。", "!", "！", "?", "？"});

double median_duration(const std::vector<Word>& words) {
  std::vector<double> durations;
  for (const Word& word : words)
    if (word.end != word.start) durations.push_back(word.end - word.start);
  if (durations.empty()) return 0;
  std::ranges::sort(durations);
  const size_t half = durations.size() / 2;
  const double median =
      durations.size() % 2 == 1 ? durations[half] : (durations[half - 1] + durations[half]) / 2;
  return std::min(0.7, median);
}

// Words at the end of a sentence last at most twice the median.
void shorten_at_sentence_ends(std::vector<Word>& words, double longest) {
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i].end - words[i].start <= longest) continue;
    if (is_one_of(words[i].text, kSentenceEnds))
      words[i].end = words[i].start + longest;
    else if (is_one_of(words[i - 1].text, kSentenceEnds))
      words[i].start = words[i].end - longest;
  }
}

double hundredths(double seconds) { return std::round(seconds * 100) / 100; }

// The first words behind a pause, and both ends of the segment.
void fit_segment(Segment& segment, double median, double last_speech) {
  std::vector<Word>& words = segment.words;
  const double longest = 2 * median;
  Word& first = words.front();
  const bool has_pause = first.end - last_speech > 4 * median;
  const bool is_long = first.end - first.start > longest ||
                       (words.size() > 1 && words[1].end - first.start > 2 * longest);
  if (has_pause && is_long) {
    if (words.size() > 1 && words[1].end - words[1].start > longest) {
      const double border = std::max(words[1].end / 2, words[1].end - longest);
      first.end = words[1].start = border;
    }
    first.start = std::max(0.0, first.end - longest);
  }
  if (segment.start < first.end && segment.start - 0.5 > first.start)
    first.start = std::max(0.0, std::min(first.end - median, segment.start));
  else
    segment.start = first.start;
  Word& last = words.back();
  if (segment.end > last.start && segment.end + 0.5 < last.end)
    last.end = std::max(last.start + median, segment.end);
  else
    segment.end = last.end;
}

}  // namespace

void median_filter(std::span<float> row, int width) {
  const int64_t size = std::ssize(row), half = width / 2;
  if (size <= half) return;
  const std::vector<float> before(row.begin(), row.end());
  std::vector<float> around(static_cast<size_t>(width));
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t j = -half; j <= half; ++j) {
      int64_t at = std::abs(i + j);
      if (at >= size) at = 2 * (size - 1) - at;
      around[static_cast<size_t>(j + half)] = before[static_cast<size_t>(at)];
    }
    const auto middle = around.begin() + half;
    std::nth_element(around.begin(), middle, around.end());
    row[static_cast<size_t>(i)] = *middle;
  }
}

std::vector<std::pair<int64_t, int64_t>> cheapest_path(std::span<const float> costs, int64_t rows,
                                                       int64_t columns) {
  enum Step : uint8_t { kBoth, kDown, kRight };
  constexpr float kFar = std::numeric_limits<float>::infinity();
  const auto cell = [columns](int64_t i, int64_t j) {
    return static_cast<size_t>(i * (columns + 1) + j);
  };
  std::vector<Step> steps(cell(rows, columns) + 1, kRight);
  // Costs of the paths to the row before and to this row.
  std::vector<float> before(static_cast<size_t>(columns) + 1, kFar), now(before);
  before[0] = 0;
  for (int64_t i = 1; i <= rows; ++i) {
    now[0] = kFar;
    for (int64_t j = 1; j <= columns; ++j) {
      const auto at = static_cast<size_t>(j);
      const float both = before[at - 1], down = before[at], right = now[at - 1];
      const Step step = both < down && both < right   ? kBoth
                        : down < both && down < right ? kDown
                                                      : kRight;
      const float least = step == kBoth ? both : step == kDown ? down : right;
      now[at] = costs[static_cast<size_t>((i - 1) * columns + j - 1)] + least;
      steps[cell(i, j)] = step;
    }
    std::swap(before, now);
  }
  std::vector<std::pair<int64_t, int64_t>> path;
  for (int64_t i = rows, j = columns; i > 0 && j > 0;) {
    path.emplace_back(i - 1, j - 1);
    Step step = steps[cell(i, j)];
    if (i == 1) step = kRight;
    if (j == 1 && i > 1) step = kDown;
    if (step != kRight) --i;
    if (step != kDown) --j;
  }
  std::ranges::reverse(path);
  return path;
}

StatusOr<std::vector<double>> token_times(Attention a, int64_t first, int64_t last,
                                          int64_t num_frames) {
  const int64_t positions = std::min(a.num_positions, num_frames / 2);
  if (a.num_heads < 1 || positions < 1 || first < 0 || first >= last || last > a.num_tokens ||
      std::ssize(a.scores) != a.num_heads * a.num_tokens * a.num_positions)
    return invalid_argument(
        "attention of {} heads, {} tokens and {} positions with {} values, for tokens {} to {} of "
        "a "
        "window of {} frames",
        a.num_heads, a.num_tokens, a.num_positions, a.scores.size(), first, last, num_frames);
  const int64_t rows = last - first;
  std::vector<float> costs(static_cast<size_t>(rows * positions));
  std::vector<float> weights(static_cast<size_t>(a.num_tokens * positions));
  for (int64_t head = 0; head < a.num_heads; ++head) {
    for (int64_t t = 0; t < a.num_tokens; ++t) {
      const auto from = a.scores.begin() + (head * a.num_tokens + t) * a.num_positions;
      const auto row = std::span(weights).subspan(static_cast<size_t>(t * positions),
                                                  static_cast<size_t>(positions));
      std::copy(from, from + positions, row.begin());
      softmax(row);
    }
    standardise(weights, a.num_tokens, positions);
    for (int64_t t = first; t < last; ++t) {
      const auto row = std::span(weights).subspan(static_cast<size_t>(t * positions),
                                                  static_cast<size_t>(positions));
      median_filter(row, kMedianWidth);
      for (int64_t p = 0; p < positions; ++p)
        costs[static_cast<size_t>((t - first) * positions + p)] -=
            row[static_cast<size_t>(p)] / static_cast<float>(a.num_heads);
    }
  }
  for (const float cost : costs)
    if (!std::isfinite(cost)) return invalid_argument("attention with values that are not finite");
  std::vector<double> times(static_cast<size_t>(rows));
  int64_t before = -1;
  for (const auto& [row, column] : cheapest_path(costs, rows, positions)) {
    if (row != before)
      times[static_cast<size_t>(row)] = static_cast<double>(column) * kSecondsPerPosition;
    before = row;
  }
  return times;
}

bool has_spaces(std::string_view language) {
  constexpr auto kWithout = std::to_array<std::string_view>({"zh", "ja", "th", "lo", "my", "yue"});
  return !is_one_of(language, kWithout);
}

std::vector<TokenWord> split_words(std::span<const int32_t> tokens, const Decode& decode,
                                   bool by_spaces) {
  constexpr std::string_view kReplacement = "\xef\xbf\xbd";
  std::vector<TokenWord> pieces;
  TokenWord piece;
  for (size_t i = 0; i < tokens.size(); ++i) {
    piece.tokens.push_back(tokens[i]);
    piece.text = decode(piece.tokens);
    // Bytes of a character may be missing, up to the most that one has.
    constexpr size_t kMostBytes = 4;
    const bool is_open = piece.text.find(kReplacement) != std::string::npos &&
                         piece.tokens.size() < kMostBytes && i + 1 < tokens.size();
    if (!is_open) pieces.push_back(std::exchange(piece, {}));
  }
  if (!by_spaces) return pieces;
  std::vector<TokenWord> words;
  for (TokenWord& next : pieces) {
    const bool begins =
        words.empty() || next.text.starts_with(' ') || is_ascii_punctuation(stripped(next.text));
    if (begins) {
      words.push_back(std::move(next));
      continue;
    }
    words.back().text += next.text;
    words.back().tokens.insert(words.back().tokens.end(), next.tokens.begin(), next.tokens.end());
  }
  return words;
}

void merge_punctuation(std::vector<Word>& words) {
  const auto join = [](Word& into, Word& from, bool in_front) {
    into.text = in_front ? from.text + into.text : into.text + from.text;
    into.tokens.insert(in_front ? into.tokens.begin() : into.tokens.end(), from.tokens.begin(),
                       from.tokens.end());
    from.text.clear();
    from.tokens.clear();
  };
  for (size_t next = words.size(), i = words.size(); i-- > 0;) {
    Word& word = words[i];
    const bool opens = next < words.size() && word.text.starts_with(' ') &&
                       is_one_of(stripped(word.text), kOpening);
    if (opens)
      join(words[next], word, true);
    else
      next = i;
  }
  for (size_t i = 1, previous = 0; i < words.size(); ++i) {
    const bool closes = !words[previous].text.ends_with(' ') && is_one_of(words[i].text, kClosing);
    if (closes)
      join(words[previous], words[i], false);
    else
      previous = i;
  }
}

void add_words(std::vector<Word> words, double offset, const Vocabulary& vocabulary,
               std::vector<Segment>& segments, double& last_speech) {
  const double median = median_duration(words);
  if (median > 0) shorten_at_sentence_ends(words, 2 * median);
  merge_punctuation(words);
  size_t next = 0;
  for (Segment& segment : segments) {
    const auto is_text = [&](int32_t id) { return vocabulary.is_text(id); };
    const auto num_tokens = static_cast<size_t>(std::ranges::count_if(segment.tokens, is_text));
    segment.words.clear();
    for (size_t taken = 0; next < words.size() && taken < num_tokens; ++next) {
      Word& word = words[next];
      taken += word.tokens.size();
      if (word.text.empty()) continue;
      word.start = hundredths(offset + word.start);
      word.end = hundredths(offset + word.end);
      segment.words.push_back(std::move(word));
    }
    if (segment.words.empty()) continue;
    fit_segment(segment, median, last_speech);
    last_speech = segment.end;
  }
}

}  // namespace nereid::speech
