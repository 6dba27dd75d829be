// Loads tokenizer, template and limits of the served model; see language_model.h.
#include "front/openai/language_model.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/log.h"

namespace nereid::front {
namespace {

constexpr char kEngine[] = "tensorrt_llm";
constexpr char kPreprocessing[] = "preprocessing";
// The models of TensorRT-LLM's repositories that end in the engine.
constexpr std::string_view kChain[] = {"ensemble", "tensorrt_llm_bls", kEngine};

StatusOr<json::value> read_config(TRITONSERVER_Server* server, const std::string& name) {
  ASSIGN_OR_RETURN(const std::string text, model_config_json(server, name, -1));
  return parse_json(text);
}

// What a load of either model may change.
std::string read_configs(TRITONSERVER_Server* server) {
  const auto engine = model_config_json(server, kEngine, -1);
  const auto text = model_config_json(server, kPreprocessing, -1);
  return engine.value_or("") + text.value_or("");
}

StatusOr<int64_t> read_max_seq_len(const json::value& config) {
  const std::string text = config_parameter(config, "max_seq_len");
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 2) {
    return internal_error("model '{}': parameter max_seq_len is '{}', expected an integer above 1",
                          kEngine, text);
  }
  return value;
}

bool read_decoupled(const json::value& config) {
  const json::object* object = config.if_object();
  const json::value* policy = object ? object->if_contains("model_transaction_policy") : nullptr;
  const json::object* inner = policy ? policy->if_object() : nullptr;
  const json::value* flag = inner ? inner->if_contains("decoupled") : nullptr;
  return flag && flag->is_bool() && flag->get_bool();
}

// "eos_token_id" of a JSON file: one id or several. Empty when file or key is missing.
std::vector<int32_t> eos_ids_of(const std::filesystem::path& path) {
  std::vector<int32_t> out;
  std::error_code ec;
  if (!std::filesystem::exists(path, ec)) return out;
  const StatusOr<json::value> root = read_json_file(path);
  const json::object* object = root.ok() ? root->if_object() : nullptr;
  const json::value* ids = object ? object->if_contains("eos_token_id") : nullptr;
  if (ids == nullptr) return out;
  const auto add = [&out](const json::value& v) {
    if (v.is_int64() && v.get_int64() >= 0 && v.get_int64() <= INT32_MAX) {
      out.push_back(static_cast<int32_t>(v.get_int64()));
    }
  };
  if (ids->is_array()) {
    for (const json::value& v : ids->get_array()) add(v);
  } else {
    add(*ids);
  }
  return out;
}

// What any of the model's files calls an end of text.
std::vector<int32_t> read_eos_ids(const std::filesystem::path& dir, const LanguageModel& model) {
  std::vector<int32_t> ids = eos_ids_of(dir / "generation_config.json");
  const auto add = [&ids](int32_t id) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  };
  for (const int32_t id : eos_ids_of(dir / "config.json")) add(id);
  if (model.chat_template) {
    const auto id = model.tokenizer->token_id(model.chat_template->special_token("eos_token"));
    if (id) add(*id);
  }
  return ids;
}

std::string_view last_component(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

}  // namespace

bool LanguageModel::answers_to(std::string_view requested) const {
  return requested.empty() || requested == id || last_component(requested) == last_component(id);
}

StatusOr<std::shared_ptr<const LanguageModel>> load_language_model(TRITONSERVER_Server* server,
                                                                   const std::string& id) {
  auto model = std::make_shared<LanguageModel>();
  model->id = id;
  model->engine_name = kEngine;
  ASSIGN_OR_RETURN(model->engine, model_info(server, kEngine, -1));
  ASSIGN_OR_RETURN(const json::value engine_config, read_config(server, kEngine));
  ASSIGN_OR_RETURN(model->max_seq_len, read_max_seq_len(engine_config));
  model->decoupled = read_decoupled(engine_config);
  const auto text_config = read_config(server, kPreprocessing);
  if (text_config.status().code() == absl::StatusCode::kNotFound)
    return unsupported(
        "this server has no tokenizer (no model '{}'), so there is no text: ask model '{}' for "
        "token ids, POST /v2/models/{}/generate",
        kPreprocessing, kEngine, kEngine);
  RETURN_IF_ERROR(text_config.status());
  const std::filesystem::path dir = config_parameter(*text_config, "tokenizer_dir");
  if (dir.empty()) {
    return internal_error("model '{}' has no parameter tokenizer_dir", kPreprocessing);
  }
  ASSIGN_OR_RETURN(model->tokenizer, text::Tokenizer::load(dir));
  for (int32_t id = 0; id < model->tokenizer->vocab_size(); ++id) {
    model->max_token_bytes =
        std::max(model->max_token_bytes, model->tokenizer->token_bytes(id).size());
  }
  StatusOr<text::ChatTemplate> chat = text::load_chat_template(dir);
  if (chat.ok()) {
    model->chat_template = *std::move(chat);
  } else {
    log_info("no chat completions: {}", message(chat.status()));
  }
  model->eos_ids = read_eos_ids(dir, *model);
  return model;
}

StatusOr<std::shared_ptr<const LanguageModel>> LanguageModelCache::get() {
  bool ready = false;
  const Status status = take_error(TRITONSERVER_ServerModelIsReady(server_, kEngine, -1, &ready));
  if (!status.ok() || !ready) return unavailable("model '{}' is not ready", id_);
  std::string configs = read_configs(server_);
  std::lock_guard lock(mutex_);
  if (!model_ || configs != loaded_from_) {
    model_ = nullptr;
    ASSIGN_OR_RETURN(model_, load_language_model(server_, id_));
    loaded_from_ = std::move(configs);
  }
  return model_;
}

bool LanguageModelCache::is_loaded() const {
  const std::string configs = read_configs(server_);
  std::lock_guard lock(mutex_);
  return model_ != nullptr && configs == loaded_from_;
}

bool LanguageModelCache::leads_to_engine(std::string_view name) const {
  if (std::ranges::find(kChain, name) == std::end(kChain)) return false;
  bool ready = false;
  const Status status =
      take_error(TRITONSERVER_ServerModelIsReady(server_, std::string(name).c_str(), -1, &ready));
  return status.ok() && ready;
}

}  // namespace nereid::front
