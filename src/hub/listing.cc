// See listing.h.
#include "hub/listing.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/json.h"
#include "base/nearest.h"
#include "hub/text.h"

namespace nereid::hub {
namespace {

std::string_view text_of(const json::object& object, std::string_view name) {
  const json::value* const value = object.if_contains(name);
  if (!value || !value->is_string()) return {};
  return {value->get_string().data(), value->get_string().size()};
}

std::optional<int64_t> integer_of(const json::object& object, std::string_view name) {
  const json::value* const value = object.if_contains(name);
  if (!value || !value->is_int64()) return std::nullopt;
  return value->get_int64();
}

StatusOr<RemoteFile> parse_file(const json::value& value) {
  const json::object* const entry = value.if_object();
  if (!entry) return invalid_argument("a sibling is no object");
  RemoteFile file{std::string(text_of(*entry, "rfilename")), integer_of(*entry, "size"), {}};
  RETURN_IF_ERROR(check_file_name(file.name));
  const json::value* const lfs = entry->if_contains("lfs");
  if (const json::object* const stored = lfs ? lfs->if_object() : nullptr) {
    // `size` of the entry may be that of the pointer.
    if (const auto size = integer_of(*stored, "size")) file.size = size;
    const std::string_view sha = text_of(*stored, "sha256");
    file.checksum = parse_checksum(sha.empty() ? text_of(*stored, "oid") : sha);
  } else {
    file.checksum = parse_checksum(text_of(*entry, "blobId"));
  }
  const int64_t most = kind_of(file.name) == FileKind::kText ? kMaxTextBytes : kMaxFileBytes;
  if (file.size &&
      (*file.size < 0 || (kind_of(file.name) != FileKind::kOther && *file.size > most)))
    return invalid_argument("file '{}': its size {} is not from 0 to {}", quoted_name(file.name),
                            *file.size, most);
  return file;
}

std::vector<RemoteFile> files_where(const Listing& listing, auto&& takes) {
  std::vector<RemoteFile> out;
  std::ranges::copy_if(listing.files, std::back_inserter(out), takes);
  return out;
}

bool is_at_top(std::string_view name) { return name.find('/') == name.npos; }

// model.safetensors, model-00001-of-00002.safetensors.
bool is_usual_name(std::string_view name) {
  if (name == "model.safetensors") return true;
  return name.starts_with("model-") && name.find("-of-") != name.npos;
}

StatusOr<std::vector<RemoteFile>> gguf_files(const Listing& listing, const std::string& file) {
  std::set<std::string> names;
  for (const RemoteFile& one : listing.files)
    if (kind_of(one.name) == FileKind::kGguf) names.insert(one.name);
  if (names.empty()) return not_found("the model has no .gguf files");
  if (!names.contains(file))
    return not_found("the model has no file '{}'.{} There are: {}", quoted_name(file),
                     did_you_mean(file, names), fmt::join(names, ", "));
  const std::optional<Parts> parts = parts_of(file);
  auto files = files_where(listing, [&](const RemoteFile& one) {
    if (!parts) return one.name == file;
    const auto other = parts_of(one.name);
    return other && other->begin == parts->begin && other->count == parts->count;
  });
  if (parts && files.size() != static_cast<size_t>(parts->count))
    return not_found("the model has {} of the {} parts of '{}'", files.size(), parts->count,
                     quoted_name(file));
  return files;
}

}  // namespace

StatusOr<Listing> parse_listing(std::string_view text) {
  ASSIGN_OR_RETURN(const json::value parsed, parse_json(text, 32));
  const json::object* const object = parsed.if_object();
  const json::value* const siblings = object ? object->if_contains("siblings") : nullptr;
  if (!siblings || !siblings->is_array())
    return invalid_argument("field 'siblings': expected a list of files");
  Listing listing{std::string(text_of(*object, "sha")), {}};
  if (!is_commit(listing.commit))
    return invalid_argument("field 'sha': '{}' is no commit (40 hexadecimal digits)",
                            quoted_name(listing.commit));
  const json::array& entries = siblings->get_array();
  if (entries.size() > kMaxListedFiles)
    return invalid_argument("field 'siblings': {} files; allowed are {}", entries.size(),
                            kMaxListedFiles);
  std::set<std::string> names;
  for (const json::value& entry : entries) {
    ASSIGN_OR_RETURN(RemoteFile file, parse_file(entry));
    if (!names.insert(file.name).second)
      return invalid_argument("file '{}' is listed twice", quoted_name(file.name));
    listing.files.push_back(std::move(file));
  }
  return listing;
}

StatusOr<std::vector<RemoteFile>> first_files(const Listing& listing, const ModelName& model) {
  if (!model.file.empty()) return gguf_files(listing, model.file);
  const auto has_weights = [](const RemoteFile& file) {
    return kind_of(file.name) == FileKind::kSafetensors && is_at_top(file.name);
  };
  if (std::ranges::none_of(listing.files, has_weights)) {
    std::vector<std::string> ggufs, pickles;
    for (const RemoteFile& file : listing.files) {
      if (kind_of(file.name) == FileKind::kGguf) ggufs.push_back(file.name);
      if (file.name.ends_with(".bin") || file.name.ends_with(".pt") || file.name.ends_with(".pth"))
        pickles.push_back(file.name);
    }
    if (!ggufs.empty())
      return not_found("the model has no safetensors; name one of its .gguf files behind ':': {}",
                       fmt::join(ggufs, ", "));
    if (!pickles.empty())
      return not_found(
          "the model has its weights as pickles alone ({}), which are not taken: they can run "
          "code; look for a revision with safetensors",
          quoted_name(pickles.front()));
    return not_found("the model has no weights (*.safetensors)");
  }
  return files_where(listing,
                     [](const RemoteFile& file) { return kind_of(file.name) == FileKind::kText; });
}

StatusOr<std::vector<RemoteFile>> weight_files(const Listing& listing, std::string_view index) {
  auto all = files_where(listing, [](const RemoteFile& file) {
    return kind_of(file.name) == FileKind::kSafetensors && is_at_top(file.name);
  });
  if (index.empty()) {
    auto usual = files_where(listing, [](const RemoteFile& file) {
      return kind_of(file.name) == FileKind::kSafetensors && is_at_top(file.name) &&
             is_usual_name(file.name);
    });
    return usual.empty() ? all : usual;
  }
  ASSIGN_OR_RETURN(const json::value parsed, parse_json(index, 32));
  const json::object* const object = parsed.if_object();
  const json::value* const map = object ? object->if_contains("weight_map") : nullptr;
  if (!map || !map->is_object())
    return invalid_argument("{}: field 'weight_map': expected an object", kIndexFile);
  std::set<std::string> wanted;
  for (const auto& [tensor, file] : map->get_object()) {
    if (!file.is_string())
      return invalid_argument("{}: tensor '{}': expected a file's name", kIndexFile,
                              quoted_name({tensor.data(), tensor.size()}));
    wanted.emplace(file.get_string().data(), file.get_string().size());
  }
  std::vector<RemoteFile> out;
  for (const RemoteFile& file : listing.files)
    if (wanted.erase(file.name) > 0 && kind_of(file.name) == FileKind::kSafetensors)
      out.push_back(file);
  if (!wanted.empty())
    return not_found("{}: the model has no file '{}'", kIndexFile, quoted_name(*wanted.begin()));
  if (out.empty()) return invalid_argument("{}: names no safetensors", kIndexFile);
  return out;
}

std::optional<Parts> parts_of(std::string_view file) {
  constexpr size_t kDigits = 5;  // "-00001-of-00005.gguf"
  constexpr std::string_view kEnd = ".gguf", kOf = "-of-";
  constexpr size_t kTail = 1 + kDigits + kOf.size() + kDigits + kEnd.size();
  if (file.size() <= kTail || !file.ends_with(kEnd)) return std::nullopt;
  const std::string_view tail = file.substr(file.size() - kTail);
  const auto part = number_in(tail.substr(1, kDigits)),
             count = number_in(tail.substr(1 + kDigits + kOf.size(), kDigits));
  if (tail.front() != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf || !part || !count ||
      *part < 1 || *part > *count)
    return std::nullopt;
  return Parts{std::string(file.substr(0, file.size() - kTail)), static_cast<int>(*count)};
}

}  // namespace nereid::hub
