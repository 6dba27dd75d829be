// A served language model: tokenizer, chat template, end ids, limits, and the tensor layout of
// its tensorrt_llm model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/parameters/lora_modules.h"
#include "base/status.h"
#include "front/bridge/model_info.h"
#include "front/openai/audio/served_speech.h"
#include "front/openai/model_facts.h"
#include "front/openai/options.h"
#include "front/openai/pictures/served_pictures.h"
#include "front/openai/requests/infill.h"
#include "front/openai/requests/requests.h"
#include "front/output/reasoning_formats.h"
#include "front/output/tool_formats.h"
#include "text/chat_template.h"
#include "text/decoder_prompt.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::front {

struct LanguageModel {
  std::string id;           // id in /v1/models
  std::string engine_name;  // the model on token ids
  std::shared_ptr<const ModelInfo> engine;
  bool decoupled = true;        // engine may answer many times, so tokens can be streamed
  bool repeats_prompt = false;  // in front of an answer in one reply: no input excludes it
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::optional<text::ChatTemplate> chat_template;
  // End ids of generation_config, config or tokenizer_config; the first is end_id.
  std::vector<int32_t> eos_ids;
  int64_t max_seq_len = 0;        // prompt and output tokens
  int64_t encoder_positions = 0;  // tokens of an encoder's prompt; 0: no encoder
  text::DecoderPrompts decoder_prompts;
  int64_t default_max_tokens = 0;  // see OpenAiOptions
  SamplingDefaults defaults;       // of options that a request does not set
  int64_t max_num_sequences = 0;   // sequences that the engine computes at once; 0: unknown
  size_t max_token_bytes = 1;      // largest text of a token
  int64_t embedding_size = 0;      // 0: no embeddings
  int64_t num_labels = 0;          // labels of a score head; 0: it has a language head
  // Pooling of embeddings: last | mean. Unimplemented: another method.
  StatusOr<std::string> pooling = std::string("last");

  // Facts of a speech model. Unimplemented: it takes no sound.
  StatusOr<std::shared_ptr<const ServedSpeech>> speech = unsupported("the model takes no sound");

  // How it takes pictures. Unimplemented: it takes none.
  StatusOr<std::shared_ptr<const ServedPictures>> pictures =
      unsupported("the model takes no pictures");

  ModelFacts facts;  // for Ollama's API

  const FillMiddleTokens* infill = nullptr;  // null: no fill-in-the-middle tokens
  bool takes_templates = false;              // requests may bring their own chat template

  // Formats of tool calls and reasoning; null: none, or not parsed.
  const ToolFormat* tool_format = nullptr;
  const ReasoningFormat* reasoning_format = nullptr;

  std::vector<backend::LoraModule> adapters;  // adapters that requests select by model name
  // Folder for adapters that requests load; empty: not allowed.
  std::filesystem::path lora_load_dir;

  // max_tokens of a request without one, at most `room`.
  int64_t default_max_tokens_within(int64_t room) const {
    return default_max_tokens > 0 ? std::min(default_max_tokens, room) : room;
  }

  // Null: no adapter of that name.
  const backend::LoraModule* adapter(std::string_view requested) const;
};

inline constexpr char kUsualEngine[] = "tensorrt_llm", kUsualText[] = "preprocessing";

// The repository's models that form a language model.
struct ModelNames {
  std::string engine;                // the model on token ids
  std::string text;                  // the model with the tokenizer
  std::vector<std::string> callers;  // models that call the engine: ensembles, BLS models
  std::string id;                    // id in /v1/models

  bool operator==(const ModelNames&) const = default;
};

// Reads the configurations: tokenizer_dir of the text model, max_seq_len and layout of the engine.
// Unavailable while one is not ready, and when the tokenizer's files have changed since it was
// loaded; Unimplemented without a text model; errors name model and parameter.
StatusOr<std::shared_ptr<const LanguageModel>> load_language_model(TRITONSERVER_Server* server,
                                                                   const ModelNames& names,
                                                                   const OpenAiOptions& options);

}  // namespace nereid::front
