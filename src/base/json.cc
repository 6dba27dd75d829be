#include "base/json.h"

#include <algorithm>
#include <boost/assert.hpp>
#include <boost/json/basic_parser_impl.hpp>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/json_exact.h"
#include "base/python_json.h"

// The handler of Boost's assertions, which are on in every build (BOOST_ENABLE_ASSERT_HANDLER).
void boost::assertion_failed(char const* expression, char const*, char const* file, long line) {
  nereid::check_failed(file, static_cast<int>(line), expression);
}
void boost::assertion_failed_msg(char const* expression, char const* text, char const* function,
                                 char const* file, long line) {
  std::fprintf(stderr, "%s\n", text);
  assertion_failed(expression, function, file, line);
}

namespace nereid {
namespace {

// Quotes NaN, Infinity and -Infinity outside of strings.
std::string quote_non_finite(std::string_view text) {
  constexpr std::string_view kWords[] = {"NaN", "Infinity", "-Infinity"};
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < text.size();) {
    const auto* const word = std::ranges::find_if(
        kWords, [&](std::string_view w) { return !in_string && text.substr(i).starts_with(w); });
    if (word != std::end(kWords)) {
      out.append("\"").append(*word).append("\"");
      i += word->size();
      continue;
    }
    if (in_string && text[i] == '\\' && i + 1 < text.size())
      out += text[i++];
    else if (text[i] == '"')
      in_string = !in_string;
    out += text[i++];
  }
  return out;
}

// The key of the one-member object that represents a long number. It is not valid UTF-8, so
// no document has it.
constexpr char kLongNumber[] = "\xFF";

json::parse_options options_of(size_t max_depth) {
  json::parse_options options;
  options.max_depth = max_depth;
  return options;
}

// Handler of json::basic_parser that builds the document's value; a long number becomes an object
// with the key kLongNumber.
struct ExactHandler {
  static constexpr size_t max_object_size = json::object::max_size();
  static constexpr size_t max_array_size = json::array::max_size();
  static constexpr size_t max_key_size = json::string::max_size();
  static constexpr size_t max_string_size = json::string::max_size();
  using Text = json::string_view;
  using Error = json::error_code;

  explicit ExactHandler(json::storage_ptr temporary) : values(std::move(temporary)) {}

  bool on_document_begin(Error&) { return true; }
  bool on_document_end(Error&) { return true; }
  bool on_array_begin(Error&) { return true; }
  bool on_array_end(size_t n, Error&) { return values.push_array(n), true; }
  bool on_object_begin(Error&) { return true; }
  bool on_object_end(size_t n, Error&) { return values.push_object(n), true; }
  bool on_string_part(Text s, size_t, Error&) { return values.push_chars(s), true; }
  bool on_string(Text s, size_t, Error&) { return values.push_string(s), true; }
  bool on_key_part(Text s, size_t, Error&) { return values.push_chars(s), true; }
  bool on_key(Text s, size_t, Error&) { return values.push_key(s), true; }
  bool on_int64(int64_t i, Text, Error&) { return values.push_int64(i), true; }
  // `text` is always the whole number: a document is parsed in one write.
  bool on_number_part(Text, Error&) { return true; }
  bool on_uint64(uint64_t, Text s, Error&) { return push_long(s); }
  bool on_double(double d, Text s, Error&) {
    if (is_long(s, d)) return push_long(s);
    return values.push_double(d), true;
  }
  bool on_bool(bool b, Error&) { return values.push_bool(b), true; }
  bool on_null(Error&) { return values.push_null(), true; }
  bool on_comment_part(Text, Error&) { return true; }
  bool on_comment(Text, Error&) { return true; }

  // Whether `value` loses digits of `text`. A double with at most 17 digits is the
  // nearest to its text.
  static bool is_long(std::string_view text, double value) {
    constexpr size_t kDigits = 17;
    const std::string_view mantissa = text.substr(0, text.find_first_of("eE"));
    if (mantissa.find('.') == mantissa.npos && mantissa.size() == text.size()) return true;
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    const size_t first = std::min(mantissa.find_first_of("123456789"), mantissa.size());
    const auto num_digits = std::ranges::count_if(mantissa.substr(first), is_digit);
    const bool is_lost = first < mantissa.size() && (value == 0 || !std::isfinite(value));
    return is_lost || std::cmp_greater(num_digits, kDigits);
  }
  bool push_long(Text text) {
    values.push_key(kLongNumber);
    values.push_string(text);
    values.push_object(1);
    return true;
  }

  json::value_stack values;
};

// An incremental parser with the interface of json::stream_parser.
class ExactParser {
 public:
  ExactParser(const json::parse_options& options, json::storage_ptr storage,
              json::storage_ptr temporary)
      : parser_(options, std::move(temporary)) {
    parser_.handler().values.reset(std::move(storage));
  }
  size_t write_some(const char* data, size_t size, json::error_code& error) {
    return parser_.write_some(/*more=*/false, data, size, error);
  }
  void finish(json::error_code& error) {
    if (!parser_.done()) error = json::error::incomplete;
  }
  json::value release() { return parser_.handler().values.release(); }

 private:
  json::basic_parser<ExactHandler> parser_;
};

template <class Parser>
StatusOr<json::value> parse_whole(std::string_view text, Parser& parser) {
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

}  // namespace

StatusOr<json::value> parse_json(std::string_view text, size_t max_depth, json::storage_ptr storage,
                                 json::storage_ptr temporary) {
  unsigned char scratch[2048];
  json::stream_parser parser(std::move(temporary), options_of(max_depth), scratch);
  parser.reset(std::move(storage));
  return parse_whole(text, parser);
}

StatusOr<json::value> parse_json_exact(std::string_view text, size_t max_depth,
                                       json::storage_ptr storage, json::storage_ptr temporary) {
  ExactParser parser(options_of(max_depth), std::move(storage), std::move(temporary));
  return parse_whole(text, parser);
}

std::string_view long_number(const json::value& value) {
  const json::object* const object = value.if_object();
  if (!object || object->size() != 1 || object->begin()->key() != kLongNumber) return {};
  return object->begin()->value().get_string();
}

bool is_exact_object(const json::value& value) {
  return value.is_object() && long_number(value).empty();
}

void round_long_numbers(json::value& value, std::span<const std::string_view> kept) {
  if (json::array* array = value.if_array()) {
    for (json::value& item : *array) round_long_numbers(item);
  } else if (const std::string_view number = long_number(value); !number.empty()) {
    value = *parse_json(number);
  } else if (json::object* object = value.if_object()) {
    for (auto& member : *object)
      if (std::ranges::find(kept, std::string_view(member.key())) == kept.end())
        round_long_numbers(member.value());
  }
}

StatusOr<json::value> parse_json_once(std::string_view text, size_t max_depth,
                                      json::storage_ptr memory) {
  constexpr size_t kFirstBlock = 2048;
  return parse_json(text, max_depth,
                    json::make_shared_resource<json::monotonic_resource>(kFirstBlock, memory),
                    memory);
}

StatusOr<json::value> parse_python_json(std::string_view text) {
  StatusOr<json::value> value = parse_json(text);
  if (value.ok() || (text.find("Infinity") == text.npos && text.find("NaN") == text.npos))
    return value;
  StatusOr<json::value> quoted = parse_json(quote_non_finite(text));
  return quoted.ok() ? quoted : value;
}

StatusOr<json::value> read_json_file(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  StatusOr<json::value> value = parse_python_json(text);
  if (!value.ok()) return annotate(value.status(), path.string());
  return value;
}

}  // namespace nereid
