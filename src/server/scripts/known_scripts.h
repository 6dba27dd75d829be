// model.py files of the TensorRT-LLM backend that our own backends replace: a repository that names
// backend "python" with one of them is served without Python.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace nereid::server {

// A hash of what a Python text says: comments, blanks, line breaks, the kind of quotes and trailing
// commas do not count, so reformatted copies are equal and changed ones are not.
uint64_t script_fingerprint(std::string_view text);

struct KnownScript {
  // Our backend that does the same ("preprocessing", "postprocessing", "tensorrt_llm_bls",
  // "tensorrtllm"); "" when the script is none of the known files.
  std::string backend;
  // The backend that an unknown script looks like a changed or newer version of; "" when like none.
  std::string resembles;
  // The model of the TensorRT-LLM backend that the script is a version of and that nothing here
  // replaces; "" for other scripts.
  std::string missing;
};

// What `<version_dir>/model.py`, and lib/*.py beside it, are. A missing file is unknown.
KnownScript identify_script(const std::filesystem::path& version_dir);

}  // namespace nereid::server
