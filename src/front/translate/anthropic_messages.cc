// Messages to chat messages; see anthropic_messages.h.
#include "front/translate/anthropic_messages.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/blanks.h"
#include "base/json_exact.h"
#include "front/http/json_text.h"

namespace nereid::front {
namespace {

using Fault = TranslationFault;
using Text = std::variant<std::string, Fault>;

// Supported blocks, and the role whose messages may have them.
struct BlockKind {
  std::string_view name, role;  // role: empty for any
};
constexpr BlockKind kBlocks[] = {{"text", ""},
                                 {"image", "user"},
                                 {"document", "user"},
                                 {"search_result", "user"},
                                 {"tool_use", "assistant"},
                                 {"tool_result", "user"},
                                 {"thinking", "assistant"},
                                 {"redacted_thinking", "assistant"}};

// A block's text, a string.
Text string_of(const json::object& block, const std::string& where) {
  const json::value* const text = block.if_contains("text");
  if (!text || !text->is_string()) return Fault{where + ".text: expected a string"};
  return std::string(text->get_string());
}

// A text block's text, not blank.
Text text_of(const json::object& block, const std::string& where) {
  Text text = string_of(block, where);
  if (const auto* value = std::get_if<std::string>(&text); value && without_blanks(*value).empty())
    return Fault{where + ".text: text content blocks must contain non-whitespace text"};
  return text;
}

using ReadBlock = Text (*)(const json::object& block, const std::string& where);

// The text of a string, or of blocks, each read by `read`.
Text text_of_content(const json::value& content, const std::string& where, ReadBlock read) {
  if (content.is_string()) return std::string(content.get_string());
  if (!content.is_array()) return Fault{fmt::format("{}: expected a string or blocks", where)};
  std::string out;
  size_t index = 0;
  for (const json::value& block : content.get_array()) {
    Text text = read(object_or_empty(block), fmt::format("{}.{}", where, index));
    if (std::holds_alternative<Fault>(text)) return text;
    if (index++ > 0) out += "\n";
    out += std::get<std::string>(text);
  }
  return out;
}

Fault other_block(const json::object& block, const std::string& where, std::string_view known) {
  return Fault{fmt::format("{}: a block of type '{}' is not supported; {}", where,
                           text_member(block, "type").substr(0, 40), known)};
}

// Text blocks only, not blank.
Text text_block(const json::object& block, const std::string& where) {
  if (text_member(block, "type") == "text") return text_of(block, where);
  return other_block(block, where, "text is");
}

// A string member of a block; "": absent, or null.
Text optional_string(const json::object& block, std::string_view key, const std::string& where) {
  const json::value* const value = block.if_contains(key);
  if (!value || value->is_null()) return std::string();
  if (value->is_string()) return std::string(value->get_string());
  return Fault{fmt::format("{}.{}: expected a string", where, key)};
}

// A text with its attributes, each in tags of its name.
struct Part {
  std::string_view name;
  Text text;
};
Text tagged(std::string_view name, std::span<const Part> parts) {
  std::string out = fmt::format("<{}>\n", name);
  for (const Part& part : parts) {
    if (std::holds_alternative<Fault>(part.text)) return part.text;
    const auto& text = std::get<std::string>(part.text);
    if (!text.empty()) out += fmt::format("<{0}>{1}</{0}>\n", part.name, text);
  }
  return out + fmt::format("</{}>", name);
}

// A document's content: plain text, or blocks of text.
Text text_of_source(const json::object& source, const std::string& where) {
  const std::string type = text_member(source, "type");
  if (type == "text") {
    const std::string media = text_member(source, "media_type");
    if (!media.empty() && media != "text/plain")
      return Fault{fmt::format("{}.media_type: '{}' is not supported; text/plain is", where,
                               media.substr(0, 40))};
    const json::value* const data = source.if_contains("data");
    if (data && data->is_string()) return std::string(data->get_string());
    return Fault{where + ".data: expected a string"};
  }
  if (type == "content") {
    const json::value* const content = source.if_contains("content");
    return text_of_content(content ? *content : json::value(), where + ".content", text_block);
  }
  return Fault{fmt::format("{}.type: '{}' is not supported; text and content are", where,
                           type.substr(0, 40))};
}

Text text_of_document(const json::object& block, const std::string& where) {
  const Part parts[] = {
      {"title", optional_string(block, "title", where)},
      {"context", optional_string(block, "context", where)},
      {"document_content", text_of_source(object_member(block, "source"), where + ".source")}};
  return tagged("document", parts);
}

Text text_of_search_result(const json::object& block, const std::string& where) {
  const json::value* const content = block.if_contains("content");
  for (const char* key : {"source", "title"})
    if (text_member(block, key).empty())
      return Fault{fmt::format("{}.{}: expected a string that is not empty", where, key)};
  if (!content || !content->is_array())
    return Fault{where + ".content: expected an array of text blocks"};
  const Part parts[] = {{"source", text_member(block, "source")},
                        {"title", text_member(block, "title")},
                        {"content", text_of_content(*content, where + ".content", text_block)}};
  return tagged("search_result", parts);
}

// The text of a block in a tool's result; may be empty.
Text result_block(const json::object& block, const std::string& where) {
  const std::string type = text_member(block, "type");
  if (type == "text") return string_of(block, where);
  if (type == "document") return text_of_document(block, where);
  if (type == "search_result") return text_of_search_result(block, where);
  return other_block(block, where, "text, image, document and search_result are");
}

using ChatPart = std::variant<json::object, Fault>;

// An image block as a part of a chat message.
ChatPart part_of_image(const json::object& block, const std::string& where) {
  const json::object& source = object_member(block, "source");
  const std::string type = text_member(source, "type");
  const char* const key = type == "url" ? "url" : "data";
  if (type != "url" && type != "base64")
    return Fault{fmt::format("{}.source.type: '{}' is not supported; base64 and url are", where,
                             type.substr(0, 40))};
  const json::string* const text = member_or_null(source, key).if_string();
  if (!text) return Fault{fmt::format("{}.source.{}: expected a string", where, key)};
  json::string url(text->storage());
  if (type == "base64") {
    constexpr std::string_view kTypes[] = {"image/jpeg", "image/png", "image/gif", "image/webp"};
    const std::string media = text_member(source, "media_type");
    if (std::ranges::find(kTypes, media) == std::end(kTypes))
      return Fault{fmt::format(
          "{}.source.media_type: '{}' is none of image/jpeg, image/png, image/gif, image/webp",
          where, media.substr(0, 40))};
    url.append("data:").append(media).append(";base64,");
  }
  url.append(*text);
  return json::object{{"type", "image_url"}, {"image_url", std::move(url)}};
}

json::object text_part(std::string_view text) {
  return {{"type", "text"}, {"text", json::string_view(text.data(), text.size())}};
}

// A message's content as a list of parts.
json::array& as_parts(json::value& content) {
  if (content.is_array()) return content.get_array();
  const std::string text(content.as_string());
  json::array& out = content.emplace_array();
  if (!text.empty()) out.push_back(text_part(text));
  return out;
}

// Converts one message to chat messages: tool results become messages of their own.
class MessageReader {
 public:
  MessageReader(std::string where, bool is_last, json::array& out)
      : where_(std::move(where)), is_last_(is_last), out_(out) {}

  std::optional<Fault> read(const json::object& message) {
    role_ = text_member(message, "role");
    if (role_ != "user" && role_ != "assistant" && role_ != "system")
      return Fault{fmt::format("{}.role: expected \"user\", \"assistant\" or \"system\"", where_)};
    const json::value* const content = message.if_contains("content");
    if (!content || content->is_null()) return Fault{where_ + ".content: required"};
    if (auto fault = read_content(*content)) return fault;
    if (auto fault = check_end()) return fault;
    if (text_.empty() && calls_.empty() && parts_.empty()) return std::nullopt;
    if (calls_.empty() && goes_on()) {
      append_to(out_.back().at("content"));
      return std::nullopt;
    }
    json::object chat = {{"role", role_}, {"content", ""}};
    append_to(chat["content"]);
    if (!calls_.empty()) chat["tool_calls"] = std::move(calls_);
    out_.push_back(std::move(chat));
    return std::nullopt;
  }

 private:
  // Appends what was read to the content of a chat message.
  void append_to(json::value& content) {
    if (parts_.empty() && content.is_string()) {
      json::string& text = content.get_string();
      if (!text.empty()) text.append("\n");
      text.append(text_);
      return;
    }
    json::array& parts = as_parts(content);
    for (json::value& part : parts_) parts.push_back(std::move(part));
    if (!text_.empty()) parts.push_back(text_part(text_));
  }

  // Whether the message belongs to the previous one: consecutive messages of a role are one turn,
  // and system texts before the conversation are one text.
  bool goes_on() const {
    if (out_.empty()) return false;
    const json::object& last = out_.back().as_object();
    const bool may = role_ != "system" || out_.size() == 1;
    return may && text_member(last, "role") == role_ && !last.contains("tool_calls");
  }

  std::optional<Fault> read_content(const json::value& content) {
    const json::string* const text = content.if_string();
    const json::array* const blocks = content.if_array();
    if (!text && !blocks) return Fault{where_ + ".content: expected a string or blocks"};
    if (text ? text->empty() : blocks->empty()) {
      if (is_last_ && role_ == "assistant") return std::nullopt;
      return Fault{where_ +
                   ".content: messages must have non-empty content, except for an optional final "
                   "assistant message"};
    }
    if (text) return add_text(text_of(json::object{{"text", *text}}, where_ + ".content"));
    for (size_t i = 0; i < blocks->size(); ++i)
      if (auto fault =
              read_block(object_or_empty((*blocks)[i]), fmt::format("{}.content.{}", where_, i)))
        return fault;
    return std::nullopt;
  }

  std::optional<Fault> read_block(const json::object& block, const std::string& where) {
    last_kind_ = text_member(block, "type");
    const auto* const kind = std::ranges::find(kBlocks, last_kind_, &BlockKind::name);
    if (kind == std::end(kBlocks))
      return Fault{fmt::format("{}: a block of type '{}' is not supported", where,
                               last_kind_.substr(0, 40))};
    if (!kind->role.empty() && kind->role != role_)
      return Fault{
          fmt::format("{}: {} blocks can only be in {} messages", where, last_kind_, kind->role)};
    if (last_kind_ == "text") return add_text(text_of(block, where));
    if (last_kind_ == "document") return add_text(text_of_document(block, where));
    if (last_kind_ == "search_result") return add_text(text_of_search_result(block, where));
    if (last_kind_ == "image") return read_image(block, where);
    if (last_kind_ == "tool_use") return read_call(block, where);
    if (last_kind_ == "tool_result") return read_result(block, where);
    return std::nullopt;  // earlier thinking is dropped
  }

  std::optional<Fault> add_text(Text text) {
    if (auto* fault = std::get_if<Fault>(&text)) return std::move(*fault);
    if (!text_.empty()) text_ += "\n";
    text_ += std::get<std::string>(text);
    return std::nullopt;
  }

  std::optional<Fault> read_image(const json::object& block, const std::string& where) {
    ChatPart part = part_of_image(block, where);
    if (auto* fault = std::get_if<Fault>(&part)) return std::move(*fault);
    if (!text_.empty()) parts_.push_back(text_part(std::exchange(text_, {})));
    parts_.push_back(std::get<json::object>(std::move(part)));
    return std::nullopt;
  }

  std::optional<Fault> read_call(const json::object& use, const std::string& where) {
    for (const char* key : {"id", "name"})
      if (text_member(use, key).empty())
        return Fault{fmt::format("{}.{}: expected a string that is not empty", where, key)};
    const json::value* const input = use.if_contains("input");
    const bool is_there = input && !input->is_null();
    if (is_there && !is_exact_object(*input)) return Fault{where + ".input: expected an object"};
    calls_.push_back(json::object{
        {"id", text_member(use, "id")},
        {"type", "function"},
        {"function",
         json::object{{"name", text_member(use, "name")},
                      {"arguments", is_there ? json_text(*input) : std::string("{}")}}}});
    return std::nullopt;
  }

  // A tool's result without text has empty or absent content.
  std::optional<Fault> read_result(const json::object& result, const std::string& where) {
    const std::string id = text_member(result, "tool_use_id");
    if (id.empty()) return Fault{where + ".tool_use_id: expected a string that is not empty"};
    const json::value* const content = result.if_contains("content");
    json::value out = "";
    if (content && !content->is_null())
      if (auto fault = read_result_content(*content, where + ".content", out)) return fault;
    out_.push_back(
        json::object{{"role", "tool"}, {"tool_call_id", id}, {"content", std::move(out)}});
    return std::nullopt;
  }

  // A text, or parts where there are images.
  static std::optional<Fault> read_result_content(const json::value& content,
                                                  const std::string& where, json::value& out) {
    const auto is_image = [](const json::value& block) {
      return text_member(block, "type") == "image";
    };
    const json::array* const blocks = content.if_array();
    if (!blocks || std::ranges::none_of(*blocks, is_image)) {
      Text text = text_of_content(content, where, result_block);
      if (auto* fault = std::get_if<Fault>(&text)) return std::move(*fault);
      out = std::get<std::string>(text);
      return std::nullopt;
    }
    json::array& parts = out.emplace_array();
    for (const json::value& block : *blocks) {
      const std::string at = fmt::format("{}.{}", where, parts.size());
      ChatPart part;
      if (is_image(block)) {
        part = part_of_image(block.get_object(), at);
      } else {
        Text text = result_block(object_or_empty(block), at);
        if (auto* fault = std::get_if<Fault>(&text)) return std::move(*fault);
        part = text_part(std::get<std::string>(text));
      }
      if (auto* fault = std::get_if<Fault>(&part)) return std::move(*fault);
      parts.push_back(std::get<json::object>(std::move(part)));
    }
    return std::nullopt;
  }

  // Whether the last block may end the message.
  std::optional<Fault> check_end() const {
    if (last_kind_.ends_with("thinking"))
      return Fault{fmt::format("{}: the final block in an assistant message cannot be {}", where_,
                               last_kind_)};
    if (is_last_ && !calls_.empty())
      return Fault{
          fmt::format("{}: tool_use blocks need their tool_result blocks in the next "
                      "message, and this is the last one",
                      where_)};
    constexpr std::string_view kWhitespace = " \t\r\n\f\v";
    if (is_last_ && role_ == "assistant" && !text_.empty() &&
        kWhitespace.find(text_.back()) != kWhitespace.npos)
      return Fault{
          fmt::format("{}: final assistant content cannot end with trailing whitespace", where_)};
    return std::nullopt;
  }

  const std::string where_;
  const bool is_last_;
  json::array& out_;
  std::string role_, text_, last_kind_;
  json::array parts_;  // in front of `text_`, once there is an image
  json::array calls_;
};

}  // namespace

std::optional<TranslationFault> read_conversation(const json::object& request, json::object& chat) {
  json::array messages;
  if (const json::value* system = request.if_contains("system"); system && !system->is_null()) {
    Text text = text_of_content(*system, "system", text_block);
    if (auto* fault = std::get_if<Fault>(&text)) return std::move(*fault);
    if (auto& value = std::get<std::string>(text); !value.empty())
      messages.push_back(json::object{{"role", "system"}, {"content", std::move(value)}});
  }
  const size_t num_in_front = messages.size();
  const json::array& list = array_member(request, "messages");
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("messages.{}", i);
    const json::object* const message = list[i].if_object();
    if (!message) return Fault{where + ": expected an object"};
    MessageReader reader(where, i + 1 == list.size(), messages);
    if (auto fault = reader.read(*message)) return fault;
  }
  if (messages.size() == num_in_front)
    return Fault{"messages: expected an array with at least one message that has content"};
  const std::string last_role = text_member(object_or_empty(messages.back()), "role");
  if (last_role == "assistant") chat["continue_final_message"] = true;
  chat["messages"] = std::move(messages);
  return std::nullopt;
}

}  // namespace nereid::front
