// A hub's list of the files of a revision, and the choice of files that are taken.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "hub/checksum.h"
#include "hub/model_name.h"

namespace nereid::hub {

struct RemoteFile {
  std::string name;             // checked: check_file_name()
  std::optional<int64_t> size;  // in bytes
  std::optional<Checksum> checksum;
};

struct Listing {
  std::string commit;
  std::vector<RemoteFile> files;  // of any kind, in the hub's order
};

inline constexpr int64_t kMaxListingBytes = int64_t{32} << 20;
inline constexpr size_t kMaxListedFiles = 100'000;
inline constexpr int64_t kMaxTextBytes = int64_t{1} << 30;  // of a file that is no weights
inline constexpr int64_t kMaxFileBytes = int64_t{1} << 44;

// Parses the answer of /api/models/ID/revision/REVISION?blobs=true. InvalidArgument: no such
// answer, a hostile file name, a name that is there twice, sizes or numbers beyond the limits.
StatusOr<Listing> parse_listing(std::string_view text);

// The files that are taken first: all texts, or the named .gguf file with its other parts.
// NotFound, with what there is: no such file; a model without safetensors.
StatusOr<std::vector<RemoteFile>> first_files(const Listing& listing, const ModelName& model);

// The weights in safetensors. `index`: the text of model.safetensors.index.json, "" without one,
// whose files are taken; else model.safetensors or model-N-of-M.safetensors, else all at the top.
// InvalidArgument, NotFound: an index that is damaged or names what is not listed.
StatusOr<std::vector<RemoteFile>> weight_files(const Listing& listing, std::string_view index);

inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";

// "model-00002-of-00005" of a file "model-00002-of-00005.gguf": its parts' common beginning and
// their number. nullopt: the file is whole.
struct Parts {
  std::string begin;
  int count = 0;
};
std::optional<Parts> parts_of(std::string_view gguf_file);

}  // namespace nereid::hub
