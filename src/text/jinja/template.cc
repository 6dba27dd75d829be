#include "text/jinja/template.h"

#include <new>

#include "text/jinja/evaluator.h"
#include "text/jinja/lexer.h"
#include "text/jinja/parser.h"

namespace nereid::text::jinja {

namespace {

Status to_status(const Error& error) {
  constexpr size_t kMaxMessage = 4096;  // a template's own message may contain a client's data
  std::string text(shown(error.message, kMaxMessage));
  if (error.column > 0) {
    text = fmt::format("line {}, column {}: {}", error.line, error.column, text);
  } else if (error.line > 0) {
    text = fmt::format("line {}: {}", error.line, text);
  }
  return error.is_limit ? resource_exhausted("{}", text) : invalid_argument("{}", text);
}

}  // namespace

struct Template::Tree {
  Body body;
};

Template::Template() : tree_(std::make_unique<Tree>()) {}
Template::~Template() = default;

StatusOr<std::shared_ptr<const Template>> Template::parse(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return invalid_argument("template of {} bytes is longer than {}", source.size(),
                            kMaxSourceBytes);
  }
  try {
    const std::shared_ptr<Template> result(new Template);
    result->tree_->body = Parser(tokenize(source)).parse();
    result->source_ = source;
    return std::shared_ptr<const Template>(result);
  } catch (const Error& error) {
    return to_status(error);
  } catch (const std::bad_alloc&) {
    return resource_exhausted("no memory to parse a template of {} bytes", source.size());
  }
}

StatusOr<std::string> Template::render(const json::object& context, const Limits& limits) const {
  try {
    Evaluator evaluator(limits);
    return evaluator.run(tree_->body, context);
  } catch (const Error& error) {
    return to_status(error);
  } catch (const Unwanted&) {
    return cancelled("the request was cancelled while its template was rendered");
  } catch (const std::bad_alloc&) {
    return resource_exhausted("no memory to render the template");
  }
}

}  // namespace nereid::text::jinja
