// Chat templates: a model directory's Jinja template rendered the way Hugging Face transformers
// does.
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

// Immutable and cheap to copy; render() is safe from many threads at once.
class ChatTemplate {
 public:
  // One template. InvalidArgument "line N, column M: <what>" when it does not parse,
  // ResourceExhausted when a conversation of a few words exceeds the limits of find_needs().
  static StatusOr<ChatTemplate> parse(std::string_view source);

  // Renders with the variables of `context`: messages, tools, documents, add_generation_prompt and
  // whatever else the template knows. Special tokens of the model (bos_token, eos_token, ...) are
  // added unless given. InvalidArgument for a template's raise_exception and for template errors,
  // ResourceExhausted when it exceeds `limits`; both name the line. Cancelled when it is unwanted.
  StatusOr<std::string> render(const json::object& context, const jinja::Limits& limits = {}) const;

  // The same of a conversation as a client sends it, contents being strings and arguments of tool
  // calls objects: what the template cannot take is put into a form that it can.
  StatusOr<std::string> render_chat(json::object context, const jinja::Limits& limits = {}) const;

  // Text of "bos_token", "eos_token", ... as the model directory states it; empty when it does not.
  std::string_view special_token(std::string_view name) const;
  const json::object& special_tokens() const { return special_tokens_; }
  // Of the template that serves a plain conversation; empty without one.
  std::string_view source() const;
  // Whether any of its templates has this text.
  bool mentions(std::string_view text) const;
  // Where load_chat_template() found it.
  const std::filesystem::path& file() const { return file_; }

 private:
  friend StatusOr<ChatTemplate> load_chat_template(const std::filesystem::path& model_dir);

  struct Named {
    std::shared_ptr<const jinja::Template> source;
    ChatNeeds needs;
  };
  using Templates = std::map<std::string, Named, std::less<>>;

  // The template that serves `context`. InvalidArgument when there is none.
  StatusOr<const Named*> choose(const json::object& context) const;
  json::object with_special_tokens(json::object all) const;
  Status find_needs();

  Templates templates_;  // "default", and where the model has them "tool_use" and "rag"
  json::object special_tokens_;
  std::filesystem::path file_;
};

// chat_template.jinja, else chat_template.json, else "chat_template" of tokenizer_config.json, plus
// additional_chat_templates/NAME.jinja. NotFound when the directory has none. Errors as of parse().
StatusOr<ChatTemplate> load_chat_template(const std::filesystem::path& model_dir);

}  // namespace nereid::text
