// nereid generate: one prompt, its output streamed to the terminal.
#include <unistd.h>

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>

#include <fmt/ranges.h>

#include "base/clock.h"
#include "base/queue.h"
#include "cli/commands/commands.h"
#include "cli/flags/options.h"
#include "cli/process/launched.h"
#include "convert/engine_dir.h"
#include "text/chat_template.h"
#include "text/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::cli {
namespace {

struct GenerateOptions {
  ModelOptions model;
  std::filesystem::path tokenizer_dir;
  std::string prompt;
  bool chat = false;
  int32_t max_tokens = 128;
  float temperature = 0;
  int32_t top_k = 0;
  float top_p = 0;
  uint64_t seed = 0;
  std::vector<std::string> stop;
  SamplingConfig sampling;  // options without a default of their own here
  int32_t num_sequences = 1;
  std::vector<std::string> bad_words;
  int32_t log_probs = -1;  // likeliest tokens printed beside each; -1: none
  bool ids = false;

  // True for one sequence, which streams; several sequences or beams are printed when complete.
  bool is_plain() const {
    return num_sequences == 1 && sampling.beam_width == 1 && !sampling.best_of && log_probs < 0;
  }
};

StatusOr<std::string> prompt_text(const GenerateOptions& options) {
  std::string prompt = options.prompt;
  if (prompt == "-") prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  if (!options.chat) return prompt;
  ASSIGN_OR_RETURN(const text::ChatTemplate chat_template,
                   text::load_chat_template(options.tokenizer_dir));
  return chat_template.render({{"messages", json::array{{{"role", "user"}, {"content", prompt}}}},
                               {"add_generation_prompt", true}});
}

StatusOr<Request> make_request(const GenerateOptions& options, std::vector<TokenId> ids,
                               const text::Tokenizer& tokenizer, const Executor& executor) {
  Request request;
  if (const EncoderFacts encoder = executor.encoder(); encoder.max_length > 0) {
    if (encoder.feature_width > 0)
      return invalid_argument(
          "the model's encoder takes sound, not text; nereid serve has /v1/audio/transcriptions");
    request.encoder_input.emplace().token_ids = std::move(ids);
    request.input_token_ids = encoder.decoder_prompt();
    if (request.input_token_ids.empty())
      return invalid_argument("config.json: no decoder_start_token_id, which is the first token");
  } else {
    request.input_token_ids = std::move(ids);
  }
  request.max_tokens = options.max_tokens;
  request.streaming = options.is_plain();
  request.sampling = options.sampling;
  request.sampling.temperature = options.temperature;
  if (options.top_k > 0) request.sampling.top_k = options.top_k;
  if (options.top_p > 0) request.sampling.top_p = options.top_p;
  request.sampling.seed = options.seed;
  if (options.num_sequences > 1) request.sampling.num_return_sequences = options.num_sequences;
  request.output.return_log_probs = options.log_probs >= 0;
  request.output.num_top_log_probs = std::max(options.log_probs, 0);
  request.end_ids = executor.default_end_ids();
  request.stop_strings = options.stop;
  for (const std::string& word : options.bad_words) {
    for (const std::string& text : {word, " " + word}) {
      ASSIGN_OR_RETURN(auto word_ids, tokenizer.encode(text, {.add_special_tokens = false}));
      if (!word_ids.empty()) request.bad_words.push_back(std::move(word_ids));
    }
  }
  return request;
}

// Prints a line for each token: its log-probability, and the likeliest tokens at its position.
void print_log_probs(const SequenceOutput& output, const text::Tokenizer& tokenizer) {
  const auto text = [&](TokenId id) {
    return json::serialize(json::value(tokenizer.decode(std::span(&id, 1), false)));
  };
  for (size_t i = 0; i < std::min(output.token_ids.size(), output.log_probs.size()); ++i) {
    std::string line = fmt::format("{:>9.4f} {}", output.log_probs[i], text(output.token_ids[i]));
    if (i < output.top_log_probs.size()) {
      for (const TokenLogProb& top : output.top_log_probs[i])
        line += fmt::format("   {:.4f} {}", top.log_prob, text(top.token));
    }
    fmt::print("{}\n", line);
  }
}

// Waits for all sequences, then prints them, the best first; returns the final response.
Response print_sequences(Queue<Response>& responses, const GenerateOptions& options,
                         const text::Tokenizer& tokenizer) {
  std::vector<SequenceOutput> sequences;
  Response last;
  while (std::optional<Response> response = responses.take()) {
    last = *std::move(response);
    if (!last.status.ok()) return last;
    const auto first = static_cast<size_t>(last.sequence_index);
    sequences.resize(std::max(sequences.size(), first + last.outputs.size()));
    std::move(last.outputs.begin(), last.outputs.end(),
              sequences.begin() + static_cast<ptrdiff_t>(first));
    if (last.is_final) break;
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    const SequenceOutput& output = sequences[i];
    if (sequences.size() > 1) {
      const std::string score =
          output.cum_log_prob ? fmt::format(", log-probability {:.4f}", *output.cum_log_prob) : "";
      fmt::print("--- {} of {} ({} tokens{})\n", i + 1, sequences.size(), output.num_output_tokens,
                 score);
    }
    if (options.ids)
      fmt::print("{}\n", fmt::join(output.token_ids, " "));
    else
      fmt::print("{}\n", tokenizer.decode(output.token_ids, /*skip_special_tokens=*/true));
    print_log_probs(output, tokenizer);
  }
  return last;
}

// Prints pieces as they arrive; returns the final response.
Response stream_to_terminal(Queue<Response>& responses, const GenerateOptions& options,
                            text::Detokenizer detokenizer) {
  while (std::optional<Response> response = responses.take()) {
    if (!response->status.ok()) return *std::move(response);
    for (const TokenId id : response->outputs[0].token_ids) {
      if (options.ids)
        std::printf("%d ", id);
      else
        std::fputs(detokenizer.push(id).c_str(), stdout);
    }
    if (response->is_final) {
      if (!options.ids) std::fputs(detokenizer.finish().c_str(), stdout);
      std::fputc('\n', stdout);
      return *std::move(response);
    }
    std::fflush(stdout);
  }
  return {};
}

Status generate(GenerateOptions& options) {
  RETURN_IF_ERROR(options.model.finish());
  ASSIGN_OR_RETURN(options.tokenizer_dir, convert::tokenizer_dir(options.model.model_dir));
  ASSIGN_OR_RETURN(const auto tokenizer, text::Tokenizer::load(options.tokenizer_dir));
  ASSIGN_OR_RETURN(const std::string prompt, prompt_text(options));
  ASSIGN_OR_RETURN(std::vector<TokenId> ids, tokenizer->encode(prompt));
  // Limits for all sequences of the only request.
  ExecutorConfig& config = options.model.executor;
  config.max_queue_size = std::max(options.num_sequences, options.sampling.best_of.value_or(1));
  config.normalize_log_probs = false;  // comparable with the likeliest tokens beside them
  config.max_beam_width = std::max(config.max_beam_width, options.sampling.beam_width);
  ASSIGN_OR_RETURN(const auto launched, join_launched_processes());
  ASSIGN_OR_RETURN(const auto executor,
                   Executor::create(options.model.model_dir, options.model.executor));

  auto responses = std::make_shared<Queue<Response>>();
  const Time start = now();
  ASSIGN_OR_RETURN(Request request, make_request(options, std::move(ids), *tokenizer, *executor));
  RETURN_IF_ERROR(
      executor
          ->enqueue(std::move(request),
                    [responses](Response response) { responses->push(std::move(response)); })
          .status());
  const Response last =
      options.is_plain()
          ? stream_to_terminal(*responses, options,
                               text::Detokenizer(tokenizer, /*skip_special_tokens=*/true))
          : print_sequences(*responses, options, *tokenizer);
  RETURN_IF_ERROR(last.status);
  const int32_t num_new = last.outputs[0].num_output_tokens;  // of the sequence that ended last
  const double first = seconds(last.metrics.first_token - start);
  const double rest = seconds(last.metrics.last_token - last.metrics.first_token);
  std::fflush(stdout);  // the answer stands before the figures, in pipes too
  fmt::print(stderr,
             "[{} prompt tokens, {} new tokens, first after {:.1f} ms, then {:.1f} tokens/s]\n",
             last.num_input_tokens, num_new, first * 1e3, rest > 0 ? (num_new - 1) / rest : 0.0);
  return ok();
}

}  // namespace

namespace {

void declare_sampling(CLI::App& command, GenerateOptions& options) {
  constexpr auto kMax = 1 << 30;
  SamplingConfig& s = options.sampling;
  command
      .add_option(
          "--num-sequences", options.num_sequences,
          "number of independent answers, each sampled with a seed of its own, or of beams printed")
      ->check(CLI::Range(1, 128))
      ->capture_default_str();
  command.add_option("--best-of", s.best_of, "answers sampled, of which the likeliest are printed")
      ->check(CLI::Range(1, 128));
  command.add_option("--beam-width", s.beam_width, "beam search of this width; 1 = sampling")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  command.add_option("--length-penalty", s.length_penalty,
                     "beams: score = log-probability / length^this; default 0");
  command
      .add_option("--early-stopping", s.early_stopping,
                  "beams: 1 = with the first full set of hypotheses (default), 0 = when no beam "
                  "can do better at its length, 2 = at any length")
      ->check(CLI::Range(0, 2));
  command.add_option("--diversity-rate", s.beam_search_diversity_rate,
                     "beam search: penalty for choosing tokens of the same beam; default 0");
  command
      .add_option(
          "--min-p", s.min_p,
          "drop tokens whose probability is below this share of the likeliest token's; 0 = off")
      ->check(CLI::Range(0.0, 1.0));
  command
      .add_option("--top-p-decay", s.top_p_decay, "factor on --top-p after each token; default 1")
      ->check(CLI::Range(0.0, 1.0));
  command.add_option("--top-p-min", s.top_p_min, "lower bound of --top-p with --top-p-decay")
      ->check(CLI::Range(0.0, 1.0));
  command.add_option("--repetition-penalty", s.repetition_penalty,
                     "above 1: tokens that occur in prompt or answer become less likely");
  command.add_option("--presence-penalty", s.presence_penalty,
                     "subtracted from the logits of tokens that have occurred");
  command.add_option("--frequency-penalty", s.frequency_penalty,
                     "subtracted from a token's logit once for each occurrence");
  command
      .add_option(
          "--prompt-ignore-length", s.prompt_ignore_length,
          "leading prompt tokens that --presence-penalty and --frequency-penalty ignore; default 0")
      ->check(CLI::Range(0, kMax));
  command
      .add_option("--no-repeat-ngram-size", s.no_repeat_ngram_size,
                  "no sequence of this many tokens occurs twice; 0 = off")
      ->check(CLI::Range(0, kMax));
  command.add_option("--min-tokens", s.min_tokens, "least number of new tokens")
      ->check(CLI::Range(0, kMax));
  command.add_option("--bad-word", options.bad_words,
                     "text that never occurs in the answer; may be repeated");
  command
      .add_option("--logprobs", options.log_probs,
                  "print the log-probability of each token and of this many likeliest ones")
      ->check(CLI::Range(0, 32));
}

}  // namespace

void add_generate(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("generate", "answer one prompt on the terminal");
  auto options = std::make_shared<GenerateOptions>();
  options->model.log_level = "warn";
  options->model.declare(*command);
  command->add_option("-p,--prompt", options->prompt, "the prompt; - reads standard input")
      ->required();
  command->add_flag("--chat", options->chat, "wrap the prompt in the model's chat template");
  command->add_option("-n,--max-tokens", options->max_tokens, "most new tokens")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  command->add_option("--temperature", options->temperature, "sampling temperature; 0 = greedy")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command->add_option("--top-k", options->top_k, "0 = off")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  command->add_option("--top-p", options->top_p, "0 = off")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command
      ->add_option("--seed", options->seed, "seed of sampling: the same seed gives the same text")
      ->capture_default_str();
  command->add_option("--stop", options->stop, "text that ends the answer; may be repeated");
  declare_sampling(*command, *options);
  command->add_flag("--ids", options->ids, "print token ids instead of text");
  command->callback([options, &exit_code] {
    if (const Status status = generate(*options); !status.ok()) exit_code = fail(status);
  });
}

}  // namespace nereid::cli
