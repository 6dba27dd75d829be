// Why a path is taken for the kind of model that it is.
#include "convert/engine_cache.h"
#include "convert/engine_dir.h"
#include "convert/inspect.h"
#include "io/engine_file.h"
#include "models/trtllm.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace nereid::convert {
namespace {

bool has_file(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// "an engine directory: ..." for the first line.
std::string engine_text(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) return "an engine file: it is no directory";
  return fmt::format(
      "an engine directory: rank0.engine is there{}",
      has_file(path / "config.json") ? ", config.json has pretrained_config and build_config" : "");
}

std::string model_text(const std::filesystem::path& path, const models::Model& model) {
  const std::string& architecture = model.graph.model.architecture;
  switch (model.layout) {
    case models::Layout::kGguf:
      return fmt::format("a GGUF file: its name ends in .gguf; its metadata say {}", architecture);
    case models::Layout::kTrtLlm: {
      const int32_t ranks = model.ranks.num_files();
      return fmt::format(
          "a TensorRT-LLM checkpoint: config.json has architecture ({}) and dtype\n"
          "weights: {}{}",
          architecture, models::rank_file_name(0),
          ranks == 1 ? "" : fmt::format(" to {}, merged", models::rank_file_name(ranks - 1)));
    }
    case models::Layout::kHuggingFace:
      break;
  }
  const std::filesystem::path weights = io::find_weight_file(path);
  return fmt::format("a Hugging Face directory: config.json has architectures ({})\nweights: {}",
                     architecture, weights.empty() ? "none" : weights.filename().string());
}

}  // namespace

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
