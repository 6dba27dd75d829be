// model.py files of the TensorRT-LLM backend that our backends replace: a model of backend "python"
// with one of them is served without Python.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace nereid::server {

// A hash of a Python text that ignores comments, blanks, line breaks, the kind of quotes and
// trailing commas: reformatted copies are equal, changed ones are not.
uint64_t script_fingerprint(std::string_view text);

struct KnownScript {
  // The backend that replaces the script ("preprocessing", "postprocessing", "tensorrt_llm_bls",
  // "tensorrtllm", "multimodal_encoders", "whisper_bls"); "" for an unknown one.
  std::string backend;
  // The backend whose script a changed or newer version resembles; "" for none.
  std::string resembles;
  // The model of the TensorRT-LLM backend that the script belongs to and that nothing here
  // replaces; "" for other scripts.
  std::string missing;
};

// Identifies `<version_dir>/model.py` together with the scripts beside it and in lib. A missing
// file is an unknown one.
KnownScript identify_script(const std::filesystem::path& version_dir);

}  // namespace nereid::server
