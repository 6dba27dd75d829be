// Test only: the quick-start model's tokenizer with more special tokens.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/testing/source_dir.h"

namespace nereid::text {

inline constexpr int64_t kFirstAddedToken = 4096;  // id of the first one; the others follow

// Writes tokenizer.json into `dir`.
inline void write_quickstart_tokenizer(const std::filesystem::path& dir,
                                       const std::vector<std::string>& added) {
  json::value tokenizer = *read_json_file(source_dir() + "/models/quickstart/tokenizer.json");
  json::array& tokens = tokenizer.at("added_tokens").as_array();
  int64_t id = kFirstAddedToken;
  for (const std::string& token : added)
    tokens.push_back({{"id", id++},
                      {"content", token},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false},
                      {"special", true}});
  std::ofstream(dir / "tokenizer.json") << json::serialize(tokenizer);
}

}  // namespace nereid::text
