// From a model directory to a tokenizer: the tokenizer's file, and the files beside it.
#include <algorithm>

#include "base/file.h"
#include "base/gguf.h"
#include "base/hash.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_parts.h"
#include "text/tokenizer/word_patterns.h"

namespace nereid::text {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFileBytes = size_t{1} << 28;

struct Files {
  fs::path dir;
  json::value config;        // tokenizer_config.json or null
  json::value special_map;   // special_tokens_map.json or null
  json::value added_tokens;  // added_tokens.json or null
};

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

StatusOr<json::value> read_optional(const fs::path& path) {
  if (!is_there(path)) return json::value();
  return read_json_file(path);
}

StatusOr<TokenizerPartsPtr> load_json(const fs::path& path, const Files& files) {
  ASSIGN_OR_RETURN(const json::value document, read_json_file(path));
  return read_tokenizer_json(document, files.config);
}

StatusOr<TokenizerPartsPtr> load_tekken(const fs::path& path, const Files&) {
  ASSIGN_OR_RETURN(const json::value document, read_json_file(path));
  return read_tekken(document);
}

StatusOr<TokenizerPartsPtr> ranks_or_pieces(std::string_view bytes, std::string_view name,
                                            const json::value& config) {
  if (looks_like_tiktoken(bytes)) return read_tiktoken(bytes, name, config);
  return read_sentencepiece(bytes, config);
}

StatusOr<TokenizerPartsPtr> load_ranks_or_pieces(const fs::path& path, const Files& files) {
  ASSIGN_OR_RETURN(const std::string bytes, read_file(path, kMaxFileBytes));
  return ranks_or_pieces(bytes, path.filename().string(), files.config);
}

json::value byte_level(bool prefix, bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", prefix}, {"use_regex", use_regex}};
}

// GPT-2's pair of files, and Qwen2's.
StatusOr<TokenizerPartsPtr> load_vocab_and_merges(const fs::path& path, const Files& files) {
  ASSIGN_OR_RETURN(json::value vocab, read_json_file(path));
  ASSIGN_OR_RETURN(const std::string text,
                   read_file(path.parent_path() / "merges.txt", kMaxFileBytes));
  json::array merges;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !line.starts_with("#version")) {
      merges.emplace_back(json::string_view(line.data(), line.size()));
    }
  }
  const JsonNode settings(files.config, "tokenizer_config");
  ASSIGN_OR_RETURN(const std::string_view name, settings["tokenizer_class"].string(""));
  json::value document = {
      {"model", {{"type", "BPE"}, {"vocab", std::move(vocab)}, {"merges", std::move(merges)}}},
      {"pre_tokenizer", byte_level(false, true)},
      {"decoder", {{"type", "ByteLevel"}}}};
  if (name.starts_with("Qwen2Tokenizer")) {
    document.as_object()["normalizer"] = {{"type", "NFC"}};
    document.as_object()["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"},
           {"pattern", {{"Regex", json::string_view(kQwen2Pattern)}}},
           {"behavior", "Isolated"},
           {"invert", false}},
          byte_level(false, false)}}};
  }
  return read_tokenizer_json(document, files.config);
}

// BERT's list of tokens, one in a line.
StatusOr<TokenizerPartsPtr> load_word_pieces(const fs::path& path, const Files& files) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxFileBytes));
  if (!is_valid_utf8(text)) return invalid_argument("is not UTF-8");
  json::object vocab;
  int64_t id = 0;
  for (std::string_view rest = text; !rest.empty(); ++id) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    vocab[json::string_view(line.data(), line.size())] = id;
  }
  const JsonNode settings(files.config, "tokenizer_config");
  ASSIGN_OR_RETURN(const bool lower, settings["do_lower_case"].boolean(true));
  const bool marks = vocab.contains("[CLS]") && vocab.contains("[SEP]");
  json::value document = {{"normalizer", {{"type", "BertNormalizer"}, {"lowercase", lower}}},
                          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                          {"decoder", {{"type", "WordPiece"}}}};
  if (marks) {
    document.as_object()["post_processor"] = {{"type", "BertProcessing"},
                                              {"cls", {"[CLS]", vocab["[CLS]"]}},
                                              {"sep", {"[SEP]", vocab["[SEP]"]}}};
  }
  document.as_object()["model"] = {{"type", "WordPiece"}, {"vocab", std::move(vocab)}};
  return read_tokenizer_json(document, files.config);
}

StatusOr<TokenizerPartsPtr> load_gguf(const fs::path& path, const Files&) {
  ASSIGN_OR_RETURN(json::object metadata, read_gguf_metadata(path));
  return read_gguf_tokenizer(std::move(metadata));
}

struct FileRow {
  std::string_view name;  // file name, or "*" and its end
  StatusOr<TokenizerPartsPtr> (*load)(const fs::path& path, const Files& files);
};

constexpr FileRow kFiles[] = {{"tokenizer.json", load_json},
                              {"tekken.json", load_tekken},
                              {"tokenizer.model", load_ranks_or_pieces},
                              {"spiece.model", load_ranks_or_pieces},
                              {"tiktoken.model", load_ranks_or_pieces},
                              {"*.tiktoken", load_ranks_or_pieces},
                              {"vocab.json", load_vocab_and_merges},
                              {"vocab.txt", load_word_pieces},
                              {"*.gguf", load_gguf}};

bool matches(const FileRow& row, std::string_view name) {
  if (row.name[0] == '*') return name.ends_with(row.name.substr(1));
  return name == row.name;
}

// The first file of the table in `dir`; empty without one.
std::pair<fs::path, const FileRow*> find_file(const fs::path& dir) {
  for (const FileRow& row : kFiles) {
    if (row.name == "vocab.json" && !is_there(dir / "merges.txt")) continue;
    if (row.name[0] != '*') {
      if (is_there(dir / row.name)) return {dir / row.name, &row};
      continue;
    }
    std::error_code ignored;
    if (row.load == load_gguf && fs::is_directory(dir, ignored))
      if (const auto files = gguf_files(dir); files.ok()) return {files->front(), &row};
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(dir, ignored)) {
      if (matches(row, entry.path().filename().string())) found.push_back(entry.path());
    }
    std::sort(found.begin(), found.end());
    if (!found.empty()) return {found[0], &row};
  }
  return {};
}

// The row of a file given by its name; an unknown name is assigned by its extension.
const FileRow* row_of_file(const fs::path& path) {
  const std::string name = path.filename().string();
  for (const FileRow& row : kFiles) {
    if (matches(row, name)) return &row;
  }
  if (name.starts_with("tekken") && name.ends_with(".json")) return &kFiles[1];
  return name.ends_with(".json") ? &kFiles[0] : &kFiles[2];
}

// {"TOKEN": ID, ...}, the oldest form of added tokens.
Status add_listed_tokens(const JsonNode& list, TokenizerParts& parts) {
  if (list.is_null()) return ok();
  ASSIGN_OR_RETURN(const json::object* entries, list.object());
  for (const auto& entry : *entries) {
    AddedToken token;
    token.content = {entry.key().data(), entry.key().size()};
    ASSIGN_OR_RETURN(token.id, list[token.content].token_id());
    if (token.content.empty() || token.content.size() > AddedTokenFinder::kMaxContentBytes) {
      return invalid_argument("{}: a token of {} bytes: must have 1 to {}", list.path(),
                              token.content.size(), AddedTokenFinder::kMaxContentBytes);
    }
    token.normalized = false;
    if (!parts.token_id(token.content)) RETURN_IF_ERROR(parts.add(std::move(token)));
  }
  return ok();
}

}  // namespace

StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::from_model_file(std::string_view bytes,
                                                                      std::string_view name,
                                                                      const json::value& config) {
  ASSIGN_OR_RETURN(TokenizerPartsPtr parts, ranks_or_pieces(bytes, name, config));
  RETURN_IF_ERROR(parts->finish());
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(parts)));
}

StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::from_gguf(const json::object& metadata) {
  ASSIGN_OR_RETURN(TokenizerPartsPtr parts, read_gguf_tokenizer(metadata));
  RETURN_IF_ERROR(parts->finish());
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(parts)));
}

fs::path Tokenizer::file_of(const fs::path& model) {
  std::error_code ignored;
  return is_gguf_path(model) && !fs::is_directory(model, ignored) ? model : find_file(model).first;
}

std::string Tokenizer::files_hash(const fs::path& model) {
  constexpr uintmax_t kMaxReadBytes = uintmax_t{256} << 20;
  std::error_code ignored;
  const bool is_dir = fs::is_directory(model, ignored);
  const fs::path dir = is_dir ? model : model.parent_path();
  uint64_t hash = 0;
  const auto add = [&](const fs::path& path) {
    const uintmax_t size = fs::file_size(path, ignored);
    if (ignored) return;
    hash = hash64(path.filename().string(), hash + size);
    if (size > kMaxReadBytes) {
      const auto time = fs::last_write_time(path, ignored).time_since_epoch().count();
      hash = hash64(&time, sizeof time, hash);
    } else if (const auto bytes = read_file(path, kMaxReadBytes); bytes.ok()) {
      hash = hash64(*bytes, hash);
    }
  };
  add(is_dir ? file_of(model) : model);
  for (const char* name :
       {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt",
        "chat_template.jinja", "chat_template.json", "generation_config.json"}) {
    add(dir / name);
  }
  return hex64(hash);
}

StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::load(const fs::path& path) {
  Files files;
  std::error_code ignored;
  const bool is_dir = fs::is_directory(path, ignored);
  files.dir = is_dir ? path : path.parent_path();
  const auto [file, row] =
      is_dir ? find_file(path) : std::pair<fs::path, const FileRow*>(path, row_of_file(path));
  if (row == nullptr) {
    std::string names;
    for (const FileRow& known : kFiles) names += fmt::format(" {}", known.name);
    return not_found("{} has no tokenizer: none of{}", path.string(), names);
  }
  ASSIGN_OR_RETURN(files.config, read_optional(files.dir / "tokenizer_config.json"));
  ASSIGN_OR_RETURN(files.special_map, read_optional(files.dir / "special_tokens_map.json"));
  ASSIGN_OR_RETURN(files.added_tokens, read_optional(files.dir / "added_tokens.json"));
  auto parts = row->load(file, files);
  if (!parts.ok()) return annotate(parts.status(), file.string());
  Status status = (*parts)->read_special_names(JsonNode(files.special_map, "special_tokens_map"));
  if (status.ok() && row->load != load_json) {
    status = add_listed_tokens(JsonNode(files.added_tokens, "added_tokens"), **parts);
  }
  if (status.ok()) status = (*parts)->finish();
  if (!status.ok()) return annotate(status, file.string());
  return std::shared_ptr<const Tokenizer>(new Tokenizer(*std::move(parts)));
}

}  // namespace nereid::text
