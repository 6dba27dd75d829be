// nereid generate: one prompt, the answer streamed to the terminal.
#include <unistd.h>

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>

#include "base/clock.h"
#include "base/queue.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "text/chat_template.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace nereid::cli {
namespace {

struct GenerateOptions {
  ModelOptions model;
  std::string prompt;
  bool chat = false;
  int32_t max_tokens = 128;
  float temperature = 0;
  int32_t top_k = 0;
  float top_p = 0;
  uint64_t seed = 0;
  std::vector<std::string> stop;
  bool ids = false;
};

StatusOr<std::string> prompt_text(const GenerateOptions& options) {
  std::string prompt = options.prompt;
  if (prompt == "-") prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  if (!options.chat) return prompt;
  ASSIGN_OR_RETURN(const text::ChatTemplate chat_template,
                   text::load_chat_template(options.model.model_dir));
  return chat_template.render({{"messages", json::array{{{"role", "user"}, {"content", prompt}}}},
                               {"add_generation_prompt", true}});
}

Request make_request(const GenerateOptions& options, std::vector<TokenId> ids,
                     const Executor& executor) {
  Request request;
  request.input_token_ids = std::move(ids);
  request.max_tokens = options.max_tokens;
  request.streaming = true;
  request.sampling.temperature = options.temperature;
  if (options.top_k > 0) request.sampling.top_k = options.top_k;
  if (options.top_p > 0) request.sampling.top_p = options.top_p;
  request.sampling.seed = options.seed;
  request.end_ids = executor.default_end_ids();
  request.stop_strings = options.stop;
  return request;
}

// Writes pieces as they come; returns the final response.
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
  ASSIGN_OR_RETURN(const auto tokenizer, text::Tokenizer::load(options.model.model_dir));
  ASSIGN_OR_RETURN(const std::string prompt, prompt_text(options));
  ASSIGN_OR_RETURN(std::vector<TokenId> ids, tokenizer->encode(prompt));
  options.model.executor.max_queue_size = 1;
  ASSIGN_OR_RETURN(const auto executor,
                   Executor::create(options.model.model_dir, options.model.executor));

  auto responses = std::make_shared<Queue<Response>>();
  const Time start = now();
  RETURN_IF_ERROR(
      executor
          ->enqueue(make_request(options, std::move(ids), *executor),
                    [responses](Response response) { responses->push(std::move(response)); })
          .status());
  const Response last = stream_to_terminal(
      *responses, options, text::Detokenizer(tokenizer, /*skip_special_tokens=*/true));
  RETURN_IF_ERROR(last.status);
  const int32_t num_new = last.outputs[0].num_output_tokens;
  const double first = seconds(last.metrics.first_token - start);
  const double rest = seconds(last.metrics.last_token - last.metrics.first_token);
  fmt::print(stderr,
             "[{} prompt tokens, {} new tokens, first after {:.1f} ms, then {:.1f} tokens/s]\n",
             last.num_input_tokens, num_new, first * 1e3, rest > 0 ? (num_new - 1) / rest : 0.0);
  return ok();
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
  command->add_option("-n,--max-tokens", options->max_tokens, "new tokens at most")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  command->add_option("--temperature", options->temperature, "0 = greedy")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command->add_option("--top-k", options->top_k, "0 = off")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  command->add_option("--top-p", options->top_p, "0 = off")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "same seed, same text")->capture_default_str();
  command->add_option("--stop", options->stop, "text that ends the answer; may be repeated");
  command->add_flag("--ids", options->ids, "print token ids instead of text");
  command->callback([options, &exit_code] {
    if (const Status status = generate(*options); !status.ok()) exit_code = fail(status);
  });
}

}  // namespace nereid::cli
