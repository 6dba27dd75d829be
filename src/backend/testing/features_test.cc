// Every tensor of the tensorrt_llm model, through the server and the real executor.
#include <algorithm>

#include "backend/testing/feature_fixture.h"

namespace nereid::backend {
namespace {

TEST_F(FeatureTest, PenaltiesChangeWhatIsDrawn) {
  const Ids plain = generate(32);
  ASSERT_EQ(plain.size(), 32u);
  EXPECT_EQ(
      generate(32, {float_input("repetition_penalty", 1.0f), float_input("presence_penalty", 0.0f),
                    float_input("frequency_penalty", 0.0f)}),
      plain);
  EXPECT_NE(generate(32, {float_input("repetition_penalty", 1.8f)}), plain);
  EXPECT_NE(generate(32, {float_input("presence_penalty", 100.0f)}), plain);
  // A penalty so large that no token repeats, nor one of the prompt unless the prompt is ignored.
  const Ids distinct = generate(32, {float_input("frequency_penalty", 1000.0f)});
  Ids all = prompt();
  all.insert(all.end(), distinct.begin(), distinct.end());
  const std::set<int32_t> prompt_set = [] {
    const Ids p = prompt();
    return std::set<int32_t>(p.begin(), p.end());
  }();
  EXPECT_EQ(std::set<int32_t>(all.begin(), all.end()).size(), prompt_set.size() + 32);
  const Ids ignoring =
      generate(32, {float_input("frequency_penalty", 1000.0f),
                    int_input("prompt_ignore_length", static_cast<int32_t>(prompt().size()))});
  EXPECT_EQ(std::set<int32_t>(ignoring.begin(), ignoring.end()).size(), 32u);
  EXPECT_NE(ignoring, distinct);
}

TEST_F(FeatureTest, BansAndBiases) {
  const Ids plain = generate(16);
  const auto has = [](const Ids& ids, int32_t id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  EXPECT_FALSE(has(generate(16, {words_input("bad_words_list", {{plain[3]}})}), plain[3]));
  const Ids pair = {plain[0], plain[1]};
  const Ids without_pair = generate(16, {words_input("bad_words_list", {pair})});
  EXPECT_EQ(without_pair[0], plain[0]);
  EXPECT_NE(without_pair[1], plain[1]);
  const auto at = [](int32_t id, float value, std::vector<Output> more = {}) {
    more.push_back(ids_input("logit_bias_ids", {id}));
    more.push_back(make_output("logit_bias_values", {1, 1}, std::vector<float>{value}));
    return more;
  };
  EXPECT_EQ(generate(4, at(7, 1e6f)), Ids(4, 7));
  EXPECT_FALSE(has(generate(16, at(plain[0], -INFINITY)), plain[0]));
  std::vector<float> bias(static_cast<size_t>(tokenizer_->vocab_size()), 0.0f);
  bias[9] = 1e6f;
  EXPECT_EQ(
      generate(4, {make_output("embedding_bias", {1, static_cast<int64_t>(bias.size())}, bias)}),
      Ids(4, 9));
  const Ids allowed = generate(16, {ids_input("allowed_token_ids", {7, plain[3], 9})});
  ASSERT_EQ(allowed.size(), 16u);
  for (const int32_t id : allowed) EXPECT_TRUE(id == 7 || id == plain[3] || id == 9) << id;
  EXPECT_EQ(generate(4, at(9, 1e6f, {ids_input("allowed_token_ids", {7})})), Ids(4, 7));
  const Ids ngram = generate(64, {int_input("no_repeat_ngram_size", 2), int_input("end_id", -1)});
  std::set<std::pair<int32_t, int32_t>> pairs;
  for (size_t i = 0; i + 1 < ngram.size(); ++i) pairs.emplace(ngram[i], ngram[i + 1]);
  EXPECT_EQ(pairs.size() + 1, ngram.size());
}

TEST_F(FeatureTest, CutsOfTheDistribution) {
  const Ids greedy = generate(12);
  const std::vector<Output> hot = {float_input("temperature", 5.0f),
                                   float_input("runtime_top_p", 1.0f), seed_input(3)};
  const auto with = [&](std::vector<Output> more) {
    more.insert(more.end(), hot.begin(), hot.end());
    return more;
  };
  EXPECT_NE(generate(12, hot), greedy);
  EXPECT_EQ(generate(12, with({float_input("min_p", 1.0f)})), greedy);
  // The first token is sampled from all tokens, later ones from very few.
  const std::vector<Output> decaying = with({float_input("runtime_top_p_decay", 1e-5f)});
  const Ids decayed = generate(8, decaying);
  Ids rest = prompt();
  rest.push_back(decayed[0]);
  EXPECT_EQ(Ids(decayed.begin() + 1, decayed.end()), tokens_of(ask_ids(rest, 7)));
  auto floored = decaying;
  floored.push_back(float_input("runtime_top_p_min", 1.0f));
  EXPECT_EQ(generate(8, floored), generate(8, hot));
  auto reset = decaying;
  reset.push_back(int_input("runtime_top_p_reset_ids", decayed[0]));
  EXPECT_EQ(generate(2, reset), generate(2, hot));
}

TEST_F(FeatureTest, LengthsAndStreams) {
  const Ids plain = generate(12);
  const auto end = int_input("end_id", plain[2]);
  EXPECT_EQ(generate(12, {end}), Ids(plain.begin(), plain.begin() + 2));
  const Ids longer = generate(12, {end, int_input("min_length", 8)});
  EXPECT_GE(longer.size(), 8u);
  EXPECT_EQ(std::count(longer.begin(), longer.begin() + 8, plain[2]), 0);
  EXPECT_EQ(generate(12, {words_input("stop_words_list", {{plain[3], plain[4]}})}),
            Ids(plain.begin(), plain.begin() + 5));
  const auto whole =
      ask_ids(prompt(), 12,
              {bool_input("streaming", true), bool_input("return_all_generated_tokens", true)});
  ASSERT_GT(whole.outputs.size(), 4u);
  size_t last = 0;
  for (const auto& outputs : whole.outputs) {
    const Ids ids = elements<int32_t>(outputs, "output_ids");
    EXPECT_GE(ids.size(), last);
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), plain.begin()));
    last = ids.size();
  }
  EXPECT_EQ(last, plain.size());
}

TEST_F(FeatureTest, LogProbsOfWhichDistribution) {
  const auto values = [](std::vector<Output> more) {
    more.push_back(bool_input("return_log_probs", true));
    more.push_back(seed_input(9));
    more.push_back(float_input("runtime_top_p", 1.0f));
    return elements<float>(ask_ids(prompt(), 6, std::move(more)).outputs.at(0), "output_log_probs");
  };
  const auto raw = bool_input("raw_log_probs", true);
  EXPECT_EQ(values({raw}), values({}));  // temperature 1 changes nothing
  const auto hot = float_input("temperature", 2.0f);
  EXPECT_NE(values({hot, raw}), values({hot}));
  const auto penalty = float_input("presence_penalty", 1.0f);
  EXPECT_NE(values({hot, penalty, bool_input("temperature_last", true)}), values({hot, penalty}));
}

TEST_F(FeatureTest, TextFormsOfBansAndBiases) {
  for (const char* model : {"ensemble", "tensorrt_llm_bls"}) {
    const auto excluded = bool_input("exclude_input_in_output", true);
    const auto plain = ask(model, "Machine learning is", 16, {excluded});
    ASSERT_TRUE(plain.status.ok()) << plain.status;
    const std::string word = plain.joined().substr(0, plain.joined().find(' ', 1));
    const auto banned =
        ask(model, "Machine learning is", 16, {excluded, text_input("bad_words", {word, ""})});
    ASSERT_TRUE(banned.status.ok()) << banned.status;
    EXPECT_FALSE(banned.joined().starts_with(word)) << word << " " << banned.joined();
    const auto biased = ask(model, "Machine learning is", 3,
                            {excluded, text_input("embedding_bias_words", {"!"}),
                             make_output("embedding_bias_weights", {1, 1}, std::vector{1e6f})});
    EXPECT_EQ(biased.joined(), "!!!") << model;
    const auto uneven = ask(model, "x", 3, {text_input("embedding_bias_words", {"!"})});
    EXPECT_THAT(std::string(message(uneven.status)), HasSubstr("same dimension"));
  }
}

TEST_F(FeatureTest, LogProbs) {
  const auto got = ask_ids(
      prompt(), 8, {bool_input("return_log_probs", true), int_input("num_top_log_probs", 3)});
  const Ids tokens = tokens_of(got);
  const auto& outputs = got.outputs[0];
  EXPECT_EQ(shape_of(outputs, "output_log_probs"), (Shape{1, 1, 8}));
  EXPECT_EQ(shape_of(outputs, "cum_log_probs"), (Shape{1, 1}));
  EXPECT_EQ(shape_of(outputs, "top_log_probs"), (Shape{1, 1, 8, 3}));
  const auto log_probs = elements<float>(outputs, "output_log_probs");
  const auto top = elements<float>(outputs, "top_log_probs");
  const auto top_ids = elements<int32_t>(outputs, "top_log_prob_ids");
  float sum = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(top_ids[3 * i], tokens[i]);  // greedy
    EXPECT_GE(top[3 * i], top[3 * i + 1]);
    sum += top[3 * i];
  }
  EXPECT_NEAR(elements<float>(outputs, "cum_log_probs")[0], sum, 1e-4);
  // A stream: log-probabilities of all tokens so far in each response, lists for the new tokens.
  const auto streamed = ask_ids(prompt(), 8,
                                {bool_input("return_log_probs", true),
                                 int_input("num_top_log_probs", 3), bool_input("streaming", true)});
  Ids joined;
  for (const auto& part : streamed.outputs) {
    const auto ids = elements<int32_t>(part, "output_ids");
    joined.insert(joined.end(), ids.begin(), ids.end());
    EXPECT_EQ(elements<float>(part, "output_log_probs"),
              std::vector<float>(log_probs.begin(), log_probs.begin() + joined.size()));
    EXPECT_EQ(elements<int32_t>(part, "top_log_prob_ids").size(), 3 * ids.size());
  }
  EXPECT_EQ(joined, tokens);
  EXPECT_TRUE(elements<float>(ask_ids(prompt(), 2).outputs[0], "output_log_probs").empty());
}

TEST_F(FeatureTest, SequencesHaveSeedsInOrder) {
  const auto drawn = [](uint64_t seed, std::vector<Output> more) {
    more.push_back(seed_input(seed));
    more.push_back(float_input("temperature", 3.0f));
    more.push_back(float_input("runtime_top_p", 1.0f));
    return ask_ids(prompt(), 12, std::move(more));
  };
  const auto several = drawn(20, {int_input("num_return_sequences", 3)});
  ASSERT_TRUE(several.status.ok()) << several.status;
  EXPECT_EQ(several.num_finals, 1);
  std::map<int32_t, Ids> by_index;
  for (const auto& outputs : several.outputs) {
    by_index[elements<int32_t>(outputs, "sequence_index").at(0)] =
        elements<int32_t>(outputs, "output_ids");
  }
  ASSERT_EQ(by_index.size(), 3u);
  for (const auto& [index, ids] : by_index) {
    EXPECT_EQ(tokens_of(drawn(20 + static_cast<uint64_t>(index), {})), ids) << index;
  }
  const auto best = drawn(20, {int_input("best_of", 3)});
  ASSERT_TRUE(best.status.ok()) << best.status;
  const Ids chosen = tokens_of(best);
  EXPECT_TRUE(chosen == by_index[0] || chosen == by_index[1] || chosen == by_index[2]);
  for (const char* model : {"ensemble", "tensorrt_llm_bls"}) {
    const auto texts = ask(model, kPrompt, 8, {int_input("num_return_sequences", 2)});
    EXPECT_TRUE(texts.status.ok()) << texts.status;
    EXPECT_EQ(texts.texts.size(), 2u) << model;
  }
}

TEST_F(FeatureTest, BeamsComeBestFirst) {
  const std::vector<Output> options = {int_input("beam_width", 3), float_input("len_penalty", 1.0f),
                                       bool_input("return_log_probs", true)};
  const auto got = ask_ids(prompt(), 12, options);
  ASSERT_TRUE(got.status.ok()) << got.status;
  ASSERT_EQ(got.outputs.size(), 1u);
  const auto rows = rows_of(got.outputs[0]);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(shape_of(got.outputs[0], "output_ids").size(), 3u);
  EXPECT_EQ(shape_of(got.outputs[0], "cum_log_probs"), (Shape{1, 3}));
  const auto sums = elements<float>(got.outputs[0], "cum_log_probs");
  const auto scores = elements<float>(got.outputs[0], "output_log_probs");
  const auto score = [&](size_t r) { return sums[r] / static_cast<float>(rows[r].size()); };
  const size_t width = scores.size() / 3;
  for (size_t r = 0; r < 3; ++r) {
    float sum = 0;
    for (size_t t = 0; t < rows[r].size(); ++t) sum += scores[r * width + t];
    EXPECT_NEAR(sum, sums[r], 0.02) << r;  // an end token, which has no row, is excluded
  }
  EXPECT_GE(score(0) + 1e-4, score(1));
  EXPECT_NE(rows[0], rows[1]);
  EXPECT_NE(rows[1], rows[2]);
  auto fewer = options;
  fewer.push_back(int_input("num_return_sequences", 1));
  const auto best = ask_ids(prompt(), 12, fewer);
  ASSERT_TRUE(best.status.ok()) << best.status;
  EXPECT_EQ(rows_of(best.outputs[0]), std::vector<Ids>{rows[0]});

  // Rows that end early are padded; rows_of() checks the padding.
  auto ending = options;
  ending.push_back(int_input("end_id", rows[0][6]));
  const auto uneven = ask_ids(prompt(), 12, ending);
  ASSERT_TRUE(uneven.status.ok()) << uneven.status;
  EXPECT_EQ(rows_of(uneven.outputs[0]).size(), 3u);
  const Ids lengths = elements<int32_t>(uneven.outputs[0], "sequence_length");
  EXPECT_GT(std::set<int32_t>(lengths.begin(), lengths.end()).size(), 1u);

  // A stream: all rows whole in each response; the last equals the unstreamed one.
  auto streaming = options;
  streaming.push_back(bool_input("streaming", true));
  const auto streamed = ask_ids(prompt(), 12, streaming);
  ASSERT_TRUE(streamed.status.ok()) << streamed.status;
  EXPECT_GT(streamed.outputs.size(), 3u);
  EXPECT_EQ(rows_of(streamed.outputs.back()), rows);
  EXPECT_EQ(rows_of(streamed.outputs[1]).size(), 3u);

  for (const char* model : {"ensemble", "tensorrt_llm_bls"}) {
    const auto texts =
        ask(model, kPrompt, 12,
            {int_input("beam_width", 3), float_input("length_penalty", 1.0f),
             bool_input("exclude_input_in_output", true), text_input("stop_words", {"zqzq"})});
    ASSERT_TRUE(texts.status.ok()) << model << texts.status;
    EXPECT_EQ(shape_of(texts.outputs[0], "text_output"), Shape{3}) << model;
    EXPECT_EQ(texts.texts.at(0), tokenizer_->decode(rows[0], true)) << model;
  }
}

TEST_F(FeatureTest, Logits) {
  const auto vocab = static_cast<int64_t>(tokenizer_->vocab_size());
  const std::vector<Output> options = {bool_input("return_context_logits", true),
                                       bool_input("return_generation_logits", true)};
  const auto got = ask_ids(prompt(), 4, options);
  const Ids tokens = tokens_of(got);
  const auto count = static_cast<int64_t>(prompt().size());
  EXPECT_EQ(shape_of(got.outputs[0], "context_logits"), (Shape{1, count, vocab}));
  EXPECT_EQ(shape_of(got.outputs[0], "generation_logits"), (Shape{1, 1, 4, vocab}));
  const auto context = elements<float>(got.outputs[0], "context_logits");
  const auto generated = elements<float>(got.outputs[0], "generation_logits");
  const auto likeliest = [&](const std::vector<float>& logits, int64_t row) {
    const auto begin = logits.begin() + row * vocab;
    return static_cast<int32_t>(std::max_element(begin, begin + vocab) - begin);
  };
  EXPECT_EQ(likeliest(context, count - 1), tokens[0]);
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(likeliest(generated, i), tokens[static_cast<size_t>(i)]) << i;
  }
  auto streaming = options;
  streaming.push_back(bool_input("streaming", true));
  std::vector<float> joined;
  const auto parts = ask_ids(prompt(), 4, streaming).outputs;
  EXPECT_EQ(elements<float>(parts.at(0), "context_logits"), context);
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto& part = parts[i];
    const auto ids = static_cast<int64_t>(elements<int32_t>(part, "output_ids").size());
    EXPECT_EQ(shape_of(part, "generation_logits"), (Shape{1, ids, 1, vocab}));
    if (i > 0) {
      EXPECT_EQ(shape_of(part, "context_logits"), (Shape{1, 0, vocab})) << "sent once";
    }
    const auto rows = elements<float>(part, "generation_logits");
    joined.insert(joined.end(), rows.begin(), rows.end());
  }
  EXPECT_EQ(joined, generated);
}

TEST_F(FeatureTest, SaltsAndRetention) {
  Ids ids;
  for (int32_t i = 0; i < 64; ++i) ids.push_back(200 + i * 5);
  const auto reused = [&](std::vector<Output> more) {
    more.push_back(bool_input("return_perf_metrics", true));
    const auto got = ask_ids(ids, 2, std::move(more));
    EXPECT_TRUE(got.status.ok()) << got.status;
    return elements<int32_t>(got.outputs.at(0), "kv_cache_reused_blocks").at(0);
  };
  EXPECT_EQ(reused({}), 0);
  EXPECT_GT(reused({}), 0);
  EXPECT_EQ(reused({text_input("cache_salt", {"mine"})}), 0);
  EXPECT_GT(reused({text_input("cache_salt", {"mine"})}), 0);
  const auto ranges = [](Ids starts, Ids ends, Ids priorities) {
    return std::vector<Output>{
        ids_input("retention_token_range_starts", starts),
        ids_input("retention_token_range_ends", ends),
        ids_input("retention_token_range_priorities", priorities),
        ids_input("retention_token_range_durations_ms", Ids(starts.size(), -1)),
        int_input("retention_decode_priority", 10)};
  };
  EXPECT_TRUE(ask_ids(ids, 2, ranges({0, 32}, {32, -1}, {90, 20})).status.ok());
  const auto error = [&](std::vector<Output> more) {
    return std::string(message(ask_ids(ids, 2, std::move(more)).status));
  };
  EXPECT_THAT(error(ranges({0}, {32}, {101})), HasSubstr("Must be between 0 and 100"));
  EXPECT_THAT(error(ranges({0, 1}, {32}, {1})), HasSubstr("retention_token_range_ends must be"));
  EXPECT_THAT(error(ranges({5}, {5}, {1})), HasSubstr("retention_token_range_starts[0]"));
}

}  // namespace
}  // namespace nereid::backend
