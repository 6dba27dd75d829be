// libFuzzer entry: a line with a `quantization_config`, then any bytes as the safetensors file of
// such a model: its description of the tensors, the weight that they form, and its numbers.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/json.h"
#include "models/formats/quantized.h"
#include "read_corners.h"

namespace {

// Where the file is written, removed when the program ends.
struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "quantization_fuzz.XXXXXX");
    if (!::mkdtemp(name.data())) std::abort();
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Folder folder;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(all.find('\n'), all.size());
  const auto quantization = nereid::parse_json(all.substr(0, end));
  if (!quantization.ok()) return -1;
  const auto read =
      nereid::models::read_quantization({{"quantization_config", *quantization}}, folder.path);
  if (!read.ok()) return -1;
  const std::string_view file = all.substr(std::min(end + 1, all.size()));
  if (!nereid::write_file_atomic(folder.path / "model.safetensors", file).ok()) std::abort();
  auto checkpoint = nereid::io::Checkpoint::open(folder.path);
  if (!checkpoint.ok() || !nereid::models::join_quantized(*read, *checkpoint).ok()) return -1;
  for (const auto& entry : checkpoint->entries())
    if (entry.tensor->encoding && !entry.tensor->data.empty()) read_corners(*entry.tensor);
  return 0;
}
