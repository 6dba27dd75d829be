#include "io/checkpoint.h"

#include <fmt/ranges.h>

#include <set>
#include <utility>

#include "base/json.h"
#include "io/engine_file.h"
#include "io/gguf_file.h"
#include "io/safetensors.h"
#include "io/torch_file.h"

namespace nereid::io {
namespace {

constexpr size_t kMaxIndexEntries = 1'000'000;

// In order of preference.
constexpr const char* kWeightFiles[] = {"model.safetensors", "model.safetensors.index.json",
                                        "pytorch_model.bin", "pytorch_model.bin.index.json"};

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.size() < 256 &&
         name.find('/') == name.npos && name.find('\0') == name.npos;
}

class Numbers final : public EncodingOf<Numbers> {
 public:
  explicit Numbers(std::vector<float> numbers) : numbers_(std::move(numbers)) {}
  float at(int64_t row, int64_t /*col*/) const { return numbers_[static_cast<size_t>(row)]; }

 private:
  std::vector<float> numbers_;
};

StatusOr<std::span<const std::byte>> tensors_of_engine(std::span<const std::byte> file,
                                                       std::optional<int32_t>& rank) {
  ASSIGN_OR_RETURN(const EngineContents engine, parse_engine(file));
  if (engine.rank_tensors.empty())
    return data_loss("is the engine of a whole model, not of one rank");
  if (engine.rank_tensors.size() <= kAutoVerifyBytes) RETURN_IF_ERROR(verify_rank_tensors(engine));
  rank = engine.rank;
  return engine.rank_tensors;
}

// Parses a file's tensors in the format of its suffix; sets its header and rank.
StatusOr<std::vector<StoredTensor>> parse(const std::filesystem::path& path,
                                          std::span<const std::byte> file,
                                          std::span<const std::byte>& header,
                                          std::optional<int32_t>& rank) {
  if (path.extension() == ".bin" || path.extension() == ".pt" || path.extension() == ".pth")
    return parse_torch_file(file, &header);
  if (path.extension() == ".gguf") return parse_gguf_tensors(file, &header);
  if (path.extension() == ".engine") {
    ASSIGN_OR_RETURN(file, tensors_of_engine(file, rank));
  }
  ASSIGN_OR_RETURN(header, safetensors_header(file));
  const bool is_engine = rank.has_value();
  return parse_safetensors(file, is_engine ? nullptr : &rank);
}

}  // namespace

std::string StoredTensor::shape_text() const { return fmt::format("[{}]", fmt::join(shape, ", ")); }

StatusOr<TensorFile> TensorFile::open(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const OpenFile file, OpenFile::open(path));
  return open(file);
}

StatusOr<TensorFile> TensorFile::open(const OpenFile& file) {
  TensorFile out;
  const std::filesystem::path& path = file.path();
  out.path_ = path;
  ASSIGN_OR_RETURN(out.file_, MappedFile::open(file));
  StatusOr<std::vector<StoredTensor>> tensors =
      parse(path, out.file_.bytes(), out.header_, out.rank_);
  if (!tensors.ok()) return data_loss("{}: {}", path.string(), message(tensors.status()));
  out.tensors_ = *std::move(tensors);
  return out;
}

const Checkpoint::Entry* Checkpoint::find(std::string_view name) const {
  const auto it = by_name_.find(std::string(name));
  return it == by_name_.end() ? nullptr : &entries_[it->second];
}

Status Checkpoint::add(Checkpoint other) {
  for (auto& file : other.files_) files_.push_back(std::move(file));
  for (auto& tensor : other.translated_) translated_.push_back(std::move(tensor));
  for (const Entry& entry : other.entries_) RETURN_IF_ERROR(add_tensor(*entry.tensor, *entry.file));
  return ok();
}

Status Checkpoint::rename(const std::function<std::string(const std::string&)>& name_of) {
  const std::vector<Entry> old = std::exchange(entries_, {});
  by_name_.clear();
  for (const Entry& entry : old) {
    std::string name = name_of(entry.tensor->name);
    if (name.empty()) continue;
    translated_.push_back(std::make_unique<StoredTensor>(*entry.tensor));
    translated_.back()->name = std::move(name);
    RETURN_IF_ERROR(add_tensor(*translated_.back(), *entry.file));
  }
  return ok();
}

Status Checkpoint::join(std::vector<Joined> joined) {
  std::vector<Entry> left = std::exchange(entries_, {});
  const absl::flat_hash_map<std::string, size_t> places = std::exchange(by_name_, {});
  std::vector<std::pair<std::unique_ptr<StoredTensor>, const TensorFile*>> wholes;
  std::set<std::string> divided;
  for (Joined& one : joined) {
    const TensorFile* file = nullptr;
    const bool divides = one.parts.size() == 1;
    for (const std::string& name : one.parts) {
      Entry& entry = left[places.at(name)];
      if (!entry.tensor && !(divides && divided.contains(name)))
        return data_loss("{}: tensor '{}' is a part of two others", main_file_.string(), name);
      if (!file) file = entry.file;
      entry.tensor = nullptr;
      if (divides) divided.insert(name);
    }
    if (one.whole) wholes.emplace_back(std::make_unique<StoredTensor>(*std::move(one.whole)), file);
  }
  for (const Entry& entry : left)
    if (entry.tensor) RETURN_IF_ERROR(add_tensor(*entry.tensor, *entry.file));
  for (auto& [whole, file] : wholes) {
    translated_.push_back(std::move(whole));
    RETURN_IF_ERROR(add_tensor(*translated_.back(), *file));
  }
  return ok();
}

Status Checkpoint::add_vector(std::string name, std::vector<float> numbers) {
  const int64_t count = std::ssize(numbers);
  translated_.push_back(std::make_unique<StoredTensor>(
      StoredTensor{.name = std::move(name),
                   .shape = {count},
                   .encoding = std::make_shared<const Numbers>(std::move(numbers))}));
  return add_tensor(*translated_.back(), *files_.front());
}

void Checkpoint::turn(const std::string& name) {
  Entry& entry = entries_[by_name_.at(name)];
  translated_.push_back(std::make_unique<StoredTensor>(*entry.tensor));
  entry.tensor = translated_.back().get();
  translated_.back()->transposed = true;
  std::swap(translated_.back()->shape[0], translated_.back()->shape[1]);
}

Status Checkpoint::add_tensor(const StoredTensor& tensor, const TensorFile& file) {
  const auto [it, added] = by_name_.try_emplace(tensor.name, entries_.size());
  if (!added)
    return data_loss("{}: tensor '{}' is also in {}", file.path().string(), tensor.name,
                     entries_[it->second].file->path().string());
  entries_.push_back({&tensor, &file});
  return ok();
}

Status Checkpoint::add_file(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(TensorFile file, TensorFile::open(path));
  files_.push_back(std::make_unique<TensorFile>(std::move(file)));
  for (const StoredTensor& tensor : files_.back()->tensors())
    RETURN_IF_ERROR(add_tensor(tensor, *files_.back()));
  return ok();
}

Status Checkpoint::open_index(const std::filesystem::path& index_path) {
  ASSIGN_OR_RETURN(const json::value index, read_json_file(index_path));
  const json::value* map =
      index.is_object() ? index.get_object().if_contains("weight_map") : nullptr;
  if (!map || !map->is_object())
    return data_loss("{}: field 'weight_map' is not an object", index_path.string());
  if (map->get_object().size() > kMaxIndexEntries)
    return data_loss("{}: more than {} tensors", index_path.string(), kMaxIndexEntries);
  std::set<std::string> shards;
  for (const auto& [name, file] : map->get_object()) {
    if (!file.is_string() || !is_plain_file_name(file.get_string()))
      return data_loss("{}: tensor '{}' is not mapped to a file name of the same directory",
                       index_path.string(), std::string_view(name));
    shards.emplace(file.get_string());
  }
  for (const std::string& shard : shards) RETURN_IF_ERROR(add_file(dir_ / shard));
  for (const auto& [name, file] : map->get_object()) {
    const Entry* entry = find(name);
    const std::string_view wanted = file.get_string();
    if (!entry || entry->file->path().filename() != wanted)
      return data_loss("{}: tensor '{}' is missing, {} says it is there", (dir_ / wanted).string(),
                       std::string_view(name), index_path.string());
  }
  return ok();
}

StatusOr<Checkpoint> Checkpoint::open_files(const std::vector<std::filesystem::path>& files,
                                            const Translate& translate) {
  Checkpoint out;
  out.dir_ = files[0].parent_path();
  out.main_file_ = files.size() == 1 ? files[0] : out.dir_;
  for (size_t i = 0; i < files.size(); ++i) {
    ASSIGN_OR_RETURN(TensorFile opened, TensorFile::open(files[i]));
    out.files_.push_back(std::make_unique<TensorFile>(std::move(opened)));
    const TensorFile& file = *out.files_.back();
    for (const StoredTensor& stored : file.tensors()) {
      StatusOr<std::vector<StoredTensor>> parts = translate(i, stored);
      if (!parts.ok()) return annotate(parts.status(), files[i].string());
      for (StoredTensor& part : *parts) {
        out.translated_.push_back(std::make_unique<StoredTensor>(std::move(part)));
        RETURN_IF_ERROR(out.add_tensor(*out.translated_.back(), file));
      }
    }
  }
  return out;
}

std::filesystem::path find_weight_file(const std::filesystem::path& dir) {
  std::error_code error;
  for (const char* name : kWeightFiles)
    if (std::filesystem::exists(dir / name, error)) return dir / name;
  return {};
}

StatusOr<Checkpoint> Checkpoint::open(const std::filesystem::path& dir) {
  Checkpoint out;
  out.dir_ = dir;
  out.main_file_ = find_weight_file(dir);
  if (out.main_file_.empty())
    return not_found("{}: none of {} is there", dir.string(), fmt::join(kWeightFiles, ", "));
  RETURN_IF_ERROR(out.main_file_.extension() == ".json" ? out.open_index(out.main_file_)
                                                        : out.add_file(out.main_file_));
  return out;
}

}  // namespace nereid::io
