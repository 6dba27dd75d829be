// The models on vocabularies small enough to tokenise by hand, and damaged ones.
#include "text/tokenizer/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/trie.h"
#include "text/tokenizer/unigram.h"

namespace nereid::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

StatusOr<std::unique_ptr<Model>> read(const char* spec) {
  const json::value value = *parse_json(spec);
  return Model::from_json(JsonNode(value, "model"));
}

std::vector<int32_t> ids(const char* spec, std::string_view word) {
  const auto model = read(spec);
  EXPECT_TRUE(model.ok()) << model.status();
  EncodeWork work(1000);
  EncodeScratch scratch;
  scratch.work = &work;
  std::vector<int32_t> out, again;
  EXPECT_TRUE((*model)->encode(word, scratch, out).ok());
  EXPECT_TRUE((*model)->encode(word, scratch, again).ok());
  EXPECT_EQ(out, again);  // from the cache
  return out;
}

TEST(Unigram, TakesTheBestSumAndTheEarlierOfEqualOnes) {
  constexpr const char* kSpec = R"({"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0],
    ["a", -1], ["b", -1], ["ab", -1.5], ["abc", -9], ["c", -2], ["bc", -2]]})";
  EXPECT_THAT(ids(kSpec, "abc"), ElementsAre(1, 6));  // -3, against -3.5 and -9
  EXPECT_THAT(ids(kSpec, "ab"), ElementsAre(3));
  EXPECT_THAT(ids(kSpec, "xya"), ElementsAre(0, 1));  // a run of unknown characters is one token
  EXPECT_THAT(ids(kSpec, "axbx"), ElementsAre(1, 0, 2, 0));
}

// a + bc is -2; ab + c is above it by half a step of single precision.
TEST(Unigram, SumsHaveDoublePrecision) {
  const std::vector<UnigramPiece> pieces = {
      {"a", -1}, {"bc", -1}, {"ab", -1}, {"c", -0x1.fffffep-1}, {"b", -9}};
  Vocab vocab;
  for (int32_t i = 0; i < 5; ++i)
    ASSERT_TRUE(vocab.add(pieces[static_cast<size_t>(i)].text, i).ok());
  EncodeWork work(1000);
  EncodeScratch scratch;
  scratch.work = &work;
  std::vector<int32_t> out;
  ASSERT_TRUE(Unigram(std::move(vocab), pieces, {}).encode("abc", scratch, out).ok());
  EXPECT_THAT(out, ElementsAre(2, 3));
}

TEST(Unigram, FallsBackToBytesOrFails) {
  EXPECT_THAT(ids(R"({"type": "Unigram", "unk_id": 0, "byte_fallback": true, "vocab": [
    ["<unk>", 0], ["a", -1], ["<0xC3>", -5], ["<0xA9>", -5]]})",
                  "aéa"),
              ElementsAre(1, 2, 3, 1));
  const auto model = read(R"({"type": "Unigram", "vocab": [["a", -1]]})");
  ASSERT_TRUE(model.ok());
  EncodeWork work(1000);
  EncodeScratch scratch;
  scratch.work = &work;
  std::vector<int32_t> out;
  EXPECT_THAT(std::string(message((*model)->encode("ab", scratch, out))),
              HasSubstr("no token for 'b'"));
}

TEST(WordPiece, LongestFirstAndAllOrNothing) {
  constexpr const char* kSpec = R"({"type": "WordPiece", "unk_token": "[UNK]",
    "continuing_subword_prefix": "##", "max_input_chars_per_word": 6, "vocab": {"[UNK]": 0,
    "un": 1, "##aff": 2, "##able": 3, "##a": 4, "a": 5, "##b": 6}})";
  EXPECT_THAT(ids(kSpec, "unaff"), ElementsAre(1, 2));
  EXPECT_THAT(ids(kSpec, "unab"), ElementsAre(1, 4, 6));
  EXPECT_THAT(ids(kSpec, "unax"), ElementsAre(0));
  EXPECT_THAT(ids(kSpec, "unaffab"), ElementsAre(0));  // seven characters
}

TEST(WordLevel, WholeWords) {
  constexpr const char* kSpec =
      R"({"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "a": 1}})";
  EXPECT_THAT(ids(kSpec, "a"), ElementsAre(1));
  EXPECT_THAT(ids(kSpec, "b"), ElementsAre(0));
}

// Words are divided before space marks if no token crosses one; the result is the same.
TEST(Bpe, LongTextsAreCutAtSpaces) {
  std::string spec = R"({"type": "BPE", "fuse_unk": true, "unk_token": "?", "vocab": {"?": 0,
    "▁": 1, "▁▁": 2, "a": 3, "b": 4, "ab": 5, "▁a": 6, "▁ab": 7, "▁▁ab": 8%s},
    "merges": [["▁", "▁"], ["a", "b"], ["▁", "a"], ["▁", "ab"], ["▁▁", "ab"]%s]})";
  const auto with = [&](const std::string& token, const std::string& merge) {
    std::string out = spec;
    out.replace(out.find("%s"), 2, token);
    return out.replace(out.find("%s"), 2, merge);
  };
  const std::string text = "▁ab▁▁abxyz▁▁▁a▁b▁abx▁";
  EXPECT_THAT(ids(with("", "").c_str(), text.c_str()), ElementsAre(7, 8, 0, 2, 6, 1, 4, 7, 0, 1));
  // A token that crosses a space.
  EXPECT_THAT(ids(with(R"(, "b▁": 9)", R"(, ["b", "▁"])").c_str(), "▁b▁b▁b▁b▁b▁b▁b"),
              ElementsAre(1, 9, 9, 9, 9, 9, 9, 4));
}

TEST(Bpe, PrefixesAndSuffixes) {
  EXPECT_THAT(ids(R"({"type": "BPE", "continuing_subword_prefix": "##", "unk_token": "?", "vocab":
    {"?": 0, "a": 1, "##b": 2, "ab": 3, "##c": 4, "abc": 5}, "merges": [["a", "##b"]]})",
                  "abc"),
              ElementsAre(3, 4));
  EXPECT_THAT(ids(R"({"type": "BPE", "end_of_word_suffix": "</w>", "vocab": {"a": 1, "b</w>": 2,
    "ab</w>": 3, "b": 4}, "merges": ["a b</w>"]})",
                  "abab"),
              ElementsAre(1, 4, 3));
}

TEST(Bpe, ShortAndLongWordsMergeAlike) {
  // The same letters as a word for the scan and as one for the heap.
  constexpr const char* kSpec = R"({"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "abab": 3,
    "ba": 4}, "merges": ["b a", "a b", "ab ab"]})";
  std::string word = "abab";
  std::vector<int32_t> few = ids(kSpec, word);
  EXPECT_THAT(few, ElementsAre(0, 4, 1));
  for (int i = 0; i < 5; ++i) word += word;
  const std::vector<int32_t> many = ids(kSpec, word);
  EXPECT_EQ(many.size(), 65u);
  EXPECT_EQ(many[0], 0);
  EXPECT_EQ(many[1], 4);
  EXPECT_EQ(many.back(), 1);
}

TEST(WordCache, KeysTellWordsApart) {
  const std::string text = "abcdefghijklmnop";
  std::vector<WordCache::Key> keys;
  for (size_t length = 1; length <= WordCache::kMaxWordBytes; ++length) {
    for (size_t at = 0; at + length <= text.size(); ++at) {
      keys.push_back(WordCache::key_of(std::string_view(text).substr(at, length)));
    }
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      EXPECT_FALSE(keys[i].low == keys[k].low && keys[i].high == keys[k].high);
    }
  }
  EXPECT_FALSE(WordCache::fits(""));
  EXPECT_FALSE(WordCache::fits(text));
}

TEST(Trie, FindsTheLongestKey) {
  const Trie trie({{"a", 1}, {"abc", 2}, {"ab", 7}, {"b\xFF", 3}, {"ab", 4}, {"", 9}});
  EXPECT_EQ(trie.longest("abd").value, 4);  // the later of equal keys
  EXPECT_EQ(trie.longest("abcd").length, 3u);
  EXPECT_EQ(trie.longest("b\xFF").value, 3);
  EXPECT_EQ(trie.longest("x").length, 0u);
  EXPECT_EQ(trie.longest("").length, 0u);
}

TEST(Charsmap, RefusesSizesThatDoNotFit) {
  EXPECT_TRUE(Charsmap::parse("")->empty());
  EXPECT_FALSE(Charsmap::parse("abc").ok());
  EXPECT_FALSE(Charsmap::parse(std::string("\xFF\xFF\0\0abcd", 8)).ok());
  const std::string wild("\x08\0\0\0\xFF\xFF\xFF\x7F\xFF\xFF\xFF\x7Fxyz", 15);
  const auto map = Charsmap::parse(wild);
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map->longest("abc").length, 0u);
}

std::vector<std::string> matches(const char* pattern, std::string_view text) {
  const auto regex = Regex::compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status();
  std::vector<Span> spans;
  EncodeWork work(text.size());
  if (!regex.ok() || !regex->find_all(text, spans, work).ok()) return {};
  std::vector<std::string> out;
  for (const Span& span : spans) out.emplace_back(text.substr(span.begin, span.end - span.begin));
  return out;
}

TEST(Regex, OnigurumaDialect) {
  EXPECT_THAT(matches("[a-e&&[^c]]+", "abcde"), ElementsAre("ab", "de"));
  EXPECT_THAT(matches("[^a[bc]]", "abcd"), ElementsAre("d"));
  EXPECT_THAT(matches("[\\p{L}&&[^\\p{Han}]]+", "ab中c"), ElementsAre("ab", "c"));
  EXPECT_THAT(matches("[[:punct:]]", "a.b"), ElementsAre("."));
  EXPECT_THAT(matches("[\\W]", "a-b"), ElementsAre("-"));
  EXPECT_THAT(matches("(?m:a.b)", "a\nb"), ElementsAre("a\nb"));
  EXPECT_THAT(matches("a.b", "a\nb"), ElementsAre());
  EXPECT_THAT(matches("\\h+", "xyzA0g"), ElementsAre("A0"));
  for (const char* bad : {"[a", "[a&&]", "a{1,2}+", "[[:what:]]", "(", "\\"}) {
    EXPECT_FALSE(Regex::compile(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace nereid::text
