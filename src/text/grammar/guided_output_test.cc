// Reasoning before an answer with a grammar, token by token.
#include "text/grammar/guided_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "text/grammar/grammar_test_util.h"

namespace nereid::text {
namespace {

constexpr int32_t kMark = 272;  // a token without bytes of its own
constexpr int32_t kEnd = 0;

// Reasoning in "<t>" ... "</t>", spelled by bytes; the answer is "ab" or "x".
OutputConstraint marked() {
  return {.tokens = test_tokens(),
          .grammar = test_grammar(GrammarKind::kRegex, "ab|x"),
          .reasoning =
              ReasoningPart{.open = "<t>", .close = "</t>", .close_ids = {'<', '/', 't', '>'}}};
}

class Output {
 public:
  explicit Output(const OutputConstraint& guide)
      : output_(std::make_shared<const OutputConstraint>(guide)) {}

  // False: the output may not continue so.
  bool write(std::string_view text) {
    return std::ranges::all_of(
        text, [&](char c) { return output_.accept(static_cast<uint8_t>(c)).ok(); });
  }
  bool take(int32_t id) { return output_.accept(id).ok(); }
  // The ids that may follow; all of the vocabulary without a limit.
  std::vector<int32_t> next() {
    const int32_t num_ids = test_tokens()->vocab_size();
    std::vector<uint32_t> mask(static_cast<size_t>((num_ids + 31) / 32), ~uint32_t{0});
    const int32_t end_ids[] = {kEnd};
    if (output_.limits_next()) {
      EXPECT_TRUE(output_.fill_mask(mask, end_ids).ok());
    }
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < num_ids; ++id)
      if (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) ids.push_back(id);
    return ids;
  }
  std::vector<int32_t> forced(size_t most = 10) { return output_.forced(most); }
  bool all_but_the_end() {
    return std::ssize(next()) == test_tokens()->vocab_size() - 1 && next()[0] != kEnd;
  }

 private:
  ConstrainedOutput output_;
};

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr int32_t kAb = 271, kAbc = 270;  // tokens of the vocabulary

TEST(ConstrainedOutput, KnowsWhatMustComeNext) {
  Output output(
      {.tokens = test_tokens(), .grammar = test_grammar(GrammarKind::kRegex, "abcab(x|yz)zz?")});
  EXPECT_THAT(output.forced(), ElementsAre(kAbc, kAb));
  EXPECT_THAT(output.forced(1), ElementsAre(kAbc));
  EXPECT_TRUE(output.write("abca"));
  EXPECT_THAT(output.forced(), ElementsAre('b'));
  EXPECT_TRUE(output.write("b"));
  EXPECT_THAT(output.forced(), ElementsAre());
  EXPECT_TRUE(output.write("y"));
  EXPECT_THAT(output.forced(), ElementsAre('z', 'z'));
  EXPECT_TRUE(output.write("zz"));
  EXPECT_THAT(output.forced(), ElementsAre()) << "it may end";
  EXPECT_TRUE(output.write("z"));
  EXPECT_THAT(output.forced(), ElementsAre()) << "it has ended";
  Output reasons(marked());
  EXPECT_TRUE(reasons.write("<t>"));
  EXPECT_THAT(reasons.forced(), ElementsAre());
  EXPECT_TRUE(reasons.write("</t>a"));
  EXPECT_THAT(reasons.forced(), ElementsAre('b'));
}

TEST(ConstrainedOutput, TheAnswerMayBeginAtOnce) {
  Output output(marked());
  EXPECT_THAT(output.next(), UnorderedElementsAre('a', 'x', kAb, '<'));
  ASSERT_TRUE(output.take(kAb));
  EXPECT_THAT(output.next(), ElementsAre(kEnd));
  EXPECT_FALSE(output.take(kAbc));
}

TEST(ConstrainedOutput, ReasoningIsFreeAndTheAnswerIsHeld) {
  Output output(marked());
  ASSERT_TRUE(output.write("<"));
  EXPECT_THAT(output.next(), ElementsAre('t'));
  ASSERT_TRUE(output.write("t>"));
  EXPECT_TRUE(output.all_but_the_end());
  ASSERT_TRUE(output.write("x ab </ </t"));
  EXPECT_TRUE(output.all_but_the_end());
  ASSERT_TRUE(output.write(">"));
  EXPECT_THAT(output.next(), UnorderedElementsAre('a', 'x', kAb));
  EXPECT_FALSE(output.write("b"));
}

TEST(ConstrainedOutput, NeitherMarkNorAnswerIsRefused) {
  Output output(marked());
  ASSERT_TRUE(output.write("<"));
  EXPECT_FALSE(output.write("x"));
}

// The token that closes the reasoning may contain bytes of the answer, and blanks before it.
TEST(ConstrainedOutput, TheTokenThatClosesGoesOn) {
  for (const std::string rest : {"", "\n\n", " x", "ab"}) {
    const std::string text = "t></t>" + rest;
    std::vector<std::string> texts = {"<", text, "b", "a", "x"};
    OutputConstraint guide = marked();
    guide.tokens = std::make_shared<const TokenTrie>(
        5, [&](int32_t id) { return std::string_view(texts[static_cast<size_t>(id)]); });
    guide.grammar = *Grammar::compile(GrammarKind::kRegex, "ab|x", guide.tokens);
    ConstrainedOutput output(std::make_shared<const OutputConstraint>(guide));
    ASSERT_TRUE(output.accept(0).ok());
    ASSERT_TRUE(output.accept(1).ok());
    const bool is_whole = rest.find_first_not_of("\n ") != std::string::npos;
    EXPECT_EQ(output.accept(4).ok(), !is_whole) << rest;
  }
  Output output(marked());
  ASSERT_TRUE(output.write("<t></t>"));
  EXPECT_FALSE(output.write("\n"));  // a separate token is the grammar's
}

// A token that closes the reasoning and continues as no answer does is refused, whether it contains
// the whole marker or ends one that has begun: mask and accept() agree.
TEST(ConstrainedOutput, ATokenThatClosesMayNotBreakTheAnswer) {
  const std::vector<std::string> texts = {
      "end", "<",   "/t>", "</t>",   "</t>b", "u</t> ab", "</t>\n x",  "</t></t>",
      ">c",  ">ab", "t>",  "t>\n\n", "t>ba",  "/t>abc",   "</t>a",     "<</t>x",
      "b",   "</",  "</t", "/t>x",   "\n",    "<</t>y",   "/t>ab</t>b"};
  OutputConstraint guide = marked();
  guide.tokens = std::make_shared<const TokenTrie>(std::ssize(texts), [&](int32_t id) {
    return std::string_view(texts[static_cast<size_t>(id)]);
  });
  guide.grammar = *Grammar::compile(GrammarKind::kRegex, "ab(</t>b)?|x", guide.tokens);
  guide.reasoning->begun = true;
  guide.broken_ids = invalid_closing_tokens(guide).value();
  const auto shared = std::make_shared<const OutputConstraint>(guide);
  size_t num_refused = 0;
  const std::vector<std::vector<int32_t>> starts = {{},   {16},   {1},     {16, 17},
                                                    {18}, {1, 1}, {17, 17}};
  for (const std::vector<int32_t>& begun : starts) {
    ConstrainedOutput output(shared);
    for (const int32_t id : begun) ASSERT_TRUE(output.accept(id).ok());
    uint32_t mask = 0;
    const int32_t end_ids[] = {0};
    ASSERT_TRUE(output.fill_mask({&mask, 1}, end_ids).ok());
    for (int32_t id = 1; id < std::ssize(texts); ++id) {
      ConstrainedOutput next = output;
      const bool is_taken = next.accept(id).ok();
      num_refused += is_taken ? 0 : 1;
      EXPECT_EQ((mask >> id & 1) != 0, is_taken)
          << texts[static_cast<size_t>(id)] << " behind " << begun.size() << " tokens";
    }
  }
  EXPECT_GT(num_refused, 7u);
}

TEST(ConstrainedOutput, MarksMayBeSpecialTokens) {
  OutputConstraint guide = marked();
  guide.reasoning->close = guide.reasoning->open;
  guide.reasoning->marks = {{kMark, "<t>"}};
  guide.reasoning->close_ids = {kMark};
  Output output(guide);
  EXPECT_THAT(output.next(), UnorderedElementsAre('a', 'x', kAb, '<', kMark));
  ASSERT_TRUE(output.take(kMark));
  EXPECT_TRUE(output.all_but_the_end());
  ASSERT_TRUE(output.write("b") && output.take(kMark));
  EXPECT_THAT(output.next(), UnorderedElementsAre('a', 'x', kAb));
}

// A marker of special tokens with a word between them, as in Harmony: behind its first token only
// the rest of the marker may follow.
TEST(ConstrainedOutput, ASpecialTokenThatBeginsACloseIsFollowedByTheRest) {
  const std::vector<std::string> texts = {"end", "", "", "", "final", "think", "ab", "x", "y"};
  constexpr int32_t kChannel = 1, kStop = 2, kMessage = 3;
  OutputConstraint guide = marked();
  guide.tokens = std::make_shared<const TokenTrie>(std::ssize(texts), [&](int32_t id) {
    return std::string_view(texts[static_cast<size_t>(id)]);
  });
  guide.grammar = *Grammar::compile(GrammarKind::kRegex, "ab|x", guide.tokens);
  guide.reasoning = ReasoningPart{.open = "<c>think<m>",
                                  .close = "<e><c>final<m>",
                                  .marks = {{kChannel, "<c>"}, {kMessage, "<m>"}, {kStop, "<e>"}},
                                  .close_ids = {kStop, kChannel, 4, kMessage}};
  const auto next = [](ConstrainedOutput& output) {
    uint32_t mask = 0;
    const int32_t end_ids[] = {0};
    EXPECT_TRUE(output.limits_next());
    EXPECT_TRUE(output.fill_mask({&mask, 1}, end_ids).ok());
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < 32; ++id)
      if (mask >> id & 1) ids.push_back(id);
    return ids;
  };
  for (const bool has_limit : {false, true}) {
    if (has_limit) guide.reasoning->max_tokens = 2;
    ConstrainedOutput output(std::make_shared<const OutputConstraint>(guide));
    EXPECT_THAT(next(output), ElementsAre(kChannel, 6, 7));
    for (const int32_t id : {kChannel, 5, kMessage}) ASSERT_TRUE(output.accept(id).ok());
    for (const int32_t id : {4, 8}) {  // text, one token of it equal to the marker's word
      EXPECT_THAT(next(output), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
      ASSERT_TRUE(output.accept(id).ok());
    }
    if (!has_limit) {
      EXPECT_THAT(next(output), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
    }
    for (const int32_t id : guide.reasoning->close_ids) {
      if (id != kStop || has_limit) {
        EXPECT_THAT(next(output), ElementsAre(id));
      }
      ASSERT_TRUE(output.accept(id).ok());
    }
    EXPECT_THAT(next(output), ElementsAre(6, 7));
    EXPECT_FALSE(output.accept(8).ok());
  }
}

TEST(ConstrainedOutput, AnOpenReasoningIsClosedAtItsLimit) {
  for (const bool is_held : {true, false}) {
    OutputConstraint guide = marked();
    guide.reasoning->begun = true;
    guide.reasoning->max_tokens = 3;
    if (!is_held) guide.grammar = nullptr;
    const size_t num_ids = static_cast<size_t>(test_tokens()->vocab_size());
    const size_t free = is_held ? num_ids - 1 : num_ids;
    Output output(guide);
    for (const char c : std::string("ab<")) {
      EXPECT_EQ(output.next().size(), free);
      ASSERT_TRUE(output.write({&c, 1}));
    }
    for (const char c : std::string("</t>")) {
      EXPECT_THAT(output.next(), ElementsAre(c));
      ASSERT_TRUE(output.write({&c, 1}));
    }
    EXPECT_EQ(output.next().size(), is_held ? 3u : num_ids);
  }
}

TEST(ConstrainedOutput, AReasoningOfNoTokensIsClosedAtOnce) {
  OutputConstraint guide = marked();
  guide.reasoning->max_tokens = 0;
  Output output(guide);
  ASSERT_TRUE(output.write("<t>"));
  EXPECT_THAT(output.next(), ElementsAre('<'));
}

}  // namespace
}  // namespace nereid::text
