// Renders for the differential test. One JSON request in a line of stdin, one JSON answer in a line
// of stdout:
//   {"parse": SOURCE}     -> true, or {"error": REASON}
//   {"render": CONTEXT}   -> TEXT, or {"error": REASON}
#include <iostream>
#include <optional>
#include <string>

#include "base/json.h"
#include "text/chat_template.h"

namespace nereid {
namespace {

std::optional<text::ChatTemplate> g_template;

json::value error(std::string_view reason) {
  return {{"error", json::string_view(reason.data(), reason.size())}};
}

json::value answer(const json::object& request) {
  if (const json::value* source = request.if_contains("parse")) {
    g_template.reset();
    auto parsed = text::ChatTemplate::parse(std::string(source->as_string()));
    if (!parsed.ok()) return error(message(parsed.status()));
    g_template = *std::move(parsed);
    return true;
  }
  if (!g_template) return error("no template");
  const auto text = g_template->render(request.at("render").as_object());
  if (!text.ok()) return error(message(text.status()));
  return json::string(*text);
}

}  // namespace
}  // namespace nereid

int main() {
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << nereid::answer(nereid::json::parse(line).as_object()) << '\n';
  }
  return 0;
}
