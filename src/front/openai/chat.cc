// POST /v1/chat/completions: template, generation, tool calls, collected or streamed.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "base/json_members.h"
#include "front/http/json_text.h"
#include "front/openai/generation.h"
#include "front/openai/handlers.h"
#include "front/openai/pictures/read_pictures.h"
#include "front/openai/requests/chat_prompt.h"
#include "front/output/chat_output.h"

namespace nereid::front {
namespace {

struct ChatChoice {
  explicit ChatChoice(ChatOutput o) : output(std::move(o)) {}

  ChatOutput output;
  std::string reasoning;               // whole
  std::string content;                 // whole when collecting; unused when streaming
  std::vector<ScoredToken> log_probs;  // as content
  std::vector<int32_t> token_ids;      // as content
  json::array calls;
  TokenCounts counts;
  int64_t reasoning_tokens = 0;  // set when done
  int64_t drawn_reasoning = 0;   // tokens, marker tokens included
  int64_t unplaced_tokens = 0;   // tokens without text yet
  size_t num_calls = 0;          // that have begun
  bool leaves_calls = false;     // later calls are dropped
  json::value finish_reason;
  json::value stop_reason;
};

constexpr size_t kPromptEndBytes = 64;  // room for an opening marker of reasoning, and blanks

bool has_reasoning_marks(const LanguageModel& model) {
  return model.reasoning_format && model.engine->input("reasoning_close");
}

// One request in flight; on the exchange's strand, or inside deliver().
class Chat : public std::enable_shared_from_this<Chat> {
 public:
  Chat(ExchangePtr exchange, LanguageModelPtr model, OpenAiContextPtr context, ChatRequest request)
      : exchange_(std::move(exchange)),
        model_(std::move(model)),
        context_(std::move(context)),
        request_(std::move(request)),
        envelope_(envelope_of("chatcmpl-", *model_, request_.common)) {
    if (request_.common.stream) events_.emplace(envelope_, "chat.completion.chunk");
  }

  // Makes the prompt's tokens. On any thread, before start().
  std::optional<ApiError> read_prompt(Lane lane) {
    const PromptWork work{lane, [x = exchange_] { return x->disconnected(); }};
    auto pictures = read_pictures(*context_, *model_, request_.pictures, work);
    if (auto* error = std::get_if<ApiError>(&pictures)) return std::move(*error);
    pictures_ = std::get<0>(std::move(pictures));
    auto prompt = render(work);
    if (auto* error = std::get_if<ApiError>(&prompt)) return std::move(*error);
    prompt_ = std::get<std::vector<int32_t>>(std::move(prompt));
    num_prompt_tokens_ = std::ssize(prompt_);
    return std::nullopt;
  }

  const LanguageModel& model() const { return *model_; }
  int64_t num_prompt_tokens() const { return num_prompt_tokens_; }

  void start(TRITONSERVER_Server* server, Tracer& tracer) {
    auto ids = request_.common.return_token_ids ? prompt_ : std::exchange(prompt_, {});
    num_running_ = static_cast<size_t>(request_.common.sampling.n);
    for (size_t i = 0; i < num_running_; ++i) choices_.emplace_back(make_output());
    auto self = shared_from_this();
    auto on_piece = [self](Piece piece) { self->take(std::move(piece)); };
    request_.common.sampling.reasoning = reasoning();
    const auto started = Generation::start(server, tracer, model_, exchange_, std::move(ids),
                                           request_.common.sampling, std::move(on_piece),
                                           {.pictures = has_pictures() ? &shown_ : nullptr});
    pictures_.clear();
    shown_.pictures.clear();
    if (!started.ok()) {
      send_failure(exchange_, false, api_error(started.status()));
      return;
    }
    generation_ = *started;
    exchange_->on_disconnect([generation = *started] { generation->cancel(); });
  }

 private:
  // The format to split by. Where the engine does not handle markers, a grammar constrains the
  // text from its start.
  const ReasoningFormat* reasoning_format() const {
    const bool is_guided = request_.common.sampling.guide.has_value();
    return is_guided && !has_reasoning_marks(*model_) ? nullptr : model_->reasoning_format;
  }
  // The engine's parameters for reasoning.
  std::optional<Reasoning> reasoning() const {
    const bool matters = request_.common.sampling.guide || request_.max_reasoning_tokens;
    if (!matters || !has_reasoning_marks(*model_)) return std::nullopt;
    const ReasoningFormat& format = *model_->reasoning_format;
    if (ends_with_mark(prompt_end_, format.close)) return std::nullopt;
    const bool any_answer = format.is_harmony() && !request_.common.sampling.guide;
    return Reasoning{.open = std::string(format.open),
                     .close = std::string(any_answer ? format.end : format.close),
                     .begun = format.always || ends_with_mark(prompt_end_, format.open),
                     .max_tokens = request_.max_reasoning_tokens};
  }
  ChatOutput make_output() const {
    const bool is_forced =
        request_.tool_use == ToolUse::kRequired || request_.tool_use == ToolUse::kNamed;
    GrammarAnswer guided;
    if (is_forced)
      guided = {GrammarAnswer::To::kCalls, request_.named_tool};
    else if (request_.common.sampling.guide)
      guided.to = GrammarAnswer::To::kText;
    const ToolFormat* const format =
        request_.tool_use == ToolUse::kAuto ? model_->tool_format : nullptr;
    return ChatOutput(reasoning_format(), format, request_.tools(), prompt_end_, std::move(guided));
  }

  using Ids = std::variant<std::vector<int32_t>, ApiError>;

  Ids render(const PromptWork& work) {
    if (request_.prompt_ids) return fitting_ids(*request_.prompt_ids, "prompt_token_ids", work);
    Ids ids = conversation_ids(work);
    if (!request_.common.sampling.context.drops_messages || !is_too_long(ids)) return ids;
    if (work.lane == Lane::kLoop) throw TakesLonger();
    json::array& messages = request_.context.at("messages").get_array();
    const json::array all(messages, messages.storage());
    const std::vector<size_t> starts = later_starts(all);
    size_t first = 0;
    for (size_t end = starts.size(); first < end;) {
      const size_t middle = first + (end - first) / 2;
      messages = messages_from(all, starts[middle]);
      Ids tried = conversation_ids(work);
      if (is_too_long(tried))
        first = middle + 1;
      else
        end = middle, ids = std::move(tried);
    }
    return ids;
  }
  static bool is_too_long(const Ids& ids) {
    const auto* const error = std::get_if<ApiError>(&ids);
    return error && error->code == "context_length_exceeded";
  }

  Ids conversation_ids(const PromptWork& work) {
    auto text = chat_prompt(*model_, request_.context, request_.continues_last,
                            request_.chat_template, work);
    if (auto* error = std::get_if<ApiError>(&text)) return std::move(*error);
    return fitting_ids(std::get<std::string>(std::move(text)), "messages", work);
  }

  Ids fitting_ids(const Prompt& prompt, const char* param, const PromptWork& work) {
    const SamplingOptions& sampling = request_.common.sampling;
    auto ids = prompt_ids(*model_, prompt, request_.add_special_tokens, sampling, param,
                          context_->budget, work.is_unwanted);
    if (std::holds_alternative<ApiError>(ids)) return ids;
    if (auto error = place(prompt, param, std::get<std::vector<int32_t>>(ids)))
      return *std::move(error);
    const auto room = check_prompt(*model_, std::get<std::vector<int32_t>>(ids), sampling, param);
    if (const auto* error = std::get_if<ApiError>(&room)) return *error;
    const auto num_tokens = std::ssize(std::get<std::vector<int32_t>>(ids));
    if (auto error = check_prompt_log_probs(*model_, sampling, num_tokens, "prompt_logprobs"))
      return *std::move(error);
    prompt_end_ = end_of(prompt);
    return ids;
  }

  bool has_pictures() const { return !shown_.spans.empty(); }

  // Places the conversation's pictures in the ids of its text.
  std::optional<ApiError> place(const Prompt& prompt, const char* param,
                                std::vector<int32_t>& ids) {
    const bool is_text = std::holds_alternative<std::string>(prompt);
    shown_.pictures.clear();
    for (const size_t index : pictures_in(request_.context))
      shown_.pictures.push_back(pictures_[index]);
    if (shown_.pictures.empty() && (!is_text || !model_->pictures.ok())) return std::nullopt;
    if (!is_text)
      return ApiError{400, "'prompt_token_ids': not together with pictures", "prompt_token_ids"};
    if (!shown_.pictures.empty() && request_.common.sampling.max_prompt_tokens)
      return ApiError{400, "'truncate_prompt_tokens': not together with pictures",
                      "truncate_prompt_tokens"};
    return place_in_prompt(*context_, *model_, param, ids, shown_);
  }

  // The prompt's last bytes. Its ids have been checked.
  std::string end_of(const Prompt& prompt) const {
    if (const auto* text = std::get_if<std::string>(&prompt))
      return text->substr(text->size() - std::min(text->size(), kPromptEndBytes));
    const auto& ids = std::get<std::vector<int32_t>>(prompt);
    const auto last = std::span(ids).last(std::min(ids.size(), kPromptEndBytes));
    return model_->tokenizer->decode(last, /*skip_special_tokens=*/false);
  }

  void take(Piece piece) {
    if (!piece.status.ok()) {
      send_failure(exchange_, begun_, api_error(piece.status));
      return;
    }
    if (!piece.prompt.empty()) scored_prompt_ = std::move(piece.prompt);
    if (!request_.common.stream && !exchange_->hold(num_held_ += held_bytes(piece))) {
      const auto self = shared_from_this();  // the generation drops its reference
      if (const auto generation = generation_.lock()) generation->cancel();
      const std::string text(message(context_->budget->refusal()));
      return exchange_->send(openai_error({503, text, "", ""}));
    }
    ChatChoice& choice = choices_[piece.index];
    const int64_t num_new = piece.counts.generated - choice.counts.generated;
    choice.counts = piece.counts;
    const bool is_cut = piece.done && piece.finish_reason != "stop";
    OutputPart out = choice.output.push(piece.text, piece.done, is_cut);
    count_reasoning(choice, out, num_new);
    if (!request_.parallel_calls) keep_first_call(choice, out.calls);
    choice.num_calls += num_begun(out.calls);
    choice.reasoning += out.reasoning;
    if (piece.done) {
      choice.reasoning_tokens = reasoning_tokens(choice);
      const bool called = choice.num_calls > 0 && request_.tool_use != ToolUse::kNamed &&
                          piece.finish_reason == "stop" && !choice.output.has_open_call();
      choice.finish_reason = called ? "tool_calls" : piece.finish_reason;
      choice.stop_reason = piece.stop_reason;
      --num_running_;
    }
    if (request_.common.stream) {
      stream(out, piece);
      return;
    }
    choice.content += out.text;
    std::move(piece.log_probs.begin(), piece.log_probs.end(), std::back_inserter(choice.log_probs));
    choice.token_ids.insert(choice.token_ids.end(), piece.token_ids.begin(), piece.token_ids.end());
    for (ToolCall& call : out.calls) add_call(choice.calls, std::move(call));
    if (num_running_ == 0) answer();
  }

  static size_t num_begun(const std::vector<ToolCall>& calls) {
    return static_cast<size_t>(
        std::ranges::count_if(calls, [](const ToolCall& call) { return !call.name.empty(); }));
  }
  static void keep_first_call(ChatChoice& choice, std::vector<ToolCall>& calls) {
    size_t num_kept = 0, number = choice.num_calls;
    for (; num_kept < calls.size() && !choice.leaves_calls; ++num_kept) {
      if (!calls[num_kept].name.empty()) choice.leaves_calls = ++number > 1;
      if (choice.leaves_calls) break;
    }
    calls.resize(num_kept);
  }

  // Appends a call, or a part of the last one.
  void add_call(json::array& calls, ToolCall call) const {
    if (call.name.empty()) {
      json::object& function = calls.back().at("function").as_object();
      function["arguments"].as_string().append(call.arguments);
    } else {
      calls.push_back(call_object(std::move(call), calls.size()));
    }
  }

  // `number`: of earlier calls.
  json::object call_object(ToolCall call, size_t number) const {
    return {{"id", call.id.empty() ? call_id(call.name, number) : call.id},
            {"type", "function"},
            {"function", json::object{{"name", std::move(call.name)},
                                      {"arguments", std::move(call.arguments)}}}};
  }

  // Mistral's templates accept only ids of nine characters; Kimi's ids contain the tool's name and
  // a count of the conversation's calls.
  std::string call_id(std::string_view tool, size_t number) const {
    const std::string_view format = model_->tool_format ? model_->tool_format->name : "";
    if (format == "kimi_k2")
      return fmt::format("functions.{}:{}", tool, num_earlier_calls() + number);
    std::string id = random_id("chatcmpl-tool-");
    return format == "mistral" ? id.substr(id.size() - 9) : id;
  }
  size_t num_earlier_calls() const {
    size_t count = 0;
    for (const json::value& message : array_member(request_.context, "messages"))
      count += array_member(message, "tool_calls").size();
    return count;
  }

  json::object usage() const {
    std::vector<TokenCounts> counts;
    int64_t reasoning_tokens = 0;
    for (const ChatChoice& choice : choices_) {
      counts.push_back(choice.counts);
      reasoning_tokens += choice.reasoning_tokens;
    }
    return usage_object(num_prompt_tokens_, counts, counts.size(),
                        reasoning_format() ? std::optional(reasoning_tokens) : std::nullopt);
  }
  // Counts a token for the part whose text comes with it or next.
  static void count_reasoning(ChatChoice& choice, const OutputPart& out, int64_t num_new) {
    choice.unplaced_tokens += num_new;
    size_t size = out.reasoning.size() + out.text.size();
    for (const ToolCall& call : out.calls) size += call.name.size() + call.arguments.size();
    if (size == 0) return;
    const double share = static_cast<double>(out.reasoning.size()) / static_cast<double>(size);
    const auto num_placed = static_cast<double>(std::exchange(choice.unplaced_tokens, 0));
    choice.drawn_reasoning += std::llround(share * num_placed);
  }
  // Tokenised again, unless that takes long: this may run inside deliver().
  int64_t reasoning_tokens(const ChatChoice& choice) const {
    if (choice.reasoning.size() > kQuickPromptBytes) return choice.drawn_reasoning;
    const auto ids = model_->tokenizer->encode(choice.reasoning, {.add_special_tokens = false});
    return ids.ok() ? std::ssize(*ids) : 0;
  }

  json::value scores(const std::vector<ScoredToken>& log_probs) const {
    if (!request_.common.sampling.log_probs) return nullptr;
    return chat_log_probs(*model_->tokenizer, log_probs, request_.common.sampling.tokens_as_ids);
  }

  // Written as text: there is a chunk for each token.
  void write_chunk(size_t index, const json::object& delta,
                   const json::value& log_probs = nullptr) {
    std::string choice = fmt::format(R"({{"index":{},"delta":)", index);
    append_json(choice, delta);
    choice += R"(,"logprobs":)";
    append_json(choice, log_probs);
    choice += R"(,"finish_reason":null})";
    write_choice(choice);
  }

  void write_last_chunk(size_t index) {
    const ChatChoice& from = choices_[index];
    write_choice(json::object{{"index", index},
                              {"delta", json::object()},
                              {"logprobs", nullptr},
                              {"finish_reason", from.finish_reason},
                              {"stop_reason", from.stop_reason}});
  }

  // Ids are sent in chunks of their own: a token may begin a call, or have no text yet.
  void write_token_ids(size_t index, const std::vector<int32_t>& ids) {
    if (!request_.common.return_token_ids || ids.empty()) return;
    write_choice(json::object{{"index", index},
                              {"delta", json::object()},
                              {"token_ids", ids_or_null(request_.common, ids)},
                              {"logprobs", nullptr},
                              {"finish_reason", nullptr}});
  }

  void write_choice(const json::object& choice) { write_choice(json_text(choice)); }

  void write_choice(std::string_view choice) {
    json::object more;
    if (request_.common.return_token_ids && !std::exchange(sent_prompt_ids_, true))
      more["prompt_token_ids"] = ids_or_null(request_.common, prompt_);
    if (request_.common.continuous_usage_stats) {
      more["usage"] = usage();
    } else if (request_.common.include_usage) {
      more["usage"] = nullptr;
    }
    exchange_->write(events_->event(choice, more));
  }

  // `number`: of calls before a new one, or of the one that continues.
  json::object call_delta(ToolCall call, size_t number) const {
    json::object delta;
    if (call.name.empty())
      delta = {{"function", json::object{{"arguments", std::move(call.arguments)}}}};
    else
      delta = call_object(std::move(call), number);
    delta["index"] = number;
    return delta;
  }

  void stream(OutputPart& out, const Piece& piece) {
    const size_t index = piece.index;
    if (!std::exchange(begun_, true)) {
      begin_events(exchange_, warnings(request_.common));
      for (size_t i = 0; i < choices_.size(); ++i) {
        write_chunk(i, {{"role", "assistant"}, {"content", ""}});
        if (!request_.echo.empty()) write_chunk(i, {{"content", request_.echo}});
      }
    }
    if (!out.reasoning.empty() && request_.include_reasoning)
      write_chunk(index, {{"reasoning_content", out.reasoning}, {"reasoning", out.reasoning}});
    size_t num_before = choices_[index].num_calls - num_begun(out.calls);
    const auto write_call = [&](ToolCall& call) {
      num_before += call.name.empty() ? 0 : 1;
      write_chunk(index,
                  {{"tool_calls", json::array{call_delta(std::move(call), num_before - 1)}}});
    };
    // Arguments of an earlier piece's call come before the text behind that call.
    const bool continues_call = !out.calls.empty() && out.calls.front().name.empty();
    if (continues_call) write_call(out.calls.front());
    if (!out.text.empty() || !piece.log_probs.empty())
      write_chunk(index, {{"content", out.text}}, scores(piece.log_probs));
    std::for_each(out.calls.begin() + continues_call, out.calls.end(), write_call);
    write_token_ids(index, piece.token_ids);
    if (piece.done) write_last_chunk(index);
    if (num_running_ > 0) return;
    if (request_.common.include_usage)
      exchange_->write(events_->event("", json::object{{"usage", usage()}}));
    exchange_->write(kSseDone);
    exchange_->end();
  }

  void answer() {
    size_t num_scored = scored_prompt_.size();
    for (const ChatChoice& choice : choices_) num_scored += choice.log_probs.size();
    send_made(
        *context_, exchange_, num_scored <= kQuickLogProbs && num_held_ <= kQuickReplyBytes,
        [self = shared_from_this()] { return self->answer_text(); },
        [self = shared_from_this()] { return warnings(self->request_.common); });
  }

  CountedText answer_text() {
    CountedText body(context_->budget);
    json::object head = envelope_.make("chat.completion");
    if (request_.common.return_token_ids)
      head["prompt_token_ids"] = ids_or_null(request_.common, prompt_);
    if (const auto num_top = request_.common.prompt_log_probs) {
      body.expect(num_entries(scored_prompt_) * kLogProbBytes);
      head["prompt_logprobs"] =
          prompt_log_probs(*model_->tokenizer, scored_prompt_, static_cast<size_t>(*num_top));
    }
    ChoiceList choices(body, head);
    for (size_t i = 0; i < choices_.size(); ++i) {
      ChatChoice& from = choices_[i];
      body.expect(num_entries(from.log_probs) * kLogProbBytes);
      json::object answer_message = {{"role", "assistant"},
                                     {"content", request_.echo + from.content}};
      if ((reasoning_format() || !from.reasoning.empty()) && request_.include_reasoning) {
        const json::value text =
            from.reasoning.empty() ? json::value(nullptr) : json::value(from.reasoning);
        answer_message["reasoning_content"] = text;
        answer_message["reasoning"] = text;
      }
      answer_message["tool_calls"] = std::move(from.calls);
      json::object choice = {{"index", i},
                             {"message", std::move(answer_message)},
                             {"logprobs", scores(from.log_probs)},
                             {"finish_reason", from.finish_reason},
                             {"stop_reason", from.stop_reason}};
      if (request_.common.return_token_ids)
        choice["token_ids"] = ids_or_null(request_.common, from.token_ids);
      choices.add(choice);
    }
    choices.finish({{"usage", usage()}});
    return body;
  }

  ExchangePtr exchange_;
  LanguageModelPtr model_;
  const OpenAiContextPtr context_;
  ChatRequest request_;
  Envelope envelope_;
  std::optional<ChunkEvents> events_;  // of a stream
  std::vector<int32_t> prompt_;
  std::vector<ScoredToken> scored_prompt_;
  std::string prompt_end_;
  std::vector<PicturePtr> pictures_;  // of the whole conversation, until the start
  PromptPictures shown_;              // pictures of the prompt
  std::vector<ChatChoice> choices_;
  std::weak_ptr<Generation> generation_;
  size_t num_running_ = 0;
  size_t num_held_ = 0;  // bytes of an answer that is sent whole
  int64_t num_prompt_tokens_ = 0;
  bool begun_ = false;
  bool sent_prompt_ids_ = false;
};

using ChatPtr = std::shared_ptr<Chat>;

// Markers of calls or reasoning may be special tokens.
bool needs_special_tokens(const LanguageModel& model, const ChatRequest& request) {
  const bool for_calls = request.tool_use == ToolUse::kAuto && model.tool_format &&
                         model.tool_format->needs_special_tokens;
  return for_calls || (model.reasoning_format && model.reasoning_format->needs_special_tokens);
}

std::variant<ChatPtr, ApiError> read_chat(const OpenAiContextPtr& context,
                                          const ExchangePtr& exchange, const ContextRules& rules,
                                          Lane lane) {
  auto accepted = accept_body(*context, exchange, parse_chat_request);
  if (auto* error = std::get_if<ApiError>(&accepted)) return std::move(*error);
  auto& [model, request] = std::get<0>(accepted);
  request.common.sampling.context = rules;
  if (needs_special_tokens(*model, request)) request.common.sampling.skip_special_tokens = false;
  if (request.max_reasoning_tokens && !has_reasoning_marks(*model))
    request.common.warning =
        "thinking_token_budget: has no effect, since the model has no known markers of reasoning";
  auto chat = std::make_shared<Chat>(exchange, std::move(model), context, std::move(request));
  if (auto error = chat->read_prompt(lane)) return *std::move(error);
  return chat;
}

}  // namespace

void handle_chat(const OpenAiContextPtr& context, const ExchangePtr& exchange,
                 const ContextRules& rules) {
  read_and_start(context, exchange,
                 [=](Lane lane) { return read_chat(context, exchange, rules, lane); });
}

}  // namespace nereid::front
