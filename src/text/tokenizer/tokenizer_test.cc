// Components of tokenizer.json on small hand-made vocabularies, and the refusal of the rest.
#include "text/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/tokenizer/pre_tokenizer.h"

namespace nereid::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Letters a..e, the byte-level space, merges, one added token per flag.
json::object spec() {
  return parse_json(R"({
    "added_tokens": [
      {"id": 20, "content": "<s>", "special": true, "normalized": false},
      {"id": 21, "content": "<x>", "lstrip": true, "rstrip": true, "normalized": false},
      {"id": 22, "content": "word", "single_word": true, "normalized": true},
      {"id": 23, "content": "<s><s>", "normalized": false}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "post_processor": null,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4, "Ġ": 5,
      "ab": 6, "bc": 7, "abc": 8, "aa": 9, "Ġa": 10, "aaa": 11, "w": 12, "o": 13, "r": 14},
      "merges": ["b c", ["a", "b"], "a bc", "a a", "Ġ a"]}})")
      ->as_object();
}

std::shared_ptr<const Tokenizer> make(const json::value& value, const json::value& config = {}) {
  auto result = Tokenizer::from_json(value, config);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : nullptr;
}

std::string error_of(const json::value& value, const json::value& config = {}) {
  const auto result = Tokenizer::from_json(value, config);
  return result.ok() ? "" : std::string(message(result.status()));
}

TEST(Tokenizer, MergesLowestRankFirstThenLeftmost) {
  const auto t = make(spec());
  EXPECT_THAT(*t->encode("abc"), ElementsAre(8));  // b c before a b
  EXPECT_THAT(*t->encode("aaaaa"), ElementsAre(9, 9, 0));
  EXPECT_THAT(*t->encode("ab ab"), ElementsAre(6, 5, 6));  // a b before the space joins a
  EXPECT_THAT(*t->encode("aaa"), ElementsAre(9, 0));       // aaa is no merge
  EXPECT_THAT(*t->encode("z"), ElementsAre());             // no unknown token
}

TEST(Tokenizer, IgnoreMergesTakesWholeWords) {
  json::object s = spec();
  s["model"].as_object()["ignore_merges"] = true;
  EXPECT_THAT(*make(s)->encode("aaa aaa"), ElementsAre(11, 5, 9, 0));
}

TEST(Tokenizer, UnknownCharactersFuseOrFallBackToBytes) {
  json::object s = spec();
  json::object& model = s["model"].as_object();
  s["pre_tokenizer"] = nullptr;
  model["unk_token"] = "e";
  EXPECT_THAT(*make(s)->encode("azzb"), ElementsAre(0, 4, 4, 1));
  model["fuse_unk"] = true;
  EXPECT_THAT(*make(s)->encode("azzb"), ElementsAre(0, 4, 1));
  model["byte_fallback"] = true;
  model["vocab"].as_object()["<0xC3>"] = 15;
  model["vocab"].as_object()["<0xA9>"] = 16;
  EXPECT_THAT(*make(s)->encode("a\xC3\xA9z"), ElementsAre(0, 15, 16, 4));
}

TEST(Tokenizer, AddedTokensFollowTheirFlags) {
  const auto t = make(spec());
  EXPECT_THAT(*t->encode("a<s>b"), ElementsAre(0, 20, 1));
  EXPECT_THAT(*t->encode("a<s><s>b"), ElementsAre(0, 23, 1));  // longest
  EXPECT_THAT(*t->encode("a \n<x>  b"), ElementsAre(0, 21, 1));
  EXPECT_THAT(*t->encode("word"), ElementsAre(22));
  EXPECT_THAT(*t->encode("aword"), ElementsAre(0, 12, 13, 14, 3));
  EXPECT_THAT(*t->encode("a<s>a", {.parse_special = false}), ElementsAre(0, 0));
  EXPECT_THAT(*t->encode("<x>", {.parse_special = false}), ElementsAre(21));
  EXPECT_EQ(t->decode(*t->encode("a<s><x>"), true), "a<x>");
  EXPECT_EQ(t->token_id("<s>"), 20);
  EXPECT_EQ(t->token_bytes(10), " a");
  EXPECT_EQ(t->token_bytes(17), "");
  EXPECT_EQ(t->token_bytes(-1), "");
  EXPECT_EQ(t->vocab_size(), 24);
}

TEST(Tokenizer, TemplateAddsTokensOnlyWhenAsked) {
  json::object s = spec();
  s["post_processor"] = *parse_json(R"({"type": "Sequence", "processors": [
    {"type": "ByteLevel"},
    {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
      {"Sequence": {"id": "A", "type_id": 0}}],
     "special_tokens": {"<s>": {"id": "<s>", "ids": [20], "tokens": ["<s>"]}}}]})");
  EXPECT_THAT(*make(s)->encode("a"), ElementsAre(20, 0));
  EXPECT_THAT(*make(s)->encode("a", {.add_special_tokens = false}), ElementsAre(0));
  const json::value llama = {{"tokenizer_class", "LlamaTokenizerFast"},
                             {"bos_token", "<s>"},
                             {"eos_token", "e"},
                             {"add_bos_token", false},
                             {"add_eos_token", true}};
  const auto t = make(s, llama);
  EXPECT_THAT(*t->encode("a"), ElementsAre(0, 4));
  EXPECT_TRUE(t->is_special(4));  // by its name in the configuration
}

TEST(Tokenizer, ConfigAddsAndOverridesTokens) {
  const json::value config = {{"added_tokens_decoder",
                               {{"20", {{"content", "<s>"}, {"special", false}}},
                                {"30", {{"content", "<new>"}, {"special", true}}}}}};
  const auto t = make(spec(), config);
  EXPECT_FALSE(t->is_special(20));
  EXPECT_TRUE(t->is_special(30));
  EXPECT_THAT(*t->encode("a<new>"), ElementsAre(0, 30));
}

TEST(Tokenizer, RefusesWhatItDoesNotHaveByPathValueAndWhatIsAllowed) {
  const auto with = [](const char* field, const char* value) {
    json::object s = spec();
    s[field] = *parse_json(value);
    return error_of(s);
  };
  EXPECT_EQ(
      with("normalizer", R"({"type": "Shout"})"),
      "normalizer.type = \"Shout\": must be one of Sequence NFC NFD NFKC NFKD Lowercase Strip "
      "StripAccents Prepend Replace BertNormalizer Precompiled Nmt ByteLevel");
  EXPECT_THAT(with("pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [{"type": "Cut"}]})"),
              HasSubstr("pre_tokenizer.pretokenizers[0].type = \"Cut\": must be one of"));
  EXPECT_THAT(with("decoder", R"({"type": "Rot13"})"), HasSubstr("decoder.type = \"Rot13\""));
  EXPECT_THAT(with("post_processor", R"({"type": "Wrap"})"),
              HasSubstr("post_processor.type = \"Wrap\""));
  EXPECT_THAT(with("model", R"({"type": "Char"})"),
              HasSubstr("model.type = \"Char\": must be one of BPE Unigram WordPiece WordLevel"));
  EXPECT_THAT(with("model", R"({"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.1})"),
              HasSubstr("model.dropout = 1E-1: must be null or 0"));
  EXPECT_THAT(
      with("model", R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]})"),
      HasSubstr("model.merges[0] = \"a b\": must be tokens of the vocabulary; 'b' is none"));
  EXPECT_THAT(with("model", R"({"type": "BPE", "vocab": {"a": -1}, "merges": []})"),
              HasSubstr("model.vocab.a = -1: must be a token id"));
  EXPECT_THAT(with("added_tokens", R"([{"id": 5, "content": "a"}])"), HasSubstr("already known"));
  EXPECT_THAT(with("added_tokens", R"([{"id": 5.5, "content": "a"}])"),
              HasSubstr("added_tokens[0].id = 5.5E0: must be a token id"));
  EXPECT_THAT(with("pre_tokenizer", R"({"type": "Split", "behavior": "Isolated",
              "pattern": {"Regex": "("}})"),
              HasSubstr("pre_tokenizer.pattern.Regex: regex '('"));
  EXPECT_THAT(with("pre_tokenizer", R"({"type": "Split", "behavior": "Torn",
              "pattern": {"String": "x"}})"),
              HasSubstr("pre_tokenizer.behavior = \"Torn\": must be Removed, Isolated"));
}

// A chain of `count` components of `kind`.
json::value chain(const char* list, const char* component, int count) {
  const json::value one = *parse_json(component);
  json::array all;
  for (int i = 0; i < count; ++i) all.push_back(one);
  return json::object{{"type", "Sequence"}, {list, std::move(all)}};
}

TEST(Tokenizer, ChainsOfNormalizersHaveOneBound) {
  json::object s = spec();
  const std::string text(1000, 'a');
  const char* const twice = R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})";
  s["normalizer"] = chain("normalizers", twice, 5);  // 32 times as long
  EXPECT_TRUE(make(s)->encode(text).ok());
  s["normalizer"] = chain("normalizers", twice, 8);
  EXPECT_THAT(std::string(message(make(s)->encode(text).status())), HasSubstr("97536 bytes"));
  s["normalizer"] = chain("normalizers", R"({"type": "Replace", "pattern": {"Regex": "^|$|a"},
                                             "content": "aaaaaaaaaaaaaaa"})",
                          64);
  EXPECT_THAT(error_of(s), HasSubstr("make a text longer than")) << "of an added token";
  s["normalizer"] = chain("normalizers", R"({"type": "Prepend", "prepend": "aaaaaaaa"})", 64);
  EXPECT_TRUE(make(s)->encode(text).ok());
  std::string many;  // each piece between added tokens is normalised by itself
  for (int i = 0; i < 10000; ++i) many += "a<s>";
  json::value long_prefix = chain("normalizers", R"({"type": "Prepend", "prepend": ""})", 1);
  long_prefix.at("normalizers").at(0).at("prepend") = std::string(4000, 'a');
  s["normalizer"] = long_prefix;
  EXPECT_THAT(std::string(message(make(s)->encode(many).status())),
              HasSubstr("more than 11288576 steps for a text of 40000 bytes"));
}

TEST(Tokenizer, ChainsOfPreTokenizersHaveOneBound) {
  json::object s = spec();
  s["pre_tokenizer"] =
      chain("pretokenizers",
            R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})", 60);
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "\xC3\xA9";  // each stage doubles it
  EXPECT_THAT(std::string(message(make(s)->encode(text).status())), HasSubstr("make more than"));
}

TEST(Tokenizer, ChainsOfDecodersHaveOneBound) {
  json::object s = spec();
  const char* const tenfold =
      R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaa"})";
  s["decoder"] = chain("decoders", tenfold, 3);
  EXPECT_EQ(make(s)->decode(std::vector<int32_t>{0}, true).size(), 1000u);
  s["decoder"] = chain("decoders", tenfold, 4);
  EXPECT_THAT(error_of(s), HasSubstr("can make 10000 bytes of one, at most 4096 are allowed"));
}

TEST(Tokenizer, WalksThroughLongTokensAreCharged) {
  json::object s = spec();
  const std::string almost = std::string(1000, 'a') + "b";  // a run of "a" that never matches
  s["added_tokens"] = json::array{{{"id", 20}, {"content", almost}, {"special", true}}};
  EXPECT_THAT(std::string(message(make(s)->encode(std::string(100000, 'a')).status())),
              HasSubstr("steps for a text of 100000 bytes"));
  s["added_tokens"] = json::array();
  for (const char* type : {"WordPiece", "Unigram"}) {
    json::value model = {{"type", type},
                         {"unk_token", "a"},
                         {"unk_id", 0},
                         {"continuing_subword_prefix", ""},
                         {"max_input_chars_per_word", 1 << 30}};
    if (std::string_view(type) == "Unigram") {
      model.as_object()["vocab"] = json::array{json::array{"a", -1.0}, json::array{almost, -2.0}};
    } else {
      model.as_object()["vocab"] = json::object{{"a", 0}, {json::string_view(almost), 1}};
    }
    s["model"] = std::move(model);
    EXPECT_TRUE(make(s)->encode(std::string(1000, 'a')).ok()) << type;
    EXPECT_THAT(std::string(message(make(s)->encode(std::string(100000, 'a')).status())),
                HasSubstr("steps for a text of 100000 bytes"))
        << type;
  }
}

// White space around a token is scanned once, also with other tokens in it.
TEST(Tokenizer, BlanksAroundAddedTokensTakeLinearTime) {
  json::object s = spec();
  s["added_tokens"] = json::array{
      {{"id", 20}, {"content", " "}, {"lstrip", true}, {"rstrip", true}, {"normalized", false}}};
  const auto ids = make(s)->encode(std::string(2'000'000, ' ') + "a");
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(ids->back(), 0);
}

TEST(Tokenizer, LongWordsAreEncodedUntilTheyAreUnwanted) {
  json::object s = spec();
  s["pre_tokenizer"].as_object()["use_regex"] = false;
  std::string text(1'000'000, 'a');
  const auto all = make(s)->encode(text);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->size(), text.size() / 2);  // "aa" each
  for (const char* regex : {"", "b+c|a*d"}) {
    if (*regex != '\0') {
      s["pre_tokenizer"] = {{"type", "Split"},
                            {"pattern", {{"Regex", regex}}},
                            {"behavior", "Isolated"},
                            {"invert", false}};
      text.resize(200'000);
    }
    int asked = 0;
    const auto got = make(s)->encode(text, {.is_unwanted = [&] { return ++asked == 2; }});
    EXPECT_TRUE(absl::IsCancelled(got.status())) << regex << got.status();
    EXPECT_EQ(asked, 2) << regex;
  }
}

std::vector<std::string> split(const std::string& text, const char* spec, bool at_start = true) {
  const json::value value = *parse_json(spec);
  const auto pre = PreTokenizer::from_json(JsonNode(value, "pre_tokenizer"));
  EXPECT_TRUE(pre.ok()) << pre.status();
  Pieces pieces;
  EncodeWork work(text.size());
  const Status status = pre->run(text, at_start, work, pieces);
  EXPECT_TRUE(status.ok()) << status;
  std::vector<std::string> out;
  for (size_t i = 0; i < pieces.spans.size(); ++i) out.emplace_back(pieces.piece(i));
  return out;
}

std::string split_spec(const char* behavior, const char* extra = "") {
  return fmt::format(R"({{"type": "Split", "pattern": {{"String": "-"}}, "behavior": "{}"{}}})",
                     behavior, extra);
}

TEST(PreTokenizer, SplitBehaviors) {
  const std::string text = "the-final--countdown";
  EXPECT_THAT(split(text, split_spec("Removed").c_str()), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(split(text, split_spec("Isolated").c_str()),
              ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(split(text, split_spec("MergedWithPrevious").c_str()),
              ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(split(text, split_spec("MergedWithNext").c_str()),
              ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(split(text, split_spec("Contiguous").c_str()),
              ElementsAre("the", "-", "final", "--", "countdown"));
  EXPECT_THAT(split("a--b", split_spec("Removed", R"(, "invert": true)").c_str()),
              ElementsAre("-", "-"));
}

TEST(PreTokenizer, DigitsAndByteLevel) {
  EXPECT_THAT(split("ab12c", R"({"type": "Digits", "individual_digits": true})"),
              ElementsAre("ab", "1", "2", "c"));
  EXPECT_THAT(split("ab12c", R"({"type": "Digits", "individual_digits": false})"),
              ElementsAre("ab", "12", "c"));
  EXPECT_THAT(split("it's 5  x", R"({"type": "ByteLevel", "add_prefix_space": true})"),
              ElementsAre("Ġit", "'s", "Ġ5", "Ġ", "Ġx"));
  EXPECT_THAT(split("\t a", R"({"type": "ByteLevel", "use_regex": false})"), ElementsAre("ĠĉĠa"));
}

TEST(Regex, SpaceIsWhiteSpace) {
  const auto regex = Regex::compile("[\\s]+");
  ASSERT_TRUE(regex.ok()) << regex.status();
  std::vector<Span> matches;
  EncodeWork work(100);
  ASSERT_TRUE(regex
                  ->find_all("a\xC2\x85\xE3\x80\x80"
                             "b\xE1\xA0\x8E",
                             matches, work)
                  .ok());
  ASSERT_EQ(matches.size(), 1u);  // U+0085 U+3000, not U+180E
  EXPECT_EQ(matches[0].begin, 1u);
  EXPECT_EQ(matches[0].end, 6u);
}

TEST(Regex, FindsTheSameInLongTexts) {
  const auto regex = Regex::compile("b+|(?<=x)c");
  ASSERT_TRUE(regex.ok()) << regex.status();
  for (size_t n = 0; n < 400; ++n) {
    std::string text;
    for (size_t i = 0; i < n; ++i) text += "\xE4\xB8\xAD";
    text += "bbxc";
    for (size_t i = 0; i < n; ++i) text += "\xE4\xB8\xAD";
    std::vector<Span> matches;
    EncodeWork work(text.size());
    ASSERT_TRUE(regex->find_all(text, matches, work).ok());
    EXPECT_EQ(matches, (std::vector<Span>{{3 * n, 3 * n + 2}, {3 * n + 3, 3 * n + 4}})) << n;
  }
}

TEST(Regex, HopelessBacktrackingIsAnErrorNotAHang) {
  const auto regex = Regex::compile("(a|aa)+[xy]");
  ASSERT_TRUE(regex.ok());
  std::vector<Span> matches;
  EncodeWork work(100);
  const Status status = regex->find_all(std::string(100, 'a') + "c", matches, work);
  EXPECT_FALSE(status.ok());
}

}  // namespace
}  // namespace nereid::text
