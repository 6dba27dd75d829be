// Transcriptions by a scripted model, window by window.
#include "speech/transcription.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "speech/languages.h"
#include "speech/test_speech_model.h"
#include "speech/window.h"

namespace nereid::speech {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_only::ids_of;
using testing_only::stamp;
using testing_only::Tokens;

class TranscriptionTest : public ::testing::Test {
 protected:
  Transcription begin(TranscriptionOptions options, int64_t num_frames) {
    options.end = num_frames;
    if (options.language.empty()) options.language = "en";
    auto made = Transcription::create(model_, std::move(options));
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }
  // Every token and the end have the log-probability.
  static PassResult said(const Tokens& tokens, float log_prob = -0.1f) {
    return {.tokens = tokens.ids, .log_probs = std::vector<float>(tokens.ids.size() + 1, log_prob)};
  }
  static PassResult silence(double probability) {
    return {.tokens = {testing_only::kNoSpeech},
            .log_probs = {static_cast<float>(std::log(probability))}};
  }

  SpeechModel model_ = testing_only::speech_model();
};

TEST_F(TranscriptionTest, WindowsFollowTheTimestamps) {
  Transcription t = begin({.prompt = prompt_tokens(model_, "  Names: Ada ").value()}, 7000);
  ASSERT_TRUE(t.next());
  EXPECT_EQ(t.next()->seek, 0);
  EXPECT_EQ(t.next()->num_frames, 3000);
  EXPECT_EQ(t.next()->temperature, 0);
  EXPECT_EQ(t.next()->max_tokens, 224);
  std::vector<int32_t> task = {testing_only::kStart, testing_only::kEnglish,
                               testing_only::kTranscribe};
  std::vector<int32_t> prompt = {testing_only::kPrevious};
  for (const int32_t id : ids_of(" Names: Ada")) prompt.push_back(id);
  std::vector<int32_t> whole = prompt;
  whole.insert(whole.end(), task.begin(), task.end());
  EXPECT_EQ(t.next()->prompt, whole);
  EXPECT_EQ(t.next()->rules.first_timestamp, testing_only::kZero);
  EXPECT_THAT(t.next()->rules.suppressed,
              ::testing::IsSupersetOf({testing_only::kStart, testing_only::kNoSpeech}));
  // Two segments, and the begin of a third: the next window begins with it.
  const Tokens first = Tokens().at(0).say(" One.").at(4).at(4.5).say(" Two.").at(9).at(9);
  ASSERT_TRUE(t.take(said(first)).ok());
  ASSERT_EQ(t.segments().size(), 2u);
  EXPECT_EQ(t.segments()[0].text, " One.");
  EXPECT_DOUBLE_EQ(t.segments()[1].start, 4.5);
  EXPECT_DOUBLE_EQ(t.segments()[1].end, 9);
  EXPECT_EQ(t.next()->seek, 900);
  // Its prompt has the segments' tokens, time stamps included.
  prompt.insert(prompt.end(), first.ids.begin(), first.ids.end() - 1);
  prompt.insert(prompt.end(), task.begin(), task.end());
  EXPECT_EQ(t.next()->prompt, prompt);
  // One time stamp at the end: no speech comes behind it.
  ASSERT_TRUE(t.take(said(Tokens().at(0.5).say(" Three.").at(2))).ok());
  ASSERT_EQ(t.segments().size(), 3u);
  EXPECT_DOUBLE_EQ(t.segments()[2].start, 9);  // as the reference has it
  EXPECT_DOUBLE_EQ(t.segments()[2].end, 11);
  EXPECT_EQ(t.next()->seek, 3900);
  ASSERT_TRUE(t.take(said(Tokens().at(0).say(" Four"))).ok());
  EXPECT_DOUBLE_EQ(t.segments()[3].end, 69);
  EXPECT_EQ(t.next()->seek, 6900);
  EXPECT_EQ(t.next()->num_frames, 100);
  ASSERT_TRUE(t.take(said(Tokens().at(0).say(" Five.").at(0.8))).ok());
  EXPECT_FALSE(t.next());
  EXPECT_EQ(text_of(t.segments()), "One. Two. Three. Four Five.");
}

TEST_F(TranscriptionTest, LongHistoryIsCut) {
  TranscriptionOptions options;
  options.prompt = prompt_tokens(model_, std::string(1000, 'x')).value();
  EXPECT_EQ(options.prompt.size(), 223u);
  Transcription t = begin(options, 3000);
  EXPECT_EQ(t.next()->prompt.size(), 1u + 223 + 3);
  EXPECT_EQ(t.next()->max_tokens, 448 - 227);
}

TEST_F(TranscriptionTest, PoorResultsAreTriedAgainWarmer) {
  Transcription t = begin({}, 3000);
  // Too repetitive, then too unlikely, then good.
  Tokens again;
  again.at(0);
  for (int i = 0; i < 40; ++i) again.say(" again");
  ASSERT_TRUE(t.take(said(again.at(9))).ok());
  EXPECT_EQ(t.next()->temperature, 0.2);
  ASSERT_TRUE(t.take(said(Tokens().at(0).say(" unlikely").at(2), -1.5f)).ok());
  // Silence would explain it.
  EXPECT_EQ(t.next()->kind, PassKind::kScoreOne);
  EXPECT_THAT(t.next()->prompt, ElementsAre(testing_only::kStart));
  EXPECT_THAT(t.next()->allowed, ElementsAre(testing_only::kNoSpeech));
  ASSERT_TRUE(t.take(silence(0.3)).ok());
  EXPECT_EQ(t.next()->kind, PassKind::kDecode);
  EXPECT_EQ(t.next()->temperature, 0.4);
  ASSERT_TRUE(t.take(said(Tokens().at(0).say(" unlikely").at(2), -1.2f)).ok());
  EXPECT_EQ(t.next()->temperature, 0.6);  // the window's silence is known
  ASSERT_TRUE(t.take(said(Tokens().at(0).say(" good").at(2), -0.4f)).ok());
  EXPECT_FALSE(t.next());
  ASSERT_EQ(t.segments().size(), 1u);
  EXPECT_EQ(t.segments()[0].temperature, 0.6);
  EXPECT_NEAR(t.segments()[0].mean_log_prob, -0.4, 1e-6);
  EXPECT_NEAR(t.segments()[0].no_speech_prob, 0.3, 1e-6);
}

TEST_F(TranscriptionTest, TheLastTemperatureStands) {
  TranscriptionOptions options;
  options.temperatures = {0.7};
  Transcription t = begin(options, 6000);
  ASSERT_TRUE(t.take(said(Tokens().at(0).say(" hm").at(2), -3)).ok());
  ASSERT_TRUE(t.take(silence(0.1)).ok());
  EXPECT_EQ(t.segments()[0].text, " hm");
  // So warm a text is no prompt.
  EXPECT_THAT(t.next()->prompt,
              ElementsAre(testing_only::kStart, testing_only::kEnglish, testing_only::kTranscribe));
}

TEST_F(TranscriptionTest, SilenceIsPassedOver) {
  Transcription t = begin({}, 6000);
  ASSERT_TRUE(t.take(said(Tokens().at(0).say(" Thank you.").at(2), -1.5f)).ok());
  ASSERT_TRUE(t.take(silence(0.9)).ok());
  EXPECT_TRUE(t.segments().empty());
  EXPECT_EQ(t.next()->seek, 3000);
  // A likely text is speech, whatever the silence's probability.
  Transcription sure = begin({.wants_no_speech = true}, 3000);
  ASSERT_TRUE(sure.take(said(Tokens().at(0).say(" Thank you.").at(2))).ok());
  ASSERT_TRUE(sure.take(silence(0.9)).ok());
  EXPECT_EQ(sure.segments().size(), 1u);
}

TEST_F(TranscriptionTest, WithoutRulesAWindowIsASegment) {
  model_.has_rules = false;
  Transcription t = begin({.language = "de", .translates = true}, 3100);
  EXPECT_THAT(t.next()->prompt, ElementsAre(testing_only::kStart, testing_only::kGerman,
                                            testing_only::kTranslate, testing_only::kNoTimestamps));
  EXPECT_FALSE(t.next()->rules.has_timestamps());
  ASSERT_TRUE(t.take(said(Tokens().say(" Hello"))).ok());
  ASSERT_EQ(t.segments().size(), 1u);
  EXPECT_DOUBLE_EQ(t.segments()[0].end, 30);
  ASSERT_TRUE(t.take(said(Tokens().say(" you"))).ok());
  EXPECT_DOUBLE_EQ(t.segments()[1].end, 31);
  EXPECT_FALSE(t.next());
}

TEST_F(TranscriptionTest, WindowsHaveTheEncodersSize) {
  model_.window_frames = 100;
  Transcription t = begin({}, 250);
  for (const int64_t frames : {100, 100, 50}) {
    ASSERT_TRUE(t.next());
    EXPECT_EQ(t.next()->num_frames, frames);
    ASSERT_TRUE(t.take(said(Tokens().at(0).say(" a"))).ok());
  }
  EXPECT_FALSE(t.next());
  EXPECT_EQ(language_pass(model_, 250).num_frames, 100);
}

TEST_F(TranscriptionTest, EndsWhateverTheModelSays) {
  for (const Tokens& tokens :
       {Tokens(), Tokens().at(0).at(0), Tokens().at(0).at(0.02).at(0.02), Tokens().at(30).at(30),
        Tokens().id(testing_only::kNoTimestamps), Tokens().say("\xff\xfe")}) {
    Transcription t = begin({}, 9000);
    int count = 0;
    while (t.next() && count < 10000) {
      ++count;
      ASSERT_TRUE(t.take(t.next()->kind == PassKind::kScoreOne ? silence(0) : said(tokens)).ok());
    }
    EXPECT_FALSE(t.next());
    EXPECT_LT(count, 400);
  }
  Transcription t = begin({}, 3000);
  EXPECT_FALSE(t.take(said(Tokens().id(-1))).ok());
}

// Attention with a peak for each token, two positions further each time.
Attention diagonal(size_t num_tokens, int64_t positions, int64_t step) {
  Attention out = {
      .num_heads = 2, .num_tokens = static_cast<int64_t>(num_tokens), .num_positions = positions};
  for (int head = 0; head < 2; ++head)
    for (int64_t t = 0; t < out.num_tokens; ++t)
      for (int64_t p = 0; p < positions; ++p) {
        const auto far = static_cast<float>(p - t * step);
        out.scores.push_back(-far * far / 8);
      }
  return out;
}

TEST_F(TranscriptionTest, WordsGetTimes) {
  Transcription t = begin({.wants_words = true}, 3000);
  ASSERT_TRUE(t.take(said(Tokens().at(0).say(" Ab cd.").at(8).at(8).say(" Ef").at(12))).ok());
  ASSERT_EQ(t.next()->kind, PassKind::kAlign);
  std::vector<int32_t> prompt = {testing_only::kStart, testing_only::kEnglish,
                                 testing_only::kTranscribe, testing_only::kNoTimestamps};
  for (const int32_t id : ids_of(" Ab cd. Ef")) prompt.push_back(id);
  prompt.push_back(testing_only::kEnd);
  EXPECT_EQ(t.next()->prompt, prompt);
  PassResult aligned = {.attention = diagonal(prompt.size(), 1500, 20)};
  for (size_t i = 1; i < prompt.size(); ++i) aligned.log_probs.push_back(-0.5f);
  ASSERT_TRUE(t.take(aligned).ok());
  EXPECT_FALSE(t.next());
  ASSERT_EQ(t.segments().size(), 2u);
  const auto& words = t.segments()[0].words;
  ASSERT_EQ(words.size(), 2u);
  EXPECT_EQ(words[0].text, " Ab");
  EXPECT_EQ(words[1].text, " cd.");
  EXPECT_NEAR(words[0].probability, std::exp(-0.5), 1e-6);
  // A token is 20 positions of 20 ms. The path begins with the window; the fourth token's attention
  // is around position 60, and the seventh, the next word's first, begins halfway to 120.
  EXPECT_EQ(words[0].start, 0);
  EXPECT_NEAR(words[0].end, 2.2, 0.02);
  EXPECT_EQ(words[1].start, words[0].end);
  EXPECT_NEAR(words[1].end - words[1].start, 1.2, 0.02);  // without the full stop
  EXPECT_EQ(t.segments()[1].words.at(0).text, " Ef");
  EXPECT_GT(t.segments()[1].words[0].start, words[1].start);
  EXPECT_DOUBLE_EQ(t.segments()[0].start, words[0].start);
}

TEST_F(TranscriptionTest, RequestsThatCannotBe) {
  const auto error = [&](TranscriptionOptions options) {
    const auto made = Transcription::create(model_, std::move(options));
    return std::string(message(made.status()));
  };
  EXPECT_EQ(error({.language = "xx"}), "the model does not have the language 'xx'");
  model_.vocabulary.translate = -1;
  EXPECT_THAT(error({.language = "de", .translates = true}), HasSubstr("translates nothing"));
}

TEST_F(TranscriptionTest, TheLanguageIsTheLikeliestOfTheModels) {
  const Pass pass = language_pass(model_, 10000);
  EXPECT_THAT(pass.prompt, ElementsAre(testing_only::kStart));
  EXPECT_THAT(pass.allowed,
              ElementsAre(testing_only::kEnglish, testing_only::kGerman, testing_only::kJapanese));
  EXPECT_EQ(pass.num_frames, 3000);
  EXPECT_EQ(model_.vocabulary.language_of(testing_only::kJapanese), "ja");
}

TEST(LanguagesTest, ByCodeAndName) {
  EXPECT_EQ(find_language("DE")->name, "german");
  EXPECT_EQ(find_language("German")->code, "de");
  EXPECT_EQ(find_language("en-US")->code, "en");
  EXPECT_EQ(find_language("Castilian")->code, "es");
  EXPECT_EQ(find_language("yue")->name, "cantonese");
  EXPECT_EQ(find_language("tlh"), nullptr);
  EXPECT_EQ(find_language(""), nullptr);
  EXPECT_EQ(find_language("-"), nullptr);
  EXPECT_EQ(find_language(std::string(100000, '-')), nullptr);
  EXPECT_EQ(languages().size(), 100u);
}

TEST(WindowTest, CompressionOfTexts) {
  EXPECT_EQ(compression_ratio(""), 0);
  EXPECT_LT(compression_ratio("The quick brown fox jumps over the lazy dog"), 1.1);
  std::string again;
  for (int i = 0; i < 50; ++i) again += " again";
  EXPECT_GT(compression_ratio(again), 10);
}

TEST(TranscriptTest, Subtitles) {
  std::vector<Segment> segments(3);
  segments[0] = {.start = 0, .end = 1.5, .text = " One --> two"};
  segments[1] = {.start = 2, .end = 2, .text = " "};
  segments[2] = {.start = 3661.0004, .end = 3662.9996, .text = " a\n\n\nb"};
  EXPECT_EQ(srt_of(segments),
            "1\n00:00:00,000 --> 00:00:01,500\nOne -> two\n\n"
            "2\n01:01:01,000 --> 01:01:03,000\na\nb\n\n");
  EXPECT_EQ(vtt_of(segments),
            "WEBVTT\n\n00:00.000 --> 00:01.500\nOne -> two\n\n"
            "01:01:01.000 --> 01:01:03.000\na\nb\n\n");
  EXPECT_EQ(text_of(segments), "One --> two  a\n\n\nb");
  EXPECT_EQ(srt_time(-3), "00:00:00,000");
}

}  // namespace
}  // namespace nereid::speech
