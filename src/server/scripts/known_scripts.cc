#include "server/scripts/known_scripts.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/hash.h"

namespace nereid::server {
namespace {

constexpr size_t kMaxScriptBytes = 1 << 20;

// Sorted fingerprints of every version of the scripts in the backend's public history.
constexpr uint64_t kPreprocessing[] = {
#include "server/scripts/preprocessing.inc"
};
constexpr uint64_t kPostprocessing[] = {
#include "server/scripts/postprocessing.inc"
};
constexpr uint64_t kGenerating[] = {
#include "server/scripts/tensorrt_llm.inc"
};
constexpr uint64_t kBls[] = {
#include "server/scripts/tensorrt_llm_bls.inc"
};
// lib/decode.py and lib/triton_decoder.py of the BLS model.
constexpr uint64_t kBlsLibrary[] = {
#include "server/scripts/tensorrt_llm_bls_lib.inc"
};
constexpr uint64_t kWhisper[] = {
#include "server/scripts/whisper_bls.inc"
};
// fbank.py and tokenizer.py beside the script of whisper_bls.
constexpr uint64_t kWhisperHelpers[] = {
#include "server/scripts/whisper_bls_helpers.inc"
};
constexpr uint64_t kMultimodal[] = {
#include "server/scripts/multimodal_encoders.inc"
};
// multimodal_utils.py beside the script of multimodal_encoders.
constexpr uint64_t kMultimodalHelpers[] = {
#include "server/scripts/multimodal_encoders_helpers.inc"
};
// Pre- and postprocessing of the model set gpt that differ from the above.
constexpr uint64_t kGpt[] = {
#include "server/scripts/gpt.inc"
};

struct Kind {
  const char* backend;
  const uint64_t *begin, *end;
  // Words in every version of the script, to recognise modified ones.
  std::vector<std::string_view> marks;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kinds = {
      {"preprocessing",
       std::begin(kPreprocessing),
       std::end(kPreprocessing),
       {"class TritonPythonModel", "tokenizer_dir", "REQUEST_INPUT_LEN", "STOP_WORDS_DICT"}},
      {"postprocessing",
       std::begin(kPostprocessing),
       std::end(kPostprocessing),
       {"class TritonPythonModel", "tokenizer_dir", "TOKENS_BATCH", "OUTPUT"}},
      {"tensorrtllm",
       std::begin(kGenerating),
       std::end(kGenerating),
       {"class TritonPythonModel", "gpt_model_path", "request_output_len", "trtllm"}},
      {"tensorrt_llm_bls",
       std::begin(kBls),
       std::end(kBls),
       {"class TritonPythonModel", "accumulate_tokens", "preprocessing", "postprocessing"}},
      {"whisper_bls",
       std::begin(kWhisper),
       std::end(kWhisper),
       {"class TritonPythonModel", "TRANSCRIPTS", "WAV", "n_mels"}},
      {"multimodal_encoders",
       std::begin(kMultimodal),
       std::end(kMultimodal),
       {"class TritonPythonModel", "OUT_PROMPT_EMBEDDING_TABLE", "IMAGE"}}};
  return kinds;
}

// Models of the same backend that this server does not replace, with words in their scripts.
const std::vector<std::pair<const char*, std::vector<std::string_view>>>& missing_models() {
  static const std::vector<std::pair<const char*, std::vector<std::string_view>>> models = {
      {"disaggregated_serving_bls", {"context_only", "generation_only"}},
      {"gpt", {"tensorrt_llm.runtime", "SamplingConfig", "runtime_top_k"}},
      {"llmapi", {"tensorrt_llm", "model.yaml", "sampling_param"}},
  };
  return models;
}

bool has_all(const std::string& text, const std::vector<std::string_view>& marks) {
  return std::all_of(marks.begin(), marks.end(),
                     [&](std::string_view mark) { return text.find(mark) != std::string::npos; });
}

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f'; }

bool is_word(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         static_cast<unsigned char>(c) >= 0x80;
}

// The length of the string literal at text[0], which is a quote.
size_t literal_length(std::string_view text) {
  const char quote = text[0];
  const std::string triple(3, quote);
  const bool is_triple = text.starts_with(triple);
  const std::string_view end = is_triple ? std::string_view(triple) : text.substr(0, 1);
  for (size_t at = end.size(); at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text.substr(at).starts_with(end)) {
      return at + end.size();
    }
  }
  return text.size();
}

bool closes(char c) { return c == ')' || c == ']' || c == '}'; }

// Appends a symbol; a closing bracket removes the comma before it.
void append_symbol(std::string& out, char c) {
  if (closes(c) && out.ends_with(',')) out.pop_back();
  out += c;
}

template <size_t kCount>
bool contains(const uint64_t (&table)[kCount], uint64_t value) {
  return std::binary_search(std::begin(table), std::end(table), value);
}

// Whether all scripts of a folder but model.py are empty or in the table.
template <size_t kCount>
bool helpers_are_known(const std::filesystem::path& dir, const uint64_t (&table)[kCount]) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(dir, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() != ".py" || it->path().filename() == "model.py") continue;
    const auto text = read_file(it->path(), kMaxScriptBytes);
    if (!text.ok()) return false;
    const bool is_empty = text->find_first_not_of(" \t\r\n") == std::string::npos;
    if (!is_empty && !contains(table, script_fingerprint(*text))) return false;
  }
  return true;
}

}  // namespace

uint64_t script_fingerprint(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool gap = false;  // blanks since the last symbol
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (is_blank(c) || c == '\\') {
      gap = true;
      ++at;
    } else if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (c == '"' || c == '\'') {
      const size_t length = literal_length(text.substr(at));
      const size_t quotes = text.substr(at, 3) == std::string(3, c) ? 3 : 1;
      const size_t inner = length > 2 * quotes ? length - 2 * quotes : 0;
      out += '"';
      out += text.substr(at + quotes, inner);
      out += '"';
      at += length;
      gap = false;
    } else {
      // A blank between two words stays: "not x" is not "notx".
      if (gap && is_word(c) && !out.empty() && is_word(out.back())) out += ' ';
      append_symbol(out, c);
      gap = false;
      ++at;
    }
  }
  return hash64(out);
}

KnownScript identify_script(const std::filesystem::path& version_dir) {
  const auto text = read_file(version_dir / "model.py", kMaxScriptBytes);
  if (!text.ok()) return {};
  const uint64_t fingerprint = script_fingerprint(*text);
  for (const auto& kind : kinds()) {
    const bool is_known = std::binary_search(kind.begin, kind.end, fingerprint);
    if (!is_known) continue;
    const bool is_whole = kind.begin == std::begin(kWhisper)
                              ? helpers_are_known(version_dir, kWhisperHelpers)
                          : kind.begin == std::begin(kMultimodal)
                              ? helpers_are_known(version_dir, kMultimodalHelpers)
                              : helpers_are_known(version_dir / "lib", kBlsLibrary);
    if (is_whole) return {kind.backend, kind.backend, ""};
  }
  if (contains(kGpt, fingerprint)) return {"", "", "gpt"};
  for (const auto& kind : kinds()) {
    if (has_all(*text, kind.marks)) return {"", kind.backend, ""};
  }
  if (text->find("class TritonPythonModel") == std::string::npos) return {};
  for (const auto& [model, marks] : missing_models()) {
    if (has_all(*text, marks)) return {"", "", model};
  }
  return {};
}

}  // namespace nereid::server
