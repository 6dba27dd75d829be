// nereid chat: a conversation on the terminal, with a model in this process or with a server.
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <cstdio>
#include <memory>

#include <fmt/ranges.h>

#include "base/blanks.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/random_hex.h"
#include "base/scratch_dir.h"
#include "cli/chat/commands.h"
#include "cli/chat/session.h"
#include "cli/commands/commands.h"
#include "cli/commands/serve.h"
#include "cli/process/process_signals.h"
#include "cli/process/server_process.h"

namespace nereid::cli {
namespace {

constexpr size_t kMaxConversation = size_t{64} << 20;
constexpr size_t kMaxLine = size_t{16} << 20;

struct ChatOptions {
  ServeOptions serve;  // of a model in this process
  std::string model, api_key, system, prompt, load;
  std::vector<std::string> fields;  // NAME=JSON
  bool shows_figures = false, hides_reasoning = false;
};

bool is_url(std::string_view text) {
  return text.starts_with("http://") || text.starts_with("https://");
}

// Standard input, a line at a time. The terminal edits a line until it is sent.
class LineReader {
 public:
  enum class End : uint8_t { kLine, kInput, kInterrupt, kTerminate };

  explicit LineReader(const sigset_t& signals)
      : signals_(signals), signal_fd_(::signalfd(-1, &signals, SFD_CLOEXEC)) {}
  ~LineReader() {
    if (signal_fd_ >= 0) ::close(signal_fd_);
  }
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // Waits for a line or a signal.
  End next(std::string& line) {
    for (;;) {
      if (const size_t end = buffer_.find('\n'); end != buffer_.npos) {
        line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        if (line.ends_with('\r')) line.pop_back();
        return End::kLine;
      }
      if (is_over_) {
        line = std::exchange(buffer_, {});
        return line.empty() ? End::kInput : End::kLine;
      }
      pollfd files[] = {{signal_fd_, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
      if (::poll(files, 2, -1) < 0) continue;
      if (files[0].revents != 0) {
        const timespec at_once{};
        const int signal = ::sigtimedwait(&signals_, nullptr, &at_once);
        buffer_.clear();  // the terminal has dropped the line
        if (signal > 0) return signal == SIGINT ? End::kInterrupt : End::kTerminate;
      }
      if (files[1].revents != 0) fill();
    }
  }

 private:
  void fill() {
    char chunk[4096];
    const ssize_t got = ::read(STDIN_FILENO, chunk, sizeof(chunk));
    if (got > 0 && buffer_.size() < kMaxLine)
      buffer_.append(chunk, static_cast<size_t>(got));
    else if (got >= 0 || errno != EINTR)
      is_over_ = true;
  }

  const sigset_t signals_;
  const int signal_fd_;
  std::string buffer_;
  bool is_over_ = false;
};

// The conversation on the terminal, or by pipes.
class Chat {
 public:
  Chat(ChatSession session, const ChatOptions& options, const sigset_t& signals)
      : session_(std::move(session)), options_(options), signals_(signals), reader_(signals) {}

  // Until the end of the input. False: a request or a command failed.
  bool run();
  bool ask(const std::string& text);

 private:
  bool take(const std::string& line);
  bool act(const ChatCommand& command);
  bool answer(
      const std::function<StatusOr<Answer>(const std::atomic<bool>&, const OnPiece&)>& send);
  void print(PieceKind kind, std::string_view text);
  void set_dim(bool on);
  Status set_field(const std::string& words);
  Status load(const std::string& file);
  Status save(const std::string& file) const;
  bool report(const Status& status) const {
    if (!status.ok()) fmt::print(stderr, "nereid: {}\n", shown(message(status)));
    return status.ok();
  }

  ChatSession session_;
  const ChatOptions& options_;
  const sigset_t signals_;
  LineReader reader_;
  const bool is_terminal_ = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
  const bool output_is_terminal_ = ::isatty(STDOUT_FILENO) == 1;
  bool is_dim_ = false, is_over_ = false;
};

void Chat::set_dim(bool on) {
  if (is_dim_ == on) return;
  is_dim_ = on;
  if (output_is_terminal_) std::fputs(on ? "\x1b[2m" : "\x1b[0m\n\n", stdout);
}

// Reasoning is dim, and left out where no terminal shows the difference.
void Chat::print(PieceKind kind, std::string_view text) {
  const bool is_reasoning = kind == PieceKind::kReasoning;
  if (is_reasoning && (options_.hides_reasoning || !output_is_terminal_)) return;
  set_dim(is_reasoning);
  const std::string safe = output_is_terminal_ ? shown(text) : std::string(text);
  std::fwrite(safe.data(), 1, safe.size(), stdout);
  std::fflush(stdout);
}

bool Chat::answer(
    const std::function<StatusOr<Answer>(const std::atomic<bool>&, const OnPiece&)>& send) {
  std::atomic<bool> stop = false;
  int signal = 0;
  const Time start = now();
  StatusOr<Answer> answer;
  {
    const OnSignal on_signal(signals_, [&](int received) {
      signal = received;
      stop = true;
    });
    answer = send(stop, [this](PieceKind kind, std::string_view text) { print(kind, text); });
  }
  set_dim(false);
  is_over_ |= signal == SIGTERM;
  if (!answer.ok()) return report(answer.status());
  std::fputs("\n", stdout);
  std::fflush(stdout);
  if (answer->finish_reason.empty() && signal != 0) fmt::print(stderr, "[stopped]\n");
  if (answer->finish_reason == "length") fmt::print(stderr, "[cut: max_tokens or context]\n");
  if (options_.shows_figures) {
    const double passed = seconds(now() - start);
    fmt::print(stderr, "[{} tokens in {:.1f} s, {:.1f} tokens/s]\n", answer->num_tokens, passed,
               static_cast<double>(answer->num_tokens) / std::max(passed, 1e-9));
  }
  if (is_terminal_) std::fputs("\n", stdout);
  return true;
}

bool Chat::ask(const std::string& text) {
  return answer([&](const std::atomic<bool>& stop, const OnPiece& on_piece) {
    return session_.ask(text, stop, on_piece);
  });
}

Status Chat::set_field(const std::string& words) {
  if (words.empty()) {
    fmt::print("{}\n", json::serialize(session_.fields()));
    return ok();
  }
  const size_t end = words.find_first_of(kBlanks);
  if (end == words.npos) return invalid_argument("usage: /set FIELD VALUE, such as /set seed 1");
  return session_.set_field(words.substr(0, end), std::string(without_blanks(words.substr(end))));
}

Status Chat::load(const std::string& file) {
  ASSIGN_OR_RETURN(const std::string text, read_file(file, kMaxConversation));
  const Status status = session_.read(text);
  return status.ok() ? status : annotate(status, file);
}

Status Chat::save(const std::string& file) const {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  if (std::error_code error; !folder.empty() && !std::filesystem::is_directory(folder, error))
    return not_found("{}: no folder {}; make it first", file, folder.string());
  return write_file_atomic(file, session_.to_text());
}

bool Chat::act(const ChatCommand& command) {
  const std::string& argument = command.argument;
  if (command.name == "help") fmt::print("{}", chat_help());
  if (command.name == "quit") is_over_ = true;
  if (command.name == "clear") session_.clear();
  if (command.name == "set") return report(set_field(argument));
  if (command.name == "load") return report(load(argument));
  if (command.name == "save") return report(save(argument));
  if (command.name == "system") {
    if (argument.empty())
      fmt::print("{}\n", session_.system().empty() ? "(none)" : shown(session_.system()));
    else
      session_.set_system(argument == "-" ? "" : argument);
  }
  if (command.name == "model") {
    if (!argument.empty()) return report(session_.set_model(argument));
    for (const std::string& name : session_.models())
      fmt::print("{} {}\n", name == session_.model() ? "*" : " ", shown(name));
  }
  if (command.name == "retry")
    return answer([this](const std::atomic<bool>& stop, const OnPiece& on_piece) {
      return session_.ask_again(stop, on_piece);
    });
  return true;
}

bool Chat::take(const std::string& line) {
  if (without_blanks(line).empty()) return true;
  const auto command = parse_chat_line(line);
  if (!command.ok()) return report(command.status());
  return command->name.empty() ? ask(command->argument) : act(*command);
}

bool Chat::run() {
  if (is_terminal_)
    fmt::print("{}: /help lists commands, Ctrl-C stops an answer, Ctrl-D leaves\n\n",
               shown(session_.model()));
  MessageLines lines;
  bool is_good = true, was_interrupted = false;
  while (!is_over_) {
    if (is_terminal_) {
      std::fputs(lines.is_open() ? "... " : ">>> ", stdout);
      std::fflush(stdout);
    }
    std::string line;
    const LineReader::End end = reader_.next(line);
    if (end == LineReader::End::kTerminate) break;
    if (end == LineReader::End::kInterrupt) {
      if (!is_terminal_ || std::exchange(was_interrupted, true)) break;
      lines.clear();
      fmt::print("\n(Ctrl-C again, Ctrl-D or /quit leaves)\n");
      continue;
    }
    was_interrupted = false;
    if (end == LineReader::End::kInput) {
      if (const auto rest = lines.rest()) is_good &= take(*rest);
      if (is_terminal_) fmt::print("\n");
      break;
    }
    const bool is_command = !lines.is_open() && line.starts_with('/');
    const auto whole = is_command ? std::optional(line) : lines.add(line);
    if (whole) is_good &= take(*whole);
  }
  return is_good;
}

// Flags that begin the conversation.
Status begin(ChatSession& session, const ChatOptions& options) {
  session.set_system(options.system);
  for (const std::string& field : options.fields) {
    const size_t equals = field.find('=');
    if (equals == 0 || equals == field.npos)
      return invalid_argument("--set: '{}' is not FIELD=VALUE, such as temperature=0.7", field);
    const Status set = session.set_field(field.substr(0, equals), field.substr(equals + 1));
    if (!set.ok()) return annotate(set, fmt::format("--set: {}", field));
  }
  if (options.load.empty()) return ok();
  ASSIGN_OR_RETURN(const std::string text, read_file(options.load, kMaxConversation));
  if (const Status read = session.read(text); !read.ok()) return annotate(read, options.load);
  if (!options.system.empty()) session.set_system(options.system);
  return ok();
}

StatusOr<bool> talk(ChatServer server, const ChatOptions& options, const sigset_t& signals) {
  ASSIGN_OR_RETURN(ChatSession session, ChatSession::open(std::move(server)));
  RETURN_IF_ERROR(begin(session, options));
  Chat chat(std::move(session), options, signals);
  if (options.prompt.empty()) return chat.run();
  if (options.prompt != "-") return chat.ask(options.prompt);
  std::string text;
  char chunk[4096];
  for (size_t got;
       (got = std::fread(chunk, 1, sizeof(chunk), stdin)) > 0 && text.size() < kMaxLine;)
    text.append(chunk, got);
  return chat.ask(text);
}

// A server in this process, for this process: on a free local port, with a key of its own.
StatusOr<bool> talk_in_process(ChatOptions& options, const sigset_t& signals) {
  ServeOptions& serve = options.serve;
  print_stack_on_crash();
  ASSIGN_OR_RETURN(const ScratchDir repository, ScratchDir::create());
  std::optional<OnSignal> end_on_signal(std::in_place, signals, [&](int signal) {
    std::error_code error;
    std::filesystem::remove_all(repository.path(), error);
    end_by(signal);
  });
  serve.process.http.host = "127.0.0.1";
  serve.process.http.http_port = 0;
  serve.process.http.metrics_port = -1;
  serve.process.grpc.port = -1;
  serve.process.http.threads = 2;
  serve.process.api_keys = {random_hex()};
  serve.ui = false;
  ASSIGN_OR_RETURN(const bool has_text, fill_repository(serve, repository.path()));
  if (!has_text)
    return unsupported("{}: has no tokenizer; name its folder by --tokenizer",
                       serve.model.model_dir.string());
  ASSIGN_OR_RETURN(auto process, ServerProcess::start(serve.process));
  end_on_signal.reset();
  auto good = talk({fmt::format("http://127.0.0.1:{}", process->http_port()),
                    serve.process.api_keys.front(), serve.model_name},
                   options, signals);
  StopDeadline deadline(std::chrono::seconds(5));  // nothing runs: the end comes at once
  process->stop(deadline);
  process.reset();
  return good;
}

Status chat(ChatOptions& options, int& exit_code) {
  const std::string model = options.serve.model.model_dir.string();
  // Ctrl-C ends a download, so signals are not blocked yet.
  if (!is_url(model)) RETURN_IF_ERROR(options.serve.model.finish());
  // Before any thread starts, so that all inherit the mask.
  const sigset_t signals = block_stop_signals();
  const auto good = is_url(model) ? talk({model, options.api_key, options.model}, options, signals)
                                  : talk_in_process(options, signals);
  RETURN_IF_ERROR(good.status());
  if (!*good) exit_code = 1;
  return ok();
}

}  // namespace

void add_chat(CLI::App& app, int& exit_code) {
  CLI::App* const command = app.add_subcommand(
      "chat", "talk to a model on the terminal: a folder, hf://ORG/NAME, or the URL of a server");
  auto options = std::make_shared<ChatOptions>();
  ServeOptions& serve = options->serve;
  serve.process.backend_dir = default_backend_dir();
  serve.model.log_level = "warn";
  serve.model.declare(*command);
  command->add_option("-s,--system", options->system, "system prompt");
  command->add_option("-p,--prompt", options->prompt,
                      "ask this one thing, print the answer and leave; - reads standard input");
  command->add_option("--set", options->fields,
                      "FIELD=VALUE of requests, such as temperature=0.7; may be repeated");
  command->add_option("--load", options->load, "go on with a conversation that /save wrote");
  command->add_option("--model", options->model,
                      "model of a server; default: the first one that it lists");
  command->add_option("--api-key", options->api_key, "key of a server [$NEREID_API_KEY]")
      ->envname("NEREID_API_KEY");
  command->add_option("--tokenizer", serve.tokenizer, "folder of the tokenizer's files");
  command->add_option("--chat-template", serve.chat_template,
                      "a Jinja file, or the template itself");
  command->add_flag("--stats", options->shows_figures, "print tokens and speed of each answer");
  command->add_flag("--no-reasoning", options->hides_reasoning, "leave reasoning out");
  command->callback([options, &exit_code] {
    if (const Status status = chat(*options, exit_code); !status.ok()) exit_code = fail(status);
  });
}

}  // namespace nereid::cli
