// libFuzzer entry: any bytes as a GGUF file: its metadata, its tokenizer, every tensor, and the
// model that the metadata describe, with the tensors that it asks for.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/gguf.h"
#include "base/hash.h"
#include "io/gguf_file.h"
#include "models/family.h"
#include "models/formats/gguf_architectures.h"
#include "read_corners.h"
#include "text/tokenizer/tokenizer.h"

namespace {

using nereid::json::object;

constexpr double kMostMatrices = 4096;  // of a model that is described: layers times experts

// Where the file is written, removed when the program ends.
struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "gguf_fuzz.XXXXXX");
    if (!::mkdtemp(name.data())) std::abort();
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

double count_of(const object& metadata, const std::string& key) {
  const nereid::json::value* value = metadata.if_contains(key);
  return value && value->is_number() ? value->to_number<double>() : 1;
}

// Whether the metadata are those of a model, of which files of a tokenizer alone have some, whose
// description is small work.
bool describes_model(const object& metadata) {
  const nereid::json::value* name = metadata.if_contains("general.architecture");
  if (!name || !name->is_string()) return false;
  const std::string architecture(name->get_string());
  if (!nereid::models::find_gguf_architecture(architecture)) return false;
  const double layers = count_of(metadata, architecture + ".block_count");
  const double experts = count_of(metadata, architecture + ".expert_count");
  return metadata.contains(architecture + ".attention.head_count") &&
         layers * experts <= kMostMatrices;
}

// False where the model is refused. A part of a model that lacks tensors is a model all the same.
bool describe(const uint8_t* data, size_t size) {
  static const Folder folder;
  const std::filesystem::path path = folder.path / "model.gguf";
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  if (!file || std::fwrite(data, 1, size, file) != size || std::fclose(file) != 0) std::abort();
  const auto model = nereid::models::read_model(path);
  if (!model.ok()) return false;
  const auto checkpoint = nereid::models::open_checkpoint(*model, path);
  if (checkpoint.ok())
    (void)nereid::models::check_tensors(model->graph, *checkpoint, model->traits,
                                        model->family->ignores);
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  const auto gguf = nereid::parse_gguf(file);
  if (!gguf.ok()) return -1;
  if (const auto tokenizer = nereid::text::Tokenizer::from_gguf(gguf->metadata); tokenizer.ok())
    (void)(*tokenizer)->encode("The quick <s> brown 12");
  if (describes_model(gguf->metadata) && !describe(data, size)) return -1;
  const auto tensors = nereid::io::parse_gguf_tensors(file);
  if (!tensors.ok()) return -1;
  for (const nereid::io::StoredTensor& tensor : *tensors) {
    (void)nereid::hash64(tensor.data.data(), tensor.data.size());
    if (tensor.encoding && !tensor.data.empty()) read_corners(tensor);
  }
  return 0;
}
