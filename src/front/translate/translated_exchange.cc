// The exchange between a chat handler and a client of another API; see translated_exchange.h.
#include "front/translate/translated_exchange.h"

#include <algorithm>
#include <utility>

#include "front/http/json_text.h"

namespace nereid::front {
namespace {

constexpr std::string_view kDataPrefix = "data: ", kDone = "[DONE]";
constexpr size_t kMaxDepth = 128;

// Reads an error body, whose nested object has param and code.
ChatError chat_error(int status, const json::object& body) {
  ChatError out = {status, text_member(body, "message"), text_member(body, "param"), ""};
  out.code = text_member(object_member(body, "error"), "code");
  return out;
}

class TranslatedExchange final : public Exchange {
 public:
  TranslatedExchange(ExchangePtr inner, Translated translated)
      : inner_(std::move(inner)),
        request_(inner_->request()),
        translation_(std::move(translated.translation)),
        answers_(translated.to != Translates::kEmbedding),
        headers_(std::move(translated.headers)) {
    request_.body = std::move(translated.body);
  }

  Request& request() override { return request_; }
  void post(std::function<void()> work) override { inner_->post(std::move(work)); }
  void dispatch(std::function<void()> work) override { inner_->dispatch(std::move(work)); }
  void deliver(std::function<void()> work) override { inner_->deliver(std::move(work)); }
  bool hold(size_t bytes) override {
    translation_->take_piece();
    return inner_->hold(bytes);
  }
  void on_disconnect(std::function<void()> callback) override {
    inner_->on_disconnect(std::move(callback));
  }
  bool disconnected() const override { return inner_->disconnected(); }
  void on_written(OnWritten callback) override { inner_->on_written(std::move(callback)); }

  void send(Response response) override {
    if (response.status < 400 && !answers_) {
      add_headers(response);
      return inner_->send(std::move(response));
    }
    const StatusOr<json::value> body = parse_json(response.body, kMaxDepth);
    const json::object* const object = body.ok() ? body->if_object() : nullptr;
    if (response.status >= 400 || !object) {
      const ChatError error =
          object ? chat_error(response.status, *object) : ChatError{response.status, response.body};
      response.body = translation_->error(error, false);
    } else {
      response.body = translation_->answer(*object);
      add_headers(response);
    }
    inner_->send(std::move(response));
  }

  void begin_stream(Response head, std::string if_stopped) override {
    head.content_type = translation_->stream_type();
    if (!if_stopped.empty()) if_stopped = translation_->error({503, "Server exiting"}, true);
    add_headers(head);
    inner_->begin_stream(std::move(head), std::move(if_stopped));
  }

  // A handler writes whole events.
  void write(std::string_view events) override {
    std::string out;
    while (!events.empty()) {
      const std::string_view event = events.substr(0, events.find("\n\n"));
      events.remove_prefix(std::min(events.size(), event.size() + 2));
      if (event.starts_with(kDataPrefix)) out += translate(event.substr(kDataPrefix.size()));
    }
    inner_->write(out);
  }
  void end() override { inner_->end(); }

 private:
  std::string translate(std::string_view data) {
    if (data == kDone) return failed_ ? "" : translation_->end();
    const StatusOr<json::value> value = parse_json(data, kMaxDepth);
    const json::object* const object = value.ok() ? value->if_object() : nullptr;
    if (!object) return "";
    if (!object->contains("error")) return translation_->chunk(*object);
    failed_ = true;
    const int64_t code = integer_member(*object, "code");
    const int status = code > 0 ? static_cast<int>(code) : 500;
    return translation_->error(chat_error(status, *object), true);
  }

  void add_headers(Response& response) {
    for (Header& header : headers_) response.headers.push_back(std::move(header));
  }

  const ExchangePtr inner_;
  Request request_;
  const std::unique_ptr<Translation> translation_;
  const bool answers_;  // false: the answer is passed on unchanged
  Headers headers_;
  bool failed_ = false;
};

}  // namespace

ExchangePtr translated_exchange(ExchangePtr exchange, Translated translated) {
  return std::make_shared<TranslatedExchange>(std::move(exchange), std::move(translated));
}

std::vector<std::string> unknown_members(const json::object& object,
                                         std::span<const std::string_view> known,
                                         std::string_view prefix) {
  std::vector<std::string> out;
  for (const auto& member : object)
    if (const std::string_view key = member.key(); std::ranges::find(known, key) == known.end())
      out.push_back(fmt::format("{}{}", prefix, key));
  return out;
}

void rename_field(ChatError& error, std::span<const Renamed> names) {
  const auto found = std::ranges::find(names, error.param, &Renamed::first);
  if (found == names.end()) return;
  const std::string quoted = fmt::format("'{}'", error.param);
  if (error.message.starts_with(quoted))
    error.message.replace(0, quoted.size(), fmt::format("'{}'", found->second));
  error.param = found->second;
}

std::string named_event(std::string_view type, const json::object& data) {
  std::string out = fmt::format("event: {}\ndata: ", type);
  append_json(out, data);
  out += "\n\n";
  return out;
}

const json::object* first_choice(const json::object& chat) {
  const json::array& choices = array_member(chat, "choices");
  return choices.empty() ? nullptr : choices.front().if_object();
}

}  // namespace nereid::front
