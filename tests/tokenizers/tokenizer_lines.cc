// Encodes and decodes for the differential test. One JSON request in a line of stdin, one JSON
// answer in a line of stdout:
//   {"load": PATH}                                          -> true, or {"error": REASON}
//   {"encode": TEXT, "add": BOOL, "parse": BOOL}            -> [IDS], or {"error": REASON}
//   {"decode": [IDS], "skip": BOOL}                         -> TEXT
// A decode is also run through the incremental detokeniser; when that gives other text, the answer
// is
// {"error": ...}.
#include <iostream>
#include <memory>
#include <string>

#include "base/json.h"
#include "text/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid {
namespace {

std::shared_ptr<const text::Tokenizer> g_tokenizer;

json::value error(std::string_view reason) {
  return {{"error", json::string_view(reason.data(), reason.size())}};
}

json::value encode(const json::object& request) {
  const json::string& text = request.at("encode").as_string();
  const auto ids = g_tokenizer->encode({text.data(), text.size()},
                                       {.add_special_tokens = request.at("add").as_bool(),
                                        .parse_special = request.at("parse").as_bool()});
  if (!ids.ok()) return error(message(ids.status()));
  return json::value_from(*ids);
}

json::value decode(const json::object& request) {
  const auto ids = json::value_to<std::vector<int32_t>>(request.at("decode"));
  const bool skip = request.at("skip").as_bool();
  const std::string text = g_tokenizer->decode(ids, skip);
  text::Detokenizer detokenizer(g_tokenizer, skip);
  std::string joined;
  for (const int32_t id : ids) joined += detokenizer.push(id);
  joined += detokenizer.finish();
  if (joined != text) return error("incremental: " + joined + " decode: " + text);
  return json::string(text);
}

json::value answer(const json::object& request) {
  if (const json::value* path = request.if_contains("load")) {
    const auto loaded = text::Tokenizer::load(std::string(path->as_string()));
    if (!loaded.ok()) return error(message(loaded.status()));
    g_tokenizer = *loaded;
    return true;
  }
  if (g_tokenizer == nullptr) return error("nothing is loaded");
  return request.contains("encode") ? encode(request) : decode(request);
}

}  // namespace
}  // namespace nereid

int main() {
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << nereid::answer(nereid::json::parse(line).as_object()) << '\n';
    if (std::cin.rdbuf()->in_avail() <= 0) std::cout.flush();
  }
  return 0;
}
