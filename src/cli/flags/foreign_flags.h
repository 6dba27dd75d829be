// Flags and commands of other inference servers (vLLM, SGLang, llama.cpp, TGI, Ollama) that nereid
// does not have, with the equivalent of each.
#pragma once

#include <span>
#include <string_view>

namespace nereid::cli {

struct ForeignFlag {
  std::string_view names;    // one or several names, separated by blanks: "--ctx-size -c"
  std::string_view program;  // such as "llama.cpp"
  std::string_view advice;   // such as "nereid's is --max-seq-len"
};

std::span<const ForeignFlag> foreign_flags();

// The row of a flag or command ("run"); nullptr without one.
const ForeignFlag* find_foreign_flag(std::string_view name);
const ForeignFlag* find_foreign_command(std::string_view name);

}  // namespace nereid::cli
