#include "front/openai/requests/requests.h"

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "io/test_torch_file.h"

namespace nereid::front {
namespace {

ApiError completion_error(std::string_view body) {
  const auto r = parse_completion_request(body);
  const auto* e = std::get_if<ApiError>(&r);
  return e ? *e : ApiError{200, "accepted", "", ""};
}

TEST(CompletionRequest, DefaultsAndNulls) {
  const auto r = parse_completion_request(
      R"({"prompt": "hi", "temperature": null, "n": 1, "logit_bias": {}, "suffix": null,
          "presence_penalty": 0.0, "user": "me", "something_new": [1]})");
  ASSERT_TRUE(std::holds_alternative<CompletionRequest>(r));
  const auto& c = std::get<CompletionRequest>(r);
  ASSERT_EQ(c.prompts.size(), 1u);
  EXPECT_EQ(std::get<std::string>(c.prompts[0]), "hi");
  EXPECT_EQ(c.common.sampling.temperature, 1.0);
  EXPECT_FALSE(c.common.sampling.max_tokens.has_value());
  EXPECT_FALSE(c.common.stream);
}

TEST(CompletionRequest, ReadsEveryPromptForm) {
  const auto count = [](std::string_view prompt) {
    const auto r = parse_completion_request(fmt::format(R"({{"prompt": {}}})", prompt));
    return std::get<CompletionRequest>(r).prompts;
  };
  EXPECT_EQ(count(R"(["a", "b"])").size(), 2u);
  EXPECT_EQ(count("[1, 2, 3]").size(), 1u);
  EXPECT_EQ(std::get<std::vector<int32_t>>(count("[[1, 2], [3]]")[0]),
            (std::vector<int32_t>{1, 2}));
}

// f32 [tokens, width] in base64: 0, 0.5, 1, ...
std::string embeds(std::vector<int64_t> shape) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < shape[0] * shape[1]; ++i) numbers.push_back(static_cast<float>(i) / 2);
  const io::StoredTensor tensor{
      "", "F32", DType::kF32, std::move(shape), std::as_bytes(std::span(numbers)), nullptr};
  return absl::Base64Escape(io::testing_only::serialize_torch_tensor(tensor));
}

TEST(CompletionRequest, ReadsPromptEmbeds) {
  const auto prompts_of = [](const std::string& more) {
    const auto r = parse_completion_request(fmt::format(R"({{"prompt_embeds": ["{}", "{}"]{}}})",
                                                        embeds({2, 3}), embeds({1, 4}), more));
    return std::get<CompletionRequest>(r).prompts;
  };
  for (const char* nothing : {"", R"(, "prompt": null)", R"(, "prompt": "")"})
    EXPECT_EQ(prompts_of(nothing).size(), 2u) << nothing;
  const std::vector<Prompt> prompts = prompts_of(R"(, "prompt": [[1, 2]])");
  ASSERT_EQ(prompts.size(), 3u);
  const PromptRowsPtr& rows = std::get<PromptRowsPtr>(prompts[0]);
  EXPECT_EQ(rows->size(), 2);
  EXPECT_EQ(rows->width, 3);
  ASSERT_EQ(rows->values.size(), 6u);
  EXPECT_EQ(to_float(rows->values[5]), 2.5f);
  EXPECT_EQ(std::get<PromptRowsPtr>(prompts[1])->width, 4);
  EXPECT_EQ(std::get<std::vector<int32_t>>(prompts[2]), (std::vector<int32_t>{1, 2}));
  const auto one =
      parse_completion_request(fmt::format(R"({{"prompt_embeds": "{}"}})", embeds({2, 3})));
  EXPECT_EQ(std::get<CompletionRequest>(one).prompts.size(), 1u);
}

TEST(CompletionRequest, FaultsOfPromptEmbedsAreNamed) {
  const auto fault = [](const std::string& value, const std::string& more = "") {
    return completion_error(fmt::format(R"({{"prompt_embeds": {}{}}})", value, more)).message;
  };
  const std::string good = '"' + embeds({2, 3}) + '"';
  const std::pair<std::string, std::string> cases[] = {
      {fault("5"), "'prompt_embeds': expected a tensor of torch.save in base64"},
      {fault("[1]"), "'prompt_embeds': expected a tensor of torch.save in base64"},
      {fault(R"("???")"), "'prompt_embeds': 3 bytes of text are not base64"},
      {fault(R"("AAAA")"), "'prompt_embeds': is not a zip archive"},
      {fault('"' + embeds({0, 3}) + '"'), "'prompt_embeds': the shape [0, 3] is not"},
      {fault('"' + embeds({2, 3, 1}) + '"'), "'prompt_embeds': the shape [2, 3, 1] is not"},
      {fault("[]"), "'prompt'"},
      {fault(good, R"(, "echo": true)"), "'echo': not with \"prompt_embeds\""},
      {fault(good, R"(, "prompt_logprobs": 1)"), "'prompt_logprobs': not with"},
      {fault(good, R"(, "truncate_prompt_tokens": 1)"), "'truncate_prompt_tokens': not with"},
      {fault(good, R"(, "suffix": "s")"), "'suffix': only with prompts that are texts"},
      {fault("[" + good + ", " + good + "]", R"(, "n": 65)"), "'n': 2 prompts with 65"}};
  for (const auto& [message, wanted] : cases) EXPECT_TRUE(message.starts_with(wanted)) << message;
}

TEST(CompletionRequest, ReadsSampling) {
  const auto r = parse_completion_request(
      R"({"prompt": "x", "max_tokens": 5.0, "temperature": 0, "top_p": 0.5, "top_k": -1,
          "seed": -3, "stop": ["a", "b"], "stop_token_ids": [7], "min_tokens": 2,
          "ignore_eos": true, "stream": true, "stream_options": {"include_usage": true}})");
  ASSERT_TRUE(std::holds_alternative<CompletionRequest>(r)) << std::get<ApiError>(r).message;
  const CommonOptions& c = std::get<CompletionRequest>(r).common;
  EXPECT_EQ(c.sampling.max_tokens, 5);
  EXPECT_EQ(c.sampling.temperature, 0);
  EXPECT_EQ(c.sampling.top_k, 0);
  EXPECT_EQ(c.sampling.seed, static_cast<uint64_t>(int64_t{-3}));
  EXPECT_EQ(c.sampling.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(c.include_usage);
}

TEST(CompletionRequest, ReadsPenaltiesAndSequences) {
  const auto r = parse_completion_request(
      R"({"prompt": ["x", "y"], "n": 2, "best_of": 3, "presence_penalty": 0.5,
          "frequency_penalty": -1, "repetition_penalty": 1.2, "min_p": 0.1,
          "logit_bias": {"7": -100, "3": 1.5}, "bad_words": ["no"], "logprobs": 4,
          "priority": 0.75, "cache_salt": "s", "prompt_ignore_length": 3})");
  ASSERT_TRUE(std::holds_alternative<CompletionRequest>(r)) << std::get<ApiError>(r).message;
  const SamplingOptions& s = std::get<CompletionRequest>(r).common.sampling;
  EXPECT_EQ(s.n, 2);
  EXPECT_EQ(s.best_of, 3);
  EXPECT_FALSE(s.can_stream());
  EXPECT_EQ(s.presence_penalty, 0.5);
  EXPECT_EQ(s.frequency_penalty, -1);
  EXPECT_EQ(s.repetition_penalty, 1.2);
  EXPECT_EQ(s.min_p, 0.1);
  EXPECT_EQ(s.logit_bias, (std::vector<std::pair<int32_t, float>>{{7, -100.0f}, {3, 1.5f}}));
  EXPECT_EQ(s.bad_words, std::vector<std::string>{"no"});
  EXPECT_TRUE(s.log_probs);
  EXPECT_EQ(s.num_top_log_probs, 4);
  EXPECT_EQ(s.priority, 0.75);
  EXPECT_EQ(s.cache_salt, "s");
  EXPECT_EQ(s.prompt_ignore_length, 3);
}

TEST(CompletionRequest, BeamsAreBestOfWide) {
  const auto r = parse_completion_request(
      R"({"prompt": "x", "use_beam_search": true, "n": 2, "best_of": 4, "length_penalty": 0.5,
          "early_stopping": "never"})");
  const SamplingOptions& s = std::get<CompletionRequest>(r).common.sampling;
  EXPECT_TRUE(s.use_beam_search);
  EXPECT_EQ(s.best_of, 4);
  EXPECT_EQ(s.length_penalty, 0.5);
  EXPECT_EQ(s.early_stopping, 2);
}

TEST(CompletionRequest, FaultsNameTheField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "prompt"},
      {R"({"prompt": ""})", "prompt"},
      {R"({"prompt": []})", "prompt"},
      {R"({"prompt": [""]})", "prompt"},
      {R"({"prompt": [1, "a"]})", "prompt"},
      {R"({"prompt": 5})", "prompt"},
      {R"({"prompt": "x", "temperature": "hot"})", "temperature"},
      {R"({"prompt": "x", "temperature": 100.5})", "temperature"},
      {R"({"prompt": "x", "top_p": 0})", "top_p"},
      {R"({"prompt": "x", "max_tokens": 0})", "max_tokens"},
      {R"({"prompt": "x", "max_tokens": 1.5})", "max_tokens"},
      {R"({"prompt": "x", "max_tokens": 18446744073709551615})", "max_tokens"},
      {R"({"prompt": [1], "suffix": "s"})", "suffix"},
      {R"({"prompt": "x", "n": 0})", "n"},
      {R"({"prompt": "x", "n": 129})", "n"},
      {R"({"prompt": ["x", "y"], "n": 65})", "n"},
      {R"({"prompt": "x", "n": 3, "best_of": 2})", "best_of"},
      {R"({"prompt": "x", "best_of": 2, "stream": true})", "best_of"},
      {R"({"prompt": "x", "n": 2, "use_beam_search": true, "stream": true})", "use_beam_search"},
      {R"({"prompt": "x", "early_stopping": 3})", "early_stopping"},
      {R"({"prompt": "x", "logprobs": 21})", "logprobs"},
      {R"({"prompt": "x", "logprobs": 1, "echo": true, "suffix": "y"})", "logprobs"},
      {R"({"prompt": "x", "logit_bias": {"five": 1}})", "logit_bias"},
      {R"({"prompt": "x", "logit_bias": {"-5": 1}})", "logit_bias"},
      {R"({"prompt": "x", "logit_bias": {"5": 101}})", "logit_bias"},
      {R"({"prompt": "x", "logit_bias": {"5": "1"}})", "logit_bias"},
      {R"({"prompt": "x", "logit_bias": [5]})", "logit_bias"},
      {R"({"prompt": "x", "presence_penalty": 2.5})", "presence_penalty"},
      {R"({"prompt": "x", "frequency_penalty": -3})", "frequency_penalty"},
      {R"({"prompt": "x", "repetition_penalty": 0})", "repetition_penalty"},
      {R"({"prompt": "x", "min_p": 2})", "min_p"},
      {R"({"prompt": "x", "priority": 7})", "priority"},
      {R"({"prompt": "x", "bad_words": [""]})", "bad_words"},
      {R"({"prompt": "x", "prompt_logprobs": 21})", "prompt_logprobs"},
      {R"({"prompt": "x", "response_format": {"type": "xml"}})", "response_format"},
      {R"({"prompt": "x", "response_format": {"type": "json_schema"}})", "response_format"},
      {R"({"prompt": "x", "response_format": {"type": "json_schema", "json_schema": {"name": "n"}}})",
       "response_format"},
      {R"({"prompt": "x", "response_format": {"type": "regex"}})", "response_format"},
      {R"({"prompt": "x", "structured_outputs": {"regex": "a", "disable_any_whitespace": true}})",
       "structured_outputs"},
      {R"({"prompt": "x", "guided_json": 1})", "guided_json"},
      {R"({"prompt": "x", "guided_regex": ""})", "guided_regex"},
      {R"({"prompt": "x", "guided_choice": ["a", 1]})", "guided_choice"},
      {R"({"prompt": "x", "guided_choice": ["a"], "guided_regex": "a"})", "guided_choice"},
      {R"({"prompt": "x", "structured_outputs": {"structural_tag": 1}})", "structured_outputs"},
      {R"({"prompt": "x", "structural_tag": []})", "structural_tag"},
      {R"({"prompt": "x", "guided_regex": "a", "ignore_eos": true})", "ignore_eos"},
      {R"({"prompt": "x", "guided_regex": "a", "use_beam_search": true})", "use_beam_search"},
      {R"({"prompt": "x", "stop": ["a", ""]})", "stop"},
      {R"({"prompt": "x", "stop": ""})", "stop"},
      {R"({"prompt": "x", "truncate_prompt_tokens": 0})", "truncate_prompt_tokens"},
      {R"({"prompt": "x", "truncate_prompt_tokens": -2})", "truncate_prompt_tokens"},
      {R"({"prompt": "x", "stream_options": {}})", "stream_options"},
      {R"({"prompt": "x", "stream": "yes"})", "stream"},
      {R"({"prompt": "x", "max_tokens": 2, "min_tokens": 3})", "min_tokens"},
  };
  for (const auto& [body, param] : cases) {
    const ApiError e = completion_error(body);
    EXPECT_EQ(e.status, 400) << body;
    EXPECT_EQ(e.param, param) << body << " " << e.message;
    EXPECT_NE(e.message.find(param), std::string::npos) << e.message;
  }
}

TEST(CompletionRequest, EveryWayToSayWhatTheTextIs) {
  const std::pair<const char*, GrammarField> cases[] = {
      {R"("response_format": {"type": "json", "schema": {"a": 1}})", {"json_schema", "{\"a\":1}"}},
      {R"("response_format": {"type": "regex", "regex": "a|b"})", {"regex", "a|b"}},
      {R"("response_format": {"type": "ebnf", "ebnf": "root ::= [a]"})",
       {"ebnf_grammar", "root ::= [a]"}},
      {R"("response_format": {"type": "json_schema", "json_schema": {"type": "null"}})",
       {"json_schema", "{\"type\":\"null\"}"}},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}})",
       {"json_schema", "{}"}},
      {R"("structured_outputs": {"json_object": true, "disable_any_whitespace": false,
          "disable_additional_properties": false, "whitespace_pattern": null})",
       {"json", ""}},
  };
  for (const auto& [field, wanted] : cases) {
    const auto r = parse_completion_request(fmt::format(R"({{"prompt": "x", {}}})", field));
    ASSERT_TRUE(std::holds_alternative<CompletionRequest>(r)) << field;
    const auto& guide = std::get<CompletionRequest>(r).common.sampling.guide;
    ASSERT_TRUE(guide) << field;
    EXPECT_EQ(guide->type, wanted.type) << field;
    EXPECT_EQ(guide->text, wanted.text) << field;
  }
}

TEST(CompletionRequest, StopStringsAreCounted) {
  std::string stops = "\"a\"";
  for (size_t i = 1; i < kMaxStopStrings; ++i) stops += ", \"a\"";
  const auto body = [](const std::string& list) {
    return fmt::format(R"({{"prompt": "x", "stop": [{}]}})", list);
  };
  EXPECT_TRUE(std::holds_alternative<CompletionRequest>(parse_completion_request(body(stops))));
  const auto r = parse_completion_request(body(stops + ", \"a\""));
  EXPECT_EQ(std::get<ApiError>(r).param, "stop");
}

TEST(CompletionRequest, StopStringsHaveALength) {
  const auto body = [](size_t size) {
    return fmt::format(R"({{"prompt": "x", "stop": ["a", "{}"]}})", std::string(size - 1, 'b'));
  };
  EXPECT_TRUE(
      std::holds_alternative<CompletionRequest>(parse_completion_request(body(kMaxStopBytes))));
  const auto r = parse_completion_request(body(kMaxStopBytes + 1));
  ASSERT_TRUE(std::holds_alternative<ApiError>(r));
  EXPECT_EQ(std::get<ApiError>(r).param, "stop");
  EXPECT_NE(std::get<ApiError>(r).message.find("4097 bytes given, at most 4096 allowed"),
            std::string::npos)
      << std::get<ApiError>(r).message;
}

TEST(CompletionRequest, BadJsonNamesThePlace) {
  const ApiError e = completion_error("{\"prompt\": \"x\",\n \"n\" 1}");
  EXPECT_EQ(e.status, 400);
  EXPECT_NE(e.message.find("line 2"), std::string::npos) << e.message;
  EXPECT_NE(completion_error("[1]").message.find("an array"), std::string::npos);
}

TEST(ScoreRequest, PairsAndFaults) {
  const auto read = [](std::string_view body) { return parse_score_request(body); };
  const auto fault = [&](std::string_view body) {
    const auto r = read(body);
    const auto* e = std::get_if<ApiError>(&r);
    return e ? e->param : "accepted";
  };
  const auto one = std::get<ScoreRequest>(read(R"({"text_1": "q", "text_2": ["a", "b"]})"));
  EXPECT_EQ(one.pair(0), "qa");
  EXPECT_EQ(one.pair(1), "qb");
  EXPECT_EQ(one.second, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(one.activates);
  const auto pairs = std::get<ScoreRequest>(
      read(R"({"queries": ["p", "q"], "documents": ["a", "b"], "use_activation": false})"));
  EXPECT_EQ(pairs.pair(0), "pa");
  EXPECT_EQ(pairs.pair(1), "qb");
  EXPECT_FALSE(pairs.activates);
  EXPECT_EQ(fault(R"({"text_1": "q"})"), "text_2");
  EXPECT_EQ(fault(R"({"text_1": ["p", "q"], "text_2": "a"})"), "text_1");
  EXPECT_EQ(fault(R"({"text_1": "q", "text_2": []})"), "text_2");
  EXPECT_EQ(fault(R"({"text_1": "q", "text_2": ["a", 3]})"), "text_2");
  EXPECT_EQ(fault(R"({"text_1": "q", "queries": "q", "documents": "a"})"), "text_1");
  // A long text counts once for each of the others.
  const auto with_long = [&](size_t bytes) {
    return fmt::format(R"({{"text_1": "{}", "text_2": ["a", "b"]}})", std::string(bytes, 'x'));
  };
  EXPECT_EQ(fault(with_long(kMaxPairBytes / 2 - 1)), "accepted");
  EXPECT_EQ(fault(with_long(kMaxPairBytes / 2)), "text_1");
}

TEST(RerankRequest, DocumentsAndFaults) {
  const auto fault = [&](std::string_view body) {
    const auto r = parse_rerank_request(body);
    const auto* e = std::get_if<ApiError>(&r);
    return e ? e->param : "accepted";
  };
  const auto some = std::get<RerankRequest>(parse_rerank_request(
      R"({"query": "q", "documents": ["a", {"text": "b"}, "c"], "top_n": 2, "return_documents": false})"));
  EXPECT_EQ(some.second, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(some.pair(2), "qc");
  EXPECT_EQ(some.num_wanted, 2u);
  EXPECT_FALSE(some.returns_documents);
  const auto all = std::get<RerankRequest>(
      parse_rerank_request(R"({"query": "q", "documents": ["a", "b"], "top_n": 9})"));
  EXPECT_EQ(all.num_wanted, 2u);
  EXPECT_EQ(fault(R"({"documents": ["a"]})"), "query");
  EXPECT_EQ(fault(R"({"query": "q", "documents": [{"title": "x"}]})"), "documents");
  EXPECT_EQ(fault(R"({"query": "q", "documents": ["a"], "top_n": -1})"), "top_n");
}

TEST(EmbeddingRequest, FieldsAndFaults) {
  const auto read = [](std::string_view members) {
    return parse_embedding_request(fmt::format(R"({{"input": ["a", [1, 2]], {}}})", members));
  };
  const auto r = read(R"("encoding_format": "base64", "dimensions": 5, "user": "me", "odd": 1)");
  ASSERT_TRUE(std::holds_alternative<EmbeddingRequest>(r));
  const auto& e = std::get<EmbeddingRequest>(r);
  EXPECT_EQ(e.inputs.size(), 2u);
  EXPECT_TRUE(e.base64 && e.normalize && e.add_special_tokens);
  EXPECT_EQ(e.dimensions, 5);
  EXPECT_EQ(e.common.unknown, std::vector<std::string>{"odd"});
  for (const auto& [members, field] :
       {std::pair(R"("dimensions": 0)", "dimensions"),
        std::pair(R"("encoding_format": "hex")", "encoding_format"),
        std::pair(R"("normalize": 3)", "normalize"), std::pair(R"("messages": [])", "messages")}) {
    const auto refused = read(members);
    ASSERT_TRUE(std::holds_alternative<ApiError>(refused)) << members;
    EXPECT_EQ(std::get<ApiError>(refused).param, field);
  }
  for (const char* input :
       {R"("")", "[]", R"([""])", "[[]]", "[-1]", "{}", R"(["a", 1])", "null"}) {
    const auto refused = parse_embedding_request(fmt::format(R"({{"input": {}}})", input));
    ASSERT_TRUE(std::holds_alternative<ApiError>(refused)) << input;
    EXPECT_EQ(std::get<ApiError>(refused).param, "input");
  }
}

}  // namespace
}  // namespace nereid::front
