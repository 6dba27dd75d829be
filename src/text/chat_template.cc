#include "text/chat_template.h"

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/gguf.h"
#include "base/json_members.h"
#include "text/jinja/template.h"
#include "text/tokenizer/tokenizer_parts.h"
#include "text/tokenizer_files/json_node.h"

namespace nereid::text {

namespace {

constexpr std::string_view kSpecialNames[] = {"bos_token", "eos_token", "unk_token", "pad_token",
                                              "sep_token", "cls_token", "mask_token"};

bool file_exists(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// A JSON object; empty when the file is missing.
StatusOr<json::object> read_optional_object(const std::filesystem::path& path) {
  if (!file_exists(path)) return json::object();
  ASSIGN_OR_RETURN(json::value value, read_json_file(path));
  if (!value.is_object()) return invalid_argument("{}: must hold an object", path.string());
  return std::move(value.get_object());
}

// The text of a token: a string, or an object with "content".
const json::string* token_text(const json::value& value) {
  return value.is_object() ? member_or_null(value, "content").if_string() : value.if_string();
}

json::object find_special_tokens(const json::object& config, const json::object& map) {
  json::object out;
  for (const std::string_view name : kSpecialNames) {
    const json::string_view key(name.data(), name.size());
    const json::string* text = token_text(member_or_null(config, name));
    if (text == nullptr) text = token_text(member_or_null(map, name));
    if (text != nullptr) out[key] = *text;
  }
  for (const json::object* source : {&config, &map}) {
    const json::array* list = member_or_null(*source, "additional_special_tokens").if_array();
    if (list == nullptr || out.contains("additional_special_tokens")) continue;
    json::array texts;
    for (const json::value& entry : *list) {
      if (const json::string* text = token_text(entry)) texts.emplace_back(*text);
    }
    out["additional_special_tokens"] = std::move(texts);
  }
  return out;
}

bool has_items(const json::object& context, std::string_view name) {
  return !array_member(context, name).empty();
}

using Sources = std::map<std::string, std::shared_ptr<const jinja::Template>, std::less<>>;

Status add_template(Sources& templates, std::string_view name, std::string_view source,
                    std::string_view where) {
  auto parsed = jinja::Template::parse(source);
  if (!parsed.ok()) {
    return annotate(parsed.status(), fmt::format("{}: chat template '{}'", where, name));
  }
  templates.insert_or_assign(std::string(name), *std::move(parsed));
  return ok();
}

// "chat_template": a string or a list of {"name", "template"}.
Status add_from_json(Sources& templates, const json::value& value, std::string_view where) {
  if (const json::string* text = value.if_string()) {
    return add_template(templates, "default", {text->data(), text->size()}, where);
  }
  const json::array* list = value.if_array();
  if (list == nullptr) {
    return invalid_argument("{}: chat_template must be a string or a list", where);
  }
  for (const json::value& entry : *list) {
    const JsonNode node(entry, "chat_template");
    ASSIGN_OR_RETURN(const std::string_view name, node["name"].string());
    ASSIGN_OR_RETURN(const std::string_view source, node["template"].string());
    RETURN_IF_ERROR(add_template(templates, name, source, where));
  }
  return ok();
}

Status add_from_file(Sources& templates, std::string_view name, const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::string source, read_file(path, jinja::Template::kMaxSourceBytes));
  return add_template(templates, name, source, path.string());
}

Status add_extra_files(Sources& templates, const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> paths;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".jinja") paths.push_back(it->path());
  }
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) {
    RETURN_IF_ERROR(add_from_file(templates, path.stem().string(), path));
  }
  return ok();
}

}  // namespace

StatusOr<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  ChatTemplate result;
  ASSIGN_OR_RETURN(result.templates_["default"].source, jinja::Template::parse(source));
  RETURN_IF_ERROR(result.find_needs());
  return result;
}

std::string_view ChatTemplate::source() const {
  const auto found = templates_.find("default");
  return found == templates_.end() ? std::string_view() : found->second.source->source();
}

bool ChatTemplate::mentions(std::string_view text) const {
  return std::ranges::any_of(templates_, [&](const auto& named) {
    return named.second.source->source().find(text) != std::string_view::npos;
  });
}

Status ChatTemplate::find_needs() {
  jinja::Limits limits;  // for a conversation of a few words
  limits.max_steps = 200'000;
  limits.max_memory = size_t{16} << 20;
  for (auto& [name, named] : templates_) {
    Status excess;
    named.needs = probe_needs([&](const json::object& context) -> StatusOr<std::string> {
      if (!excess.ok()) return excess;
      auto text = named.source->render(with_special_tokens(context), limits);
      if (absl::IsResourceExhausted(text.status())) excess = text.status();
      return text;
    });
    named.needs.has_developer = named.source->source().find("developer") != std::string_view::npos;
    if (!excess.ok()) {
      return annotate(excess, fmt::format("chat template '{}': with a conversation of a few words, "
                                          "which may take {} steps and {} bytes",
                                          name, limits.max_steps, limits.max_memory));
    }
  }
  return ok();
}

StatusOr<const ChatTemplate::Named*> ChatTemplate::choose(const json::object& context) const {
  auto chosen = templates_.end();
  if (has_items(context, "tools")) chosen = templates_.find("tool_use");
  if (chosen == templates_.end() && has_items(context, "documents")) {
    chosen = templates_.find("rag");
  }
  if (chosen == templates_.end()) chosen = templates_.find("default");
  if (chosen == templates_.end()) {
    return invalid_argument("the model has no chat template named 'default'");
  }
  return &chosen->second;
}

json::object ChatTemplate::with_special_tokens(json::object all) const {
  for (const auto& entry : special_tokens_) {
    if (!all.contains(entry.key())) all[entry.key()] = entry.value();
  }
  return all;
}

StatusOr<std::string> ChatTemplate::render(const json::object& context,
                                           const jinja::Limits& limits) const {
  ASSIGN_OR_RETURN(const Named* chosen, choose(context));
  return chosen->source->render(with_special_tokens(context), limits);
}

StatusOr<std::string> ChatTemplate::render_chat(json::object context,
                                                const jinja::Limits& limits) const {
  ASSIGN_OR_RETURN(const Named* chosen, choose(context));
  json::value* messages = context.if_contains("messages");
  if (messages != nullptr && messages->is_array()) {
    adapt_messages(chosen->needs, messages->get_array());
  }
  return chosen->source->render(with_special_tokens(std::move(context)), limits);
}

std::string_view ChatTemplate::special_token(std::string_view name) const {
  const json::string* text = member_or_null(special_tokens_, name).if_string();
  return text != nullptr ? std::string_view(text->data(), text->size()) : std::string_view();
}

StatusOr<ChatTemplate> load_chat_template(const std::filesystem::path& model_dir) {
  ChatTemplate result;
  Sources sources;
  const auto finish = [&]() -> StatusOr<ChatTemplate> {
    for (auto& [name, source] : sources) result.templates_[name].source = std::move(source);
    if (const Status status = result.find_needs(); !status.ok()) {
      return annotate(status, result.file_.string());
    }
    return std::move(result);
  };
  if (is_gguf_path(model_dir)) {
    ASSIGN_OR_RETURN(json::object metadata, read_gguf_metadata(model_dir));
    ASSIGN_OR_RETURN(const json::object own, gguf_tokenizer_config(std::move(metadata)));
    if (!own.contains("chat_template"))
      return not_found("{} has no chat template", model_dir.string());
    RETURN_IF_ERROR(add_from_json(sources, own.at("chat_template"), model_dir.string()));
    result.special_tokens_ = find_special_tokens(own, {});
    result.file_ = model_dir;
    return finish();
  }
  const std::filesystem::path config_path = model_dir / "tokenizer_config.json";
  ASSIGN_OR_RETURN(const json::object config, read_optional_object(config_path));
  ASSIGN_OR_RETURN(const json::object map,
                   read_optional_object(model_dir / "special_tokens_map.json"));
  ASSIGN_OR_RETURN(const json::object processor,
                   read_optional_object(model_dir / "chat_template.json"));
  const json::value& in_processor = member_or_null(processor, "chat_template");
  const json::value& in_config = member_or_null(config, "chat_template");
  if (file_exists(model_dir / "chat_template.jinja")) {
    RETURN_IF_ERROR(add_from_file(sources, "default", model_dir / "chat_template.jinja"));
  } else if (!in_processor.is_null()) {
    RETURN_IF_ERROR(
        add_from_json(sources, in_processor, (model_dir / "chat_template.json").string()));
  } else if (!in_config.is_null()) {
    RETURN_IF_ERROR(add_from_json(sources, in_config, config_path.string()));
  }
  RETURN_IF_ERROR(add_extra_files(sources, model_dir / "additional_chat_templates"));
  if (sources.empty()) {
    return not_found("{} has no chat template", model_dir.string());
  }
  result.special_tokens_ = find_special_tokens(config, map);
  result.file_ = file_exists(model_dir / "chat_template.jinja") ? model_dir / "chat_template.jinja"
                 : !in_processor.is_null()                      ? model_dir / "chat_template.json"
                 : !in_config.is_null()                         ? config_path
                                        : model_dir / "additional_chat_templates";
  return finish();
}

}  // namespace nereid::text
