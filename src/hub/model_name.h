// Names of models on a hub, and of the files that a hub lists.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace nereid::hub {

// A model of the hub: hf://ORG/NAME[@REVISION][:FILE.gguf].
struct ModelName {
  std::string org, name;
  std::string revision = "main";  // branch, tag or commit
  std::string file;               // a .gguf file of it; empty: the checkpoint in safetensors

  std::string id() const { return org + "/" + name; }
  // As people type it, without hf://.
  std::string text() const;
  // The name of its folder, which no other model has: hubs allow no "--" in names.
  std::string folder() const { return org + "--" + name; }
};

// Whether the text begins with hf://.
bool is_hub_address(std::string_view text);

// Parses a name with or without hf://. InvalidArgument, naming the part and what is allowed.
StatusOr<ModelName> parse_model_name(std::string_view text);

// 40 lower-case hexadecimal digits.
bool is_commit(std::string_view text);

enum class FileKind : uint8_t {
  // Never downloaded: pickles, code, pictures and so on, and names that no checkpoint needs
  // (hidden,
  // not ASCII, components of more than 200 bytes, more than 8 components).
  kOther,
  kText,         // json, txt, model, tiktoken, jinja
  kSafetensors,  // weights
  kGguf,         // a whole model
};
FileKind kind_of(std::string_view file);

// Ok for a relative path that stays in its folder. InvalidArgument, with the escaped name and its
// fault: parent folders, absolute paths, empty components, backslashes, control characters, more
// than 1000 bytes.
Status check_file_name(std::string_view file);

// The text with everything but printable ASCII as \xNN, at most 120 characters, for errors.
std::string quoted_name(std::string_view text);

// Percent-encoded for a path of a URL; '/' stays unless `encodes_slash`.
std::string url_path(std::string_view text, bool encodes_slash = false);

}  // namespace nereid::hub
