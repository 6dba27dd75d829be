// One conversation with a server of OpenAI's API: its messages, and answers as they are made.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "front/client/http_client.h"

namespace nereid::cli {

struct ChatServer {
  std::string url;      // http[s]://HOST[:PORT][/PATH]; /v1 is added where it is missing
  std::string api_key;  // empty: none
  std::string model;    // empty: the first one that the server lists
};

enum class PieceKind : uint8_t { kReasoning, kText };
using OnPiece = std::function<void(PieceKind kind, std::string_view text)>;

struct Answer {
  std::string text;           // without the reasoning
  std::string finish_reason;  // "stop", "length" and so on; empty: the answer was stopped
  int64_t num_tokens = 0;     // 0: the server names none
};

class ChatSession {
 public:
  // Asks the server for its models unless one is named. InvalidArgument: no URL; PermissionDenied:
  // the key is refused; NotFound: there is no model; else as send_call().
  static StatusOr<ChatSession> open(ChatServer server);

  const std::string& model() const { return server_.model; }
  // NotFound, with near names: the server lists others alone.
  Status set_model(const std::string& name);
  const std::vector<std::string>& models() const { return models_; }

  // Sends the messages and `text`, and adds both sides to the messages. An answer that `stop` ends
  // is kept as far as it came. A failed request leaves the messages as they were.
  StatusOr<Answer> ask(const std::string& text, const std::atomic<bool>& stop,
                       const OnPiece& on_piece);
  // Drops the last answer and asks for another one. InvalidArgument: there is none.
  StatusOr<Answer> ask_again(const std::atomic<bool>& stop, const OnPiece& on_piece);

  void clear() { messages_.clear(); }
  void set_system(std::string text) { system_ = std::move(text); }
  const std::string& system() const { return system_; }

  // A field of requests, such as temperature; null: takes it back. InvalidArgument: the value is no
  // JSON, or the field is the session's own.
  Status set_field(const std::string& name, const std::string& value);
  const json::object& fields() const { return fields_; }

  // The conversation as JSON: model, system, messages.
  std::string to_text() const;
  // InvalidArgument: no conversation; the session is unchanged then.
  Status read(std::string_view text);

 private:
  explicit ChatSession(ChatServer server) : server_(std::move(server)) {}
  StatusOr<int> call(front::HttpCall call, const front::OnBody& on_body) const;
  Status list_models();
  json::object request() const;
  StatusOr<Answer> send(const std::atomic<bool>& stop, const OnPiece& on_piece);

  ChatServer server_;
  front::Url url_;
  std::shared_ptr<const front::TlsClient> tls_;
  std::vector<std::string> models_;
  std::string system_;
  json::array messages_;
  json::object fields_;
};

// Text of a server for a terminal: control characters but line ends and tabs are shown as \xNN.
std::string shown(std::string_view text);

}  // namespace nereid::cli
