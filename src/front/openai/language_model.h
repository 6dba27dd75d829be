// What the OpenAI routes know of the served model: tokenizer, chat template, end ids, limits and
// the tensor layout of the tensorrt_llm model behind it.
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
#include "front/openai/infill.h"
#include "front/openai/model_facts.h"
#include "front/openai/options.h"
#include "front/openai/requests.h"
#include "front/output/reasoning_formats.h"
#include "front/output/tool_formats.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace nereid::front {

struct LanguageModel {
  std::string id;           // what /v1/models lists
  std::string engine_name;  // the model that takes token ids
  std::shared_ptr<const ModelInfo> engine;
  bool decoupled = true;        // engine may answer many times, so tokens can be streamed
  bool repeats_prompt = false;  // in front of an answer in one reply; no input says otherwise
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::optional<text::ChatTemplate> chat_template;
  std::vector<int32_t> eos_ids;    // generation_config, config or tokenizer_config; first is end_id
  int64_t max_seq_len = 0;         // prompt and output tokens
  int64_t default_max_tokens = 0;  // see OpenAiOptions
  SaidSampling defaults;           // of requests that do not say
  int64_t max_num_sequences = 0;   // that the engine computes at once; 0: it does not say
  size_t max_token_bytes = 1;      // of the text that a token stands for
  int64_t embedding_size = 0;      // 0: it gives none
  int64_t num_labels = 0;          // that it scores texts by; 0: it has a language head
  // How embeddings are made of a text's states: last | mean. Unimplemented: in another way.
  StatusOr<std::string> pooling = std::string("last");

  ModelFacts facts;  // where Ollama's API tells them

  const InfillMarks* infill = nullptr;  // null: it fills no gaps
  bool takes_templates = false;         // of requests, in the place of its own

  // How it writes tool calls and reasoning; null: it does not, or it is not parsed.
  const ToolFormat* tool_format = nullptr;
  const ReasoningFormat* reasoning_format = nullptr;

  std::vector<backend::LoraModule> adapters;  // which requests name as their model
  std::filesystem::path lora_load_dir;        // where requests load them from; empty: nowhere

  // New tokens of a request that does not say how many, with room for `room`.
  int64_t unsaid_max_tokens(int64_t room) const {
    return default_max_tokens > 0 ? std::min(default_max_tokens, room) : room;
  }

  // Null: this names no adapter.
  const backend::LoraModule* adapter(std::string_view requested) const;
};

inline constexpr char kUsualEngine[] = "tensorrt_llm", kUsualText[] = "preprocessing";

// The models of a repository that a language model is made of.
struct ModelNames {
  std::string engine;                // from token ids to token ids
  std::string text;                  // knows the tokenizer
  std::vector<std::string> callers;  // that lead to the engine: ensembles, programs
  std::string id;                    // what /v1/models lists

  bool operator==(const ModelNames&) const = default;
};

// Reads the configurations of the models: tokenizer_dir of the one, max_seq_len and layout of the
// other. Unavailable while one is not ready, and when the tokenizer's files have changed since it
// was loaded; Unimplemented without a model for text; errors name model and parameter.
StatusOr<std::shared_ptr<const LanguageModel>> load_language_model(TRITONSERVER_Server* server,
                                                                   const ModelNames& names,
                                                                   const OpenAiOptions& options);

}  // namespace nereid::front
