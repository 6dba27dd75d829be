// Chat templates: a model directory's Jinja template, rendered as Hugging Face transformers does.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "text/chat_needs.h"
#include "text/jinja/budget.h"

namespace nereid::text {

namespace jinja {
class Template;
}

// Immutable and cheap to copy; render() is thread safe.
class ChatTemplate {
 public:
  // A template from its source. InvalidArgument "line N, column M: <what>" when it does not parse,
  // ResourceExhausted when a conversation of a few words exceeds the limits of find_needs().
  static StatusOr<ChatTemplate> parse(std::string_view source);

  // Renders with the variables of `context`: messages, tools, documents, add_generation_prompt and
  // any others. Special tokens of the model (bos_token, eos_token, ...) are added unless given.
  // InvalidArgument for raise_exception and errors of the template, ResourceExhausted beyond
  // `limits`; both name the line. Cancelled: `limits.is_unwanted` has returned true.
  StatusOr<std::string> render(const json::object& context, const jinja::Limits& limits = {}) const;

  // render() for a conversation as sent by clients, with contents as strings and arguments of tool
  // calls as objects: messages are adapted to the template.
  StatusOr<std::string> render_chat(json::object context, const jinja::Limits& limits = {}) const;

  // The text of "bos_token", "eos_token", ... in the model directory; empty when absent.
  std::string_view special_token(std::string_view name) const;
  const json::object& special_tokens() const { return special_tokens_; }
  // Source of the template for a plain conversation; empty without one.
  std::string_view source() const;
  // Whether any of the templates contains `text`.
  bool mentions(std::string_view text) const;
  // The file that load_chat_template() read.
  const std::filesystem::path& file() const { return file_; }

 private:
  friend StatusOr<ChatTemplate> load_chat_template(const std::filesystem::path& model_dir);

  struct Named {
    std::shared_ptr<const jinja::Template> source;
    ChatNeeds needs;
  };
  using Templates = std::map<std::string, Named, std::less<>>;

  // The template for `context`. InvalidArgument: none.
  StatusOr<const Named*> choose(const json::object& context) const;
  json::object with_special_tokens(json::object all) const;
  Status find_needs();

  Templates templates_;  // "default", and if present "tool_use" and "rag"
  json::object special_tokens_;
  std::filesystem::path file_;
};

// Reads chat_template.jinja, else chat_template.json, else "chat_template" of
// tokenizer_config.json, plus additional_chat_templates/NAME.jinja. NotFound when the directory has
// none. Errors as of parse().
StatusOr<ChatTemplate> load_chat_template(const std::filesystem::path& model_dir);

}  // namespace nereid::text
