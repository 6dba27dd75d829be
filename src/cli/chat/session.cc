// See session.h.
#include "cli/chat/session.h"

#include <absl/status/status.h>

#include <array>
#include <set>

#include "base/json_members.h"
#include "base/nearest.h"

namespace nereid::cli {
namespace {

constexpr Duration kPatience = std::chrono::hours(24);  // of an answer; Ctrl-C ends it sooner
constexpr Duration kListPatience = std::chrono::seconds(10);
constexpr size_t kMaxAnswer = size_t{64} << 20;
constexpr size_t kMaxError = size_t{64} << 10;
constexpr std::array kOwnFields = {"model", "messages", "stream", "stream_options"};

// The text of an error answer, of OpenAI's form or not.
std::string error_text(int status, const std::string& body) {
  const auto parsed = parse_json(body);
  std::string text;
  if (parsed.ok()) {
    const json::value& error = member_or_null(*parsed, "error");
    text = error.is_string() ? std::string(error.get_string()) : text_member(error, "message");
    if (text.empty()) text = text_member(*parsed, "message");
  }
  if (text.empty()) text = body.substr(0, 300);
  return shown(fmt::format("HTTP {}: {}", status, text));
}

// Reads the events of one answer.
class AnswerReader {
 public:
  explicit AnswerReader(const OnPiece& on_piece) : on_piece_(on_piece) {}

  void take(std::string_view bytes) {
    if (head_.size() < kMaxError) head_ += bytes.substr(0, kMaxError - head_.size());
    if (!fault_.ok()) return;
    size_ += bytes.size();
    if (size_ > kMaxAnswer)
      fault_ = resource_exhausted("an answer of more than {} bytes", kMaxAnswer);
    const Status fed = events_.feed(bytes, [this](std::string_view data) { take_event(data); });
    if (fault_.ok()) fault_ = fed;
  }

  StatusOr<Answer> finish(int status) {
    if (status != 200) return invalid_argument("{}", error_text(status, head_));
    RETURN_IF_ERROR(fault_);
    return answer_;
  }

 private:
  void take_event(std::string_view data) {
    if (data == "[DONE]" || !fault_.ok()) return;
    const auto event = parse_json(data);
    if (!event.ok()) {
      fault_ = invalid_argument("an event is no JSON: {}", shown(data.substr(0, 200)));
      return;
    }
    if (const json::value* error = member(*event, "error"); error && !error->is_null()) {
      fault_ = unavailable("{}", shown(error->is_string() ? std::string(error->get_string())
                                                          : text_member(*error, "message")));
      return;
    }
    const json::value& usage = member_or_null(*event, "usage");
    if (usage.is_object()) answer_.num_tokens = integer_member(usage, "completion_tokens");
    for (const json::value& choice : array_member(*event, "choices")) {
      if (integer_member(choice, "index") != 0) continue;
      const json::object& delta = object_member(choice, "delta");
      for (const char* name : {"reasoning_content", "reasoning"})
        if (const std::string text = text_member(delta, name); !text.empty()) {
          on_piece_(PieceKind::kReasoning, text);
          break;
        }
      if (const std::string text = text_member(delta, "content"); !text.empty()) {
        answer_.text += text;
        on_piece_(PieceKind::kText, text);
      }
      if (std::string reason = text_member(choice, "finish_reason"); !reason.empty())
        answer_.finish_reason = std::move(reason);
    }
  }

  const OnPiece& on_piece_;
  front::EventParser events_;
  Answer answer_;
  std::string head_;  // the body's beginning, for errors
  size_t size_ = 0;
  Status fault_;
};

bool is_message(const json::value& value) {
  const std::string role = text_member(value, "role");
  const json::value* const content = member(value, "content");
  return (role == "user" || role == "assistant") && content && content->is_string();
}

}  // namespace

std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  // The second control characters of Unicode, U+0080 to U+009F, begin commands of some terminals.
  for (size_t at = 0; (at = out.find('\xc2', at)) != out.npos; ++at)
    if (at + 1 < out.size() && static_cast<unsigned char>(out[at + 1]) < 0xa0)
      out.replace(at, 2, fmt::format("\\x{:02x}", static_cast<unsigned char>(out[at + 1])));
  return out;
}

StatusOr<ChatSession> ChatSession::open(ChatServer server) {
  std::string base = server.url;
  while (base.ends_with('/')) base.pop_back();
  if (!base.ends_with("/v1")) base += "/v1";
  ChatSession session(std::move(server));
  ASSIGN_OR_RETURN(session.url_, front::parse_url(base));
  if (session.url_.is_tls) {
    ASSIGN_OR_RETURN(session.tls_, front::TlsClient::create(""));
  }
  RETURN_IF_ERROR(session.list_models());
  if (!session.server_.model.empty()) return session;
  if (session.models_.empty())
    return not_found("{}: the server lists no model; name one by --model", session.server_.url);
  session.server_.model = session.models_.front();
  return session;
}

StatusOr<int> ChatSession::call(front::HttpCall call, const front::OnBody& on_body) const {
  if (!server_.api_key.empty())
    call.headers.emplace_back("Authorization", "Bearer " + server_.api_key);
  call.headers.emplace_back("Content-Type", "application/json");
  const Duration patience = call.method == "GET" ? kListPatience : kPatience;
  auto answer = front::send_call(url_, call, now() + patience, on_body, tls_.get());
  if (!answer.ok()) return answer.status();
  return answer->status;
}

Status ChatSession::list_models() {
  std::string body;
  const auto status = call({.method = "GET", .path = "/models"}, [&](std::string_view piece) {
    if (body.size() + piece.size() <= kMaxAnswer) body += piece;
  });
  if (!status.ok()) return annotate(status.status(), server_.url);
  if (*status == 401 || *status == 403)
    return absl::PermissionDeniedError(fmt::format(
        "{}: {}; the key is --api-key or $NEREID_API_KEY", server_.url, error_text(*status, body)));
  const auto parsed = parse_json(body);
  if (*status != 200 || !parsed.ok()) {
    // Some servers list nothing; a model that is named may be there.
    if (!server_.model.empty()) return ok();
    return unavailable("{}: no list of models at /v1/models ({})", server_.url,
                       error_text(*status, body));
  }
  for (const json::value& model : array_member(*parsed, "data"))
    if (std::string id = text_member(model, "id"); !id.empty()) models_.push_back(std::move(id));
  return ok();
}

Status ChatSession::set_model(const std::string& name) {
  const std::set<std::string> names(models_.begin(), models_.end());
  if (!names.empty() && !names.contains(name))
    return not_found("no model '{}'.{}", name, did_you_mean(name, names));
  server_.model = name;
  return ok();
}

json::object ChatSession::request() const {
  json::array messages;
  if (!system_.empty()) messages.push_back({{"role", "system"}, {"content", system_}});
  for (const json::value& message : messages_) messages.push_back(message);
  json::object out = fields_;
  out["model"] = server_.model;
  out["messages"] = std::move(messages);
  out["stream"] = true;
  out["stream_options"] = {{"include_usage", true}};
  return out;
}

StatusOr<Answer> ChatSession::send(const std::atomic<bool>& stop, const OnPiece& on_piece) {
  AnswerReader reader(on_piece);
  front::HttpCall post{.path = "/chat/completions", .body = json::serialize(request())};
  post.stop = &stop;
  const auto status = call(std::move(post), [&](std::string_view bytes) { reader.take(bytes); });
  if (!status.ok() && !absl::IsCancelled(status.status())) return status.status();
  ASSIGN_OR_RETURN(Answer answer, reader.finish(status.value_or(200)));
  if (!status.ok()) answer.finish_reason.clear();
  messages_.push_back({{"role", "assistant"}, {"content", answer.text}});
  return answer;
}

StatusOr<Answer> ChatSession::ask(const std::string& text, const std::atomic<bool>& stop,
                                  const OnPiece& on_piece) {
  messages_.push_back({{"role", "user"}, {"content", text}});
  auto answer = send(stop, on_piece);
  if (!answer.ok()) messages_.pop_back();
  return answer;
}

StatusOr<Answer> ChatSession::ask_again(const std::atomic<bool>& stop, const OnPiece& on_piece) {
  if (messages_.empty()) return invalid_argument("there is no answer yet");
  const json::value last = messages_.back();
  messages_.pop_back();
  auto answer = send(stop, on_piece);
  if (!answer.ok()) messages_.push_back(last);
  return answer;
}

Status ChatSession::set_field(const std::string& name, const std::string& value) {
  for (const char* own : kOwnFields)
    if (name == own) return invalid_argument("'{}' cannot be set here", name);
  const auto parsed = parse_json(value);
  if (!parsed.ok())
    return invalid_argument(
        "{}: '{}' is no JSON: a number, true, false, null, a text in double quotes, an object or a "
        "list",
        name, shown(value.substr(0, 80)));
  if (parsed->is_null())
    fields_.erase(name);
  else
    fields_[name] = *parsed;
  return ok();
}

std::string ChatSession::to_text() const {
  return json::serialize(
             json::object{{"model", server_.model}, {"system", system_}, {"messages", messages_}}) +
         "\n";
}

Status ChatSession::read(std::string_view text) {
  ASSIGN_OR_RETURN(const json::value parsed, parse_json(text));
  const json::array& messages = array_member(parsed, "messages");
  for (size_t i = 0; i < messages.size(); ++i)
    if (!is_message(messages[i]))
      return invalid_argument("message {}: expected role (user, assistant) and content, a text", i);
  if (const json::value* list = member(parsed, "messages"); !list || !list->is_array())
    return invalid_argument("field 'messages': expected a list");
  messages_ = messages;
  system_ = text_member(parsed, "system");
  return ok();
}

}  // namespace nereid::cli
