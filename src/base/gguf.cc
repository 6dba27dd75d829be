#include "base/gguf.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace nereid {
namespace {

constexpr uint64_t kMaxKeys = 65536, kMaxGgufTensors = 1'000'000, kMaxArrayItems = 8'000'000;
constexpr uint64_t kMaxNameBytes = 65535, kMaxGgufDims = 8;

enum GgufType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};
// Least bytes of a value of each type.
constexpr uint64_t kTypeBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

class GgufReader {
 public:
  explicit GgufReader(std::span<const std::byte> file) : file_(file) {}

  StatusOr<Gguf> run() && {
    if (file_.size() < 24 || std::memcmp(file_.data(), "GGUF", 4) != 0)
      return invalid_argument("is not a GGUF file");
    at_ = 4;
    const auto version = number<uint32_t>();
    if (version != 2 && version != 3)
      return invalid_argument("GGUF version {} is not one of 2, 3", version);
    const auto num_tensors = number<uint64_t>(), num_keys = number<uint64_t>();
    if (num_keys > kMaxKeys || num_tensors > kMaxGgufTensors)
      return invalid_argument("{} keys and {} tensors, at most {} and {} are allowed", num_keys,
                              num_tensors, kMaxKeys, kMaxGgufTensors);
    for (uint64_t i = 0; i < num_keys; ++i) RETURN_IF_ERROR(read_key());
    for (uint64_t i = 0; i < num_tensors; ++i) RETURN_IF_ERROR(read_tensor());
    uint64_t alignment = 32;
    if (const json::value* value = out_.metadata.if_contains("general.alignment")) {
      if (!value->is_int64() || value->get_int64() < 1 || value->get_int64() > 1 << 20)
        return invalid_argument("key 'general.alignment': {} is not in [1, 1048576]",
                                json::serialize(*value).substr(0, 40));
      alignment = static_cast<uint64_t>(value->get_int64());
    }
    out_.data_begin =
        std::min<uint64_t>((at_ + alignment - 1) / alignment * alignment, file_.size());
    return std::move(out_);
  }

 private:
  uint64_t left() const { return file_.size() - at_; }
  template <class T>
  T number() {
    T value{};
    is_cut_ |= left() < sizeof value;
    if (is_cut_) return value;
    std::memcpy(&value, file_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string_view text() {
    const auto size = number<uint64_t>();
    is_cut_ |= size > left();
    if (is_cut_) return {};
    const std::string_view found(reinterpret_cast<const char*>(file_.data()) + at_, size);
    at_ += size;
    return found;
  }
  Status cut(std::string_view what) const {
    return invalid_argument("{}: the file ends within it", what);
  }

  json::value scalar(uint32_t type) {
    switch (type) {
      case kU8:
        return int64_t{number<uint8_t>()};
      case kI8:
        return int64_t{number<int8_t>()};
      case kU16:
        return int64_t{number<uint16_t>()};
      case kI16:
        return int64_t{number<int16_t>()};
      case kU32:
        return int64_t{number<uint32_t>()};
      case kI32:
        return int64_t{number<int32_t>()};
      case kF32:
        return double{number<float>()};
      case kBool:
        return number<uint8_t>() != 0;
      case kString: {
        const std::string_view found = text();
        return json::string(found.data(), found.size());
      }
      case kU64: {
        const auto value = number<uint64_t>();
        return value >> 63 ? json::value(value) : json::value(static_cast<int64_t>(value));
      }
      case kI64:
        return number<int64_t>();
      default:
        return number<double>();
    }
  }

  StatusOr<json::value> read_array(std::string_view key) {
    const auto type = number<uint32_t>();
    const auto count = number<uint64_t>();
    if (is_cut_) return cut(key);
    if (type > kF64 || type == kArray)
      return invalid_argument("{}: array of type {} is not known", key, type);
    num_items_ += count;
    if (count > left() / kTypeBytes[type] || count > kMaxArrayItems || num_items_ > kMaxArrayItems)
      return invalid_argument("{}: array of {} items does not fit, at most {} are allowed", key,
                              count, kMaxArrayItems);
    json::array items;
    items.reserve(count);
    for (uint64_t i = 0; i < count && !is_cut_; ++i) items.push_back(scalar(type));
    return json::value(std::move(items));
  }

  Status read_key() {
    const std::string_view name = text();
    if (is_cut_ || name.size() > kMaxNameBytes) return cut("a key");
    const std::string key = fmt::format("key '{}'", name.substr(0, 100));
    const auto type = number<uint32_t>();
    if (is_cut_) return cut(key);
    if (type > kF64) return invalid_argument("{}: type {} is not known", key, type);
    json::value value;
    if (type == kArray) {
      ASSIGN_OR_RETURN(value, read_array(key));
    } else {
      value = scalar(type);
    }
    if (is_cut_) return cut(key);
    const auto [it, added] = out_.metadata.emplace(name, std::move(value));
    return added ? ok() : invalid_argument("{}: is there twice", key);
  }

  Status read_tensor() {
    GgufTensor tensor;
    tensor.name = std::string(text().substr(0, kMaxNameBytes));
    const std::string what = fmt::format("tensor '{}'", tensor.name.substr(0, 200));
    const auto dims = number<uint32_t>();
    if (dims > kMaxGgufDims)
      return invalid_argument("{}: {} dimensions, at most {} are allowed", what, dims,
                              kMaxGgufDims);
    for (uint32_t i = 0; i < dims; ++i) {
      const auto size = number<int64_t>();
      if (size < 0) return invalid_argument("{}: a size is out of range", what);
      tensor.shape.insert(tensor.shape.begin(), size);
    }
    tensor.type = number<uint32_t>();
    tensor.offset = number<uint64_t>();
    if (is_cut_) return cut(what);
    if (!names_.insert(tensor.name).second) return invalid_argument("{}: is there twice", what);
    out_.tensors.push_back(std::move(tensor));
    return ok();
  }

  std::span<const std::byte> file_;
  uint64_t at_ = 0, num_items_ = 0;
  bool is_cut_ = false;
  Gguf out_;
  std::set<std::string, std::less<>> names_;
};

// "NAME-00001-of-00003.gguf".
struct PartName {
  std::string prefix;  // "NAME"
  uint32_t number = 0, count = 0;

  std::string of_part(uint32_t index) const {
    return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, index + 1, count);
  }
};
std::optional<PartName> part_name(std::string_view file) {
  constexpr std::string_view kEnd = "-00001-of-00001.gguf";
  if (file.size() < kEnd.size()) return {};
  PartName name{.prefix = std::string(file.substr(0, file.size() - kEnd.size()))};
  const std::string_view end = file.substr(name.prefix.size());
  std::from_chars(end.data() + 1, end.data() + 6, name.number);
  std::from_chars(end.data() + 10, end.data() + 15, name.count);
  const bool is_part =
      name.number >= 1 && name.number <= name.count && name.of_part(name.number - 1) == file;
  return is_part ? std::optional(std::move(name)) : std::nullopt;
}

// The first files of the models in a folder that has no weights of another format.
std::set<std::string> models_in(const std::filesystem::path& dir) {
  std::set<std::string> models;
  std::error_code error;
  for (std::filesystem::directory_iterator it(dir, error), end; !error && it != end;
       it.increment(error)) {
    const std::filesystem::path& file = it->path();
    for (const char* other : {".safetensors", ".bin", ".pt", ".pth", ".engine"})
      if (file.extension() == other) return {};
    const std::string name = file.filename().string();
    // An mmproj file holds a vision encoder, not a language model.
    if (file.extension() != ".gguf" || name.starts_with("mmproj")) continue;
    const std::optional<PartName> part = part_name(name);
    models.insert(part ? part->of_part(0) : name);
  }
  return models;
}

}  // namespace

StatusOr<Gguf> parse_gguf(std::span<const std::byte> file) { return GgufReader(file).run(); }

StatusOr<std::vector<std::filesystem::path>> gguf_files(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path file = path;
  if (std::filesystem::is_directory(path, error)) {
    const std::set<std::string> models = models_in(path);
    if (models.empty()) return not_found("{}: has no GGUF file", path.string());
    if (models.size() > 1)
      return invalid_argument("{}: has several GGUF models: {}; name one of them", path.string(),
                              fmt::join(models, ", "));
    file = path / *models.begin();
  }
  const std::optional<PartName> name = part_name(file.filename().string());
  std::vector<std::filesystem::path> files;
  if (!name) {
    files.push_back(std::move(file));
    return files;
  }
  for (uint32_t i = 0; i < name->count; ++i) {
    files.push_back(file.parent_path() / name->of_part(i));
    if (!std::filesystem::exists(files.back(), error))
      return not_found("{}: is missing; {} is one of {} parts of a model", files.back().string(),
                       file.filename().string(), name->count);
  }
  return files;
}

StatusOr<std::vector<GgufPart>> open_gguf_model(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const auto files, gguf_files(path));
  std::vector<GgufPart> parts;
  uint64_t tensors = 0;
  for (const std::filesystem::path& file : files) {
    ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(file));
    StatusOr<Gguf> gguf = parse_gguf(mapped.bytes());
    if (!gguf.ok()) return annotate(gguf.status(), file.string());
    tensors += gguf->tensors.size();
    parts.push_back({file, std::move(mapped), *std::move(gguf)});
  }
  const uint64_t count = parts.size();
  for (uint64_t i = 0; i < count; ++i) {
    // The keys may be absent where the model is one file.
    const auto check = [&](const char* key, uint64_t wanted, bool is_needed) {
      const json::value* value = parts[i].gguf.metadata.if_contains(key);
      if (value ? *value == json::value(wanted) : !is_needed) return ok();
      return invalid_argument("{}: key '{}': {} is not {}; the files are {} of {} tensors in all",
                              parts[i].path.string(), key,
                              value ? json::serialize(*value).substr(0, 40) : "absent", wanted,
                              count, tensors);
    };
    const json::value* parts_said = parts[i].gguf.metadata.if_contains("split.count");
    const bool is_alone = count == 1 && parts_said && *parts_said == json::value(0);
    if (!is_alone) RETURN_IF_ERROR(check("split.count", count, count > 1));
    RETURN_IF_ERROR(check("split.no", i, count > 1));
    RETURN_IF_ERROR(check("split.tensors.count", tensors, false));
  }
  return parts;
}

StatusOr<json::object> read_gguf_metadata(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const auto files, gguf_files(path));
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(files.front()));
  StatusOr<Gguf> gguf = parse_gguf(file.bytes());
  if (!gguf.ok()) return annotate(gguf.status(), files.front().string());
  return std::move(gguf->metadata);
}

std::vector<int32_t> gguf_end_ids(const json::object& metadata) {
  constexpr std::string_view kTurnEnds[] = {"<|eot_id|>",    "<|im_end|>", "<|end|>",
                                            "<end_of_turn>", "<EOT>",      "[EOT]"};
  constexpr int64_t kControlToken = 3;  // of tokenizer.ggml.token_type
  const auto array_of = [&](std::string_view key) {
    const json::value* value = metadata.if_contains(key);
    return value ? value->if_array() : nullptr;
  };
  const json::array* tokens = array_of("tokenizer.ggml.tokens");
  const json::array* types = array_of("tokenizer.ggml.token_type");
  const size_t count = tokens ? tokens->size() : kMaxArrayItems;
  std::vector<int32_t> ids;
  const auto add = [&](uint64_t id) {
    if (id < count && std::ranges::find(ids, static_cast<int32_t>(id)) == ids.end())
      ids.push_back(static_cast<int32_t>(id));
  };
  bool has_turn_end = false;
  for (const std::string_view name : {"eos", "eot", "eom"}) {
    const json::value* id = metadata.if_contains(fmt::format("tokenizer.ggml.{}_token_id", name));
    if (!id || !id->is_int64() || id->get_int64() < 0) continue;
    add(static_cast<uint64_t>(id->get_int64()));
    has_turn_end |= name == "eot";
  }
  for (size_t i = 0; tokens && types && i < std::min(count, types->size()) && !has_turn_end; ++i) {
    if ((*types)[i] != json::value(kControlToken)) continue;
    const json::string* text = (*tokens)[i].if_string();
    if (!text || std::ranges::find(kTurnEnds, std::string_view(*text)) == std::end(kTurnEnds))
      continue;
    add(i);
    has_turn_end = true;
  }
  return ids;
}

bool is_gguf_path(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return !models_in(path).empty();
  return path.extension() == ".gguf";
}

}  // namespace nereid
