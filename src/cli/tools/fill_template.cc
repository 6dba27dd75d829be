#include "cli/tools/fill_template.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/file.h"
#include "base/nearest.h"
#include "cli/flags/arg_table.h"
#include "cli/repository/repository.h"
#include "cli/tools/tools.h"

namespace nereid::cli {
namespace {

// Names in templates that are not ours, or of older releases: guides pass them to every file.
constexpr const char* kOtherNames[] = {"tokenizer_type",
                                       "max_kv_cache_length",
                                       "max_num_sequences",
                                       "worker_path",
                                       "multimodal_model_path",
                                       "visual_model_path",
                                       "hf_model_path",
                                       "max_num_images",
                                       "context_model_name",
                                       "generation_model_name",
                                       "disaggregated_serving_bls_count",
                                       "encoder_input_features_data_type",
                                       "prompt_embedding_table_data_type",
                                       "n_mels",
                                       "zero_pad"};

std::vector<std::string> split(std::string_view text, char delimiter) {
  std::vector<std::string> parts(1);
  bool escaped = false;
  for (const char c : text) {
    if (escaped) {
      parts.back() += c;
      escaped = false;
    } else if (c == delimiter) {
      parts.emplace_back();
    } else if (c == '\\') {
      escaped = true;
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

bool starts_name(char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool continues_name(char c) { return starts_name(c) || (c >= '0' && c <= '9'); }

// A "$..." at the beginning of a text.
struct Placeholder {
  std::string_view name;  // empty: none
  size_t length = 1;      // including "$" and braces
};

Placeholder placeholder_at(std::string_view text) {
  const size_t begin = text.size() > 1 && text[1] == '{' ? 2 : 1;
  size_t end = begin;
  if (end < text.size() && starts_name(text[end])) {
    while (end < text.size() && continues_name(text[end])) ++end;
  }
  if (end == begin) return {};
  if (begin == 1) return {text.substr(1, end - 1), end};
  if (end == text.size() || text[end] != '}') return {};
  return {text.substr(2, end - 2), end + 1};
}

bool known_elsewhere(const std::string& name) {
  if (std::find(std::begin(kOtherNames), std::end(kOtherNames), name) != std::end(kOtherNames)) {
    return true;
  }
  for (const auto& [model, text] : repository_templates()) {
    if (text.find(name) != text.npos) return true;
  }
  return false;
}

Status fill_file(const Args& args) {
  const std::string& path = args.words()[0];
  ASSIGN_OR_RETURN(const Substitutions values, parse_substitutions(args.words()[1]));
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  std::set<std::string> unused;
  ASSIGN_OR_RETURN(const std::string filled, fill_config(text, path, values, &unused));
  for (const auto& name : unused) {
    std::fprintf(stderr, "fill_template: '%s' does not exist in %s: ignored\n", name.c_str(),
                 path.c_str());
  }
  if (args.is_on("--in_place")) return write_file_atomic(path, filled);
  std::printf("%s\n", filled.c_str());
  return ok();
}

}  // namespace

StatusOr<Substitutions> parse_substitutions(std::string_view text) {
  Substitutions out;
  for (const auto& part : split(text, ',')) {
    auto pair = split(part, ':');
    if (pair.size() != 2) {
      return invalid_argument(
          "'{}' is not name:value (a comma in a value is written \\, and a colon \\\\:)", part);
    }
    out[pair[0]] = pair[1];
  }
  return out;
}

std::string substitute(std::string_view text, const Substitutions& values) {
  std::string out;
  while (!text.empty()) {
    const size_t begin = text.find('$');
    out.append(text.substr(0, begin));
    if (begin == text.npos) break;
    text.remove_prefix(begin);
    if (text.starts_with("$$")) {
      out += '$';
      text.remove_prefix(2);
      continue;
    }
    const Placeholder found = placeholder_at(text);
    const auto value = values.find(found.name);
    out.append(!found.name.empty() && value != values.end() ? std::string_view(value->second)
                                                            : text.substr(0, found.length));
    text.remove_prefix(found.length);
  }
  return out;
}

std::set<std::string> placeholders_of(std::string_view text) {
  std::set<std::string> out;
  for (size_t at = 0; (at = text.find("${", at)) != text.npos; at += 2) {
    if (const auto found = placeholder_at(text.substr(at)); !found.name.empty()) {
      out.emplace(found.name);
    }
  }
  return out;
}

StatusOr<std::string> fill_config(std::string_view text, const std::string& path,
                                  const Substitutions& values, std::set<std::string>* unused) {
  Substitutions all = {{"max_queue_size", "0"}, {"max_queue_delay_microseconds", "0"}};
  for (const auto& [name, value] : values) {
    if (text.find(name) == text.npos) {
      if (!known_elsewhere(name)) {
        return invalid_argument("key '{}' does not exist in the file {}.{}", name, path,
                                did_you_mean(name, placeholders_of(text)));
      }
      unused->insert(name);
    }
    all[name] = value;
  }
  return substitute(text, all);
}

int fill_template_main(int argc, char** argv) {
  constexpr ArgFlag kFlags[] = {{"--in_place,-i", ArgKind::kFlag, config::Use::kActed, "", "",
                                 "write the file instead of printing the result"}};
  return run_tool({"fill_template", kFlags, "FILE name:value,name:value..."}, argc, argv,
                  fill_file);
}

}  // namespace nereid::cli
