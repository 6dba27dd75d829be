// Reasons why a path is recognised as its kind of model.
#include <fmt/ranges.h>

#include <algorithm>

#include "base/gguf.h"
#include "convert/engine_cache.h"
#include "convert/engine_dir.h"
#include "convert/inspect.h"
#include "io/engine_file.h"
#include "models/formats/meta.h"
#include "models/formats/openai_whisper.h"
#include "models/formats/trtllm.h"
#include "models/formats/trtllm_halves.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::convert {
namespace {

bool has_file(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// First line: "an engine directory: ...".
std::string engine_text(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) return "an engine file: it is no directory";
  if (const auto model = models::read_model(path); model.ok())  // several ranks
    return fmt::format(
        "an engine directory: rank0.engine is there, config.json has pretrained_config and "
        "build_config\nweights: rank0.engine to {}, merged",
        models::rank_file_name(model->ranks.num_files() - 1, true));
  return fmt::format(
      "an engine directory: rank0.engine is there{}",
      has_file(path / "config.json") ? ", config.json has pretrained_config and build_config" : "");
}

std::string gguf_text(const std::filesystem::path& path, const std::string& architecture) {
  const auto files = gguf_files(path);
  const size_t count = files.ok() ? files->size() : 1;
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(path, error);
  const std::string text =
      fmt::format("{} say {}",
                  is_folder ? "a folder of a GGUF model: its metadata"
                            : "a GGUF file: its name ends in .gguf; its metadata",
                  architecture);
  if (!files.ok() || (!is_folder && count == 1)) return text;
  return fmt::format("{}\nweights: {}{}", text, files->front().filename().string(),
                     count == 1 ? "" : fmt::format(" to {}", files->back().filename().string()));
}

std::string model_text(const std::filesystem::path& path, const models::Model& model) {
  const std::string& architecture = model.graph.model.architecture;
  switch (model.layout) {
    case models::Layout::kGguf:
      return gguf_text(path, architecture);
    case models::Layout::kTrtLlm: {
      const int32_t ranks = model.ranks.num_files();
      return fmt::format(
          "a TensorRT-LLM checkpoint: config.json has architecture ({}) and dtype\n"
          "weights: {}{}",
          architecture, models::rank_file_name(0),
          ranks == 1 ? "" : fmt::format(" to {}, merged", models::rank_file_name(ranks - 1)));
    }
    case models::Layout::kMeta: {
      const int32_t files = model.meta.num_files;
      return fmt::format(
          "Meta's directory of a Llama: params.json and {0} are there, config.json is not\n"
          "weights: {0}{1}",
          models::meta_file_name(0),
          files == 1 ? "" : fmt::format(" to {}, merged", models::meta_file_name(files - 1)));
    }
    case models::Layout::kOpenAi:
      return fmt::format("a Whisper of OpenAI: {0} has dims and model_state_dict\nweights: {0}",
                         models::openai_whisper_file(path).filename().string());
    case models::Layout::kHuggingFace:
      break;
  }
  const std::filesystem::path weights = io::find_weight_file(path);
  return fmt::format("a Hugging Face directory: config.json has architectures ({})\nweights: {}",
                     architecture, weights.empty() ? "none" : weights.filename().string());
}

// Subfolders of `path` with a file of this name, sorted.
std::vector<std::string> folders_with(const std::filesystem::path& path, const char* name) {
  constexpr size_t kMostShown = 5;
  std::vector<std::string> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    if (has_file(entry.path() / name)) out.push_back(entry.path().filename().string());
  }
  std::sort(out.begin(), out.end());
  if (out.size() > kMostShown) {
    out.resize(kMostShown);
    out.push_back("...");
  }
  return out;
}

}  // namespace

Status check_is_model(const std::filesystem::path& path) {
  if (is_gguf_path(path) || !given_engine(path).empty() ||
      has_file(models::decoder_folder(path) / "config.json") || models::is_meta_dir(path) ||
      !models::openai_whisper_file(path).empty()) {
    return ok();
  }
  std::string text = fmt::format(
      "{}: no model is there: a checkpoint's folder has config.json (Meta's: params.json and "
      "consolidated.00.pth), an engine's rank0.engine, a GGUF file's name ends in .gguf",
      path.string());
  if (const auto models = folders_with(path, "config.json"); !models.empty()) {
    text += fmt::format("; it has models in: {}", fmt::join(models, ", "));
  } else if (const auto served = folders_with(path, "config.pbtxt"); !served.empty()) {
    text += fmt::format("; it is a model repository ({}): tritonserver --model-repository={}",
                        fmt::join(served, ", "), path.string());
  }
  return not_found("{}", text);
}

std::vector<std::string> model_faults(const std::filesystem::path& path) {
  std::vector<std::string> faults;
  const auto note = [&faults](const Status& status) {
    if (!status.ok()) faults.emplace_back(message(status));
  };
  note(verify_model(path));
  const auto dir = tokenizer_dir(path);
  if (!dir.ok()) return faults;  // fault of the model, reported by verify_model()
  if (text::Tokenizer::has_files(*dir)) note(text::Tokenizer::load(*dir).status());
  const Status chat = text::load_chat_template(*dir).status();
  if (!absl::IsNotFound(chat)) note(chat);
  return faults;
}

StatusOr<std::string> describe_model(const std::filesystem::path& path) {
  std::string text = path.string() + " is ";
  const bool is_engine = !given_engine(path).empty();
  if (is_engine) {
    RETURN_IF_ERROR(read_facts(path).status());
    text += engine_text(path);
  } else {
    ASSIGN_OR_RETURN(const models::Model model, models::read_model(path));
    text += model_text(path, model);
  }
  ASSIGN_OR_RETURN(const std::filesystem::path dir, tokenizer_dir(path));
  const std::filesystem::path tokenizer = text::Tokenizer::file_of(dir);
  text += fmt::format("\ntokenizer: {}\n", tokenizer.empty() ? "none" : tokenizer.string());
  const auto chat = text::load_chat_template(dir);
  text += fmt::format("chat template: {}\n", chat.ok() ? chat->file().string()
                                             : absl::IsNotFound(chat.status())
                                                 ? "none"
                                                 : std::string(message(chat.status())));
  if (has_file(dir / "generation_config.json"))
    text += fmt::format("ends of text: {}\n", (dir / "generation_config.json").string());
  return text;
}

}  // namespace nereid::convert
