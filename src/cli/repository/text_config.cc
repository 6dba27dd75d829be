// Parsing of config.pbtxt; see text_config.h. The schema is proto/model_config.proto in a
// descriptor pool of its own: the core's library has the generated ModelConfig in the global one.
#include "cli/repository/text_config.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "base/check.h"
#include "base/nearest.h"
#include "base/placeholders.h"

namespace nereid::cli {
namespace {

namespace pb = google::protobuf;
using Tokenizer = pb::io::Tokenizer;
using Places = pb::TextFormat::ParseInfoTree;
constexpr int kMaxNesting = 64;

constexpr unsigned char kDescriptors[] = {
#include "model_config_descriptors.inc"
};

struct Schema {
  Schema() {
    pb::FileDescriptorSet files;
    NEREID_CHECK(files.ParseFromArray(kDescriptors, sizeof kDescriptors));
    for (const auto& file : files.file()) NEREID_CHECK(pool.BuildFile(file) != nullptr);
  }
  pb::DescriptorPool pool;
  pb::DynamicMessageFactory factory{&pool};
};

Schema& schema() {
  static Schema schema;
  return schema;
}

// The n-th quoted text in one of protobuf's messages.
std::string quoted(const std::string& text, int n) {
  size_t begin = 0;
  for (int i = 0; i < 2 * n + 1 && begin != text.npos; ++i) begin = text.find('"', begin) + 1;
  const size_t end = text.find('"', begin);
  return end == text.npos ? "" : text.substr(begin, end - begin);
}

// The enum values of fields of that name, in any message type.
void add_values(const pb::Descriptor& type, const std::string& field, std::set<std::string>& to) {
  for (int i = 0; i < type.nested_type_count(); ++i) add_values(*type.nested_type(i), field, to);
  const auto* found = type.FindFieldByName(field);
  if (found == nullptr || found->enum_type() == nullptr) return;
  for (int i = 0; i < found->enum_type()->value_count(); ++i) {
    to.insert(found->enum_type()->value(i)->name());
  }
}

// Reports errors of protobuf's tokenizer and parser, some in clearer words.
class Reporter : public pb::io::ErrorCollector {
 public:
  explicit Reporter(const Report& report) : report_(report) {}

  void AddError(int line, pb::io::ColumnNumber, const std::string& text) override {
    constexpr std::string_view kNoValue = "Unknown enumeration value of ";
    if (!text.starts_with(kNoValue)) return report_(line + 1, "", text);
    const std::string value = quoted(text, 0), field = quoted(text, 1);
    std::set<std::string> known;
    const auto* file = schema().pool.FindFileByName("model_config.proto");
    for (int i = 0; i < file->message_type_count(); ++i) {
      add_values(*file->message_type(i), field, known);
    }
    report_(line + 1, field,
            fmt::format("is '{}', expected one of {}.{}", value, fmt::join(known, ", "),
                        did_you_mean(value, known)));
  }
  // Called for a field that does not exist.
  void AddWarning(int line, pb::io::ColumnNumber, const std::string& text) override {
    const std::string field = quoted(text, 1);
    const auto* type = schema().pool.FindMessageTypeByName(quoted(text, 0));
    if (type == nullptr) return report_(line + 1, "", text);
    std::set<std::string> known;
    for (int i = 0; i < type->field_count(); ++i) known.insert(type->field(i)->name());
    report_(line + 1, field,
            fmt::format("{} has no such field.{}", type->name(), did_you_mean(field, known)));
  }

 private:
  const Report& report_;
};

struct Piece {
  std::string name;
  int line = 0;  // from 0
  size_t begin = 0, end = 0;
};

// The offset of a token's column in the line that begins at `at`; a tab advances to the next
// multiple of eight.
size_t offset_of(const std::string& text, size_t at, int column) {
  for (int i = 0; i < column && at < text.size(); ++at) i += text[at] == '\t' ? 8 - i % 8 : 1;
  return at;
}

// The top-level fields of `text`, parsed one by one so that an error does not hide later ones.
std::vector<Piece> pieces_of(const std::string& text) {
  std::vector<size_t> lines = {0};
  for (size_t at = 0; (at = text.find('\n', at)) != text.npos;) lines.push_back(++at);
  class Silent : public pb::io::ErrorCollector {  // the parser reports the error again
    void AddError(int, pb::io::ColumnNumber, const std::string&) override {}
  } silent;
  pb::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  Tokenizer tokens(&stream, &silent);
  tokens.set_comment_style(Tokenizer::SH_COMMENT_STYLE);
  tokens.set_allow_multiline_strings(false);
  std::vector<Piece> out;
  int depth = 0;
  while (tokens.Next()) {
    const auto& token = tokens.current();
    const std::string& before = tokens.previous().text;
    const bool is_begin = depth == 0 && (out.empty() || (token.type == Tokenizer::TYPE_IDENTIFIER &&
                                                         before != ":" && before != "-"));
    if (is_begin && out.empty()) {
      out.push_back({token.text, 0, 0, text.size()});
    } else if (is_begin) {
      const size_t begin = offset_of(text, lines[static_cast<size_t>(token.line)], token.column);
      out.back().end = begin;
      out.push_back({token.text, token.line, begin, text.size()});
    }
    if (token.text == "{" || token.text == "[" || token.text == "<") ++depth;
    if (token.text == "}" || token.text == "]" || token.text == ">") depth = std::max(0, depth - 1);
  }
  return out;
}

TextField field_of(const pb::Message& message, const pb::FieldDescriptor* field, int index,
                   Places* places);

// Adds the fields that are set, in the schema's order.
void add_fields(const pb::Message& message, Places* places, TextField& to) {
  const auto* type = message.GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const auto* field = type->field(i);
    if (field->is_repeated()) {
      const int size = message.GetReflection()->FieldSize(message, field);
      for (int k = 0; k < size; ++k) {
        to.fields.push_back(field_of(message, field, k, places));
        // For a list in brackets protobuf has only the first scalar's position.
        TextField& last = to.fields.back();
        if (k > 0 && last.line == 0 && last.fields.empty()) last.line = to.fields.end()[-2].line;
      }
    } else if (places != nullptr && places->GetLocation(field, -1).line >= 0) {
      to.fields.push_back(field_of(message, field, -1, places));
    }
  }
}

TextField field_of(const pb::Message& message, const pb::FieldDescriptor* field, int index,
                   Places* places) {
  TextField out;
  out.name = field->name();
  if (places != nullptr) out.line = places->GetLocation(field, index).line + 1;
  if (field->cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE) {
    const auto* reflection = message.GetReflection();
    const auto& inner = index < 0 ? reflection->GetMessage(message, field)
                                  : reflection->GetRepeatedMessage(message, field, index);
    add_fields(inner, places == nullptr ? nullptr : places->GetTreeForNested(field, index), out);
  } else if (field->cpp_type() == pb::FieldDescriptor::CPPTYPE_STRING) {
    const auto* reflection = message.GetReflection();
    out.value = index < 0 ? reflection->GetString(message, field)
                          : reflection->GetRepeatedString(message, field, index);
  } else {
    pb::TextFormat::PrintFieldValueToString(message, field, index, &out.value);
  }
  return out;
}

}  // namespace

const TextField* TextField::find(std::string_view field) const {
  for (const auto& f : fields) {
    if (f.name == field) return &f;
  }
  return nullptr;
}

std::vector<const TextField*> TextField::all(std::string_view field) const {
  std::vector<const TextField*> out;
  for (const auto& f : fields) {
    if (f.name == field) out.push_back(&f);
  }
  return out;
}

std::string TextField::text(std::string_view field) const {
  const TextField* found = find(field);
  return found == nullptr ? "" : found->value;
}

TextField read_text_config(std::string_view text, const Report& report) {
  int unfilled = 0;
  const std::string filled = fill_placeholders(text, &unfilled);
  if (unfilled > 0) {
    report(unfilled, "max_batch_size",
           "is the placeholder ${triton_max_batch_size}, expected an integer");
  }
  const auto* type = schema().pool.FindMessageTypeByName("inference.ModelConfig");
  NEREID_CHECK(type != nullptr);
  const std::unique_ptr<pb::Message> config(schema().factory.GetPrototype(type)->New());
  Places places;
  Reporter reporter(report);
  std::set<std::string> seen;
  for (const Piece& piece : pieces_of(filled)) {
    const auto* field = type->FindFieldByName(piece.name);
    if (field != nullptr && !field->is_repeated() && !seen.insert(piece.name).second) {
      report(piece.line + 1, piece.name, "is given twice");
    }
    pb::TextFormat::Parser parser;
    parser.RecordErrorsTo(&reporter);
    parser.WriteLocationsTo(&places);
    parser.AllowUnknownField(true);
    parser.SetRecursionLimit(kMaxNesting);
    // Empty lines in front, so that errors have the line in the whole text.
    const std::string alone = std::string(static_cast<size_t>(piece.line), '\n') +
                              filled.substr(piece.begin, piece.end - piece.begin);
    pb::io::ArrayInputStream stream(alone.data(), static_cast<int>(alone.size()));
    parser.Merge(&stream, config.get());
  }
  TextField root;
  root.line = 1;
  add_fields(*config, &places, root);
  return root;
}

}  // namespace nereid::cli
