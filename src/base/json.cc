#include "base/json.h"

#include <algorithm>

#include "base/file.h"

namespace nereid {

StatusOr<json::value> parse_json(std::string_view text, size_t max_depth, json::storage_ptr storage,
                                 json::storage_ptr temporary) {
  json::parse_options options;
  options.max_depth = max_depth;
  unsigned char scratch[2048];
  json::stream_parser parser(std::move(temporary), options, scratch);
  parser.reset(std::move(storage));
  json::error_code error;
  size_t used = 0;
  try {
    used = parser.write_some(text.data(), text.size(), error);
    if (!error && used < text.size()) error = json::error::extra_data;
    if (!error) parser.finish(error);
    if (!error) return parser.release();
  } catch (const std::bad_alloc& e) {
    return unavailable("no memory for a JSON document of {} bytes: {}", text.size(), e.what());
  }
  used = std::min(used, text.size());
  const std::string_view before = text.substr(0, used);
  const size_t line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t newline = before.rfind('\n');
  const size_t column = used - (newline == before.npos ? 0 : newline + 1) + 1;
  return invalid_argument("{} at line {}, column {}", error.message(), line, column);
}

StatusOr<json::value> parse_json_once(std::string_view text, size_t max_depth,
                                      json::storage_ptr memory) {
  constexpr size_t kFirstBlock = 2048;
  return parse_json(text, max_depth,
                    json::make_shared_resource<json::monotonic_resource>(kFirstBlock, memory),
                    memory);
}

StatusOr<json::value> read_json_file(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  StatusOr<json::value> value = parse_json(text);
  if (!value.ok()) return annotate(value.status(), path.string());
  return value;
}

}  // namespace nereid
