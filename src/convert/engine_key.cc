#include "convert/engine_key.h"

#include <algorithm>
#include <chrono>
#include <tuple>
#include <type_traits>

#include "base/file.h"
#include "base/hash.h"
#include "graph/lower.h"
#include "io/engine_file.h"

namespace nereid::convert {
namespace {

// A hash of labelled parts; labels and lengths keep different lists from meeting.
class Key {
 public:
  void add(std::string_view label, std::string_view text) {
    state_ = hash64(fmt::format("{}:{}:", label, text.size()), state_);
    state_ = hash64(text, state_);
  }
  void add(std::string_view label, uint64_t number) { add(label, hex64(number)); }
  std::string text() const { return hex64(state_); }

 private:
  uint64_t state_ = 0;
};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void add_device(Key& key, const kernels::Registry& registry, const DeviceInfo& device) {
  key.add("device", device.kind == DeviceKind::kCpu ? "cpu" : "cuda");
  key.add("target", graph::target_of(device));
  key.add("isa", fmt::format("{}{}{}{}", device.has_amx, device.has_avx512_bf16, device.has_avx512,
                             device.has_avx2));
  const auto add_names = [&]<class Op>(const kernels::Table<Op>& table) {
    for (const kernels::Kernel<Op>& row : table)
      if (row.device == device.kind) key.add(Op::kName, row.name);
  };
  std::apply([&](const auto&... tables) { (add_names(tables), ...); }, registry.tables);
}

void add_samples(Key& key, const io::SafetensorsFile& file) {
  std::error_code error;
  const auto time = std::filesystem::last_write_time(file.path(), error).time_since_epoch();
  key.add("time", static_cast<uint64_t>(
                      std::chrono::duration_cast<std::chrono::nanoseconds>(time).count()));
  for (const io::StoredTensor& tensor : file.tensors()) {
    const size_t n = std::min<size_t>(tensor.data.size(), 64);
    key.add("tensor", text_of(tensor.data.first(n)));
  }
  const uint64_t step = file.file_bytes() / kSamples;
  for (uint64_t i = 0; i < kSamples; ++i) {
    const uint64_t at = i * step;
    key.add("sample", text_of(file.bytes().subspan(
                          at, std::min<uint64_t>(kSampleBytes, file.file_bytes() - at))));
  }
}

void add_checkpoint(Key& key, const io::Checkpoint& checkpoint) {
  uint64_t total = 0;
  for (const auto& file : checkpoint.files()) total += file->file_bytes();
  for (const auto& file : checkpoint.files()) {
    key.add("file", file->path().filename().string());
    key.add("size", file->file_bytes());
    key.add("header", text_of(file->header()));
    if (total <= kHashAllBytes)
      key.add("bytes", text_of(file->bytes()));
    else
      add_samples(key, *file);
  }
}

}  // namespace

StatusOr<std::string> engine_key(const std::filesystem::path& model_dir,
                                 const io::Checkpoint* checkpoint,
                                 const kernels::Registry& registry, const DeviceInfo& device,
                                 const BuildOptions& options) {
  Key key;
  key.add("nereid", NEREID_VERSION);
  key.add("format", io::kEngineFormatVersion);
  std::error_code error;
  key.add("dir", std::filesystem::weakly_canonical(model_dir, error).string());
  for (const char* name : {"config.json", "generation_config.json"}) {
    const std::filesystem::path path = model_dir / name;
    if (!std::filesystem::exists(path, error)) continue;
    ASSIGN_OR_RETURN(const std::string text, read_file(path));
    key.add(name, text);
  }
  add_device(key, registry, device);
  for (const std::string& choice : options.compile.forced) key.add("forced", choice);
  for (const std::string& name : options.compile.disabled_passes) key.add("disabled", name);
  if (checkpoint)
    add_checkpoint(key, *checkpoint);
  else
    key.add("weights", "random");
  return key.text();
}

}  // namespace nereid::convert
