#include "io/zip.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace nereid::io {
namespace {

constexpr uint64_t kMaxZipEntries = 1'000'000;
constexpr uint64_t kEndBytes = 22, kEntryBytes = 46, kLocalBytes = 30;
constexpr uint32_t kEndMark = 0x06054b50, kEnd64Mark = 0x06064b50, kLocator64Mark = 0x07064b50;
constexpr uint32_t kEntryMark = 0x02014b50, kLocalMark = 0x04034b50;
constexpr uint32_t kIn64 = 0xffffffff;

// Little-endian numbers by position; 0 outside the file, which fails later checks.
class ZipBytes {
 public:
  explicit ZipBytes(std::span<const std::byte> file) : file_(file) {}

  uint64_t size() const { return file_.size(); }
  bool has(uint64_t at, uint64_t count) const {
    return at <= file_.size() && count <= file_.size() - at;
  }
  uint64_t number(uint64_t at, size_t bytes) const {
    uint64_t value = 0;
    if (has(at, bytes)) std::memcpy(&value, file_.data() + at, bytes);
    return value;
  }
  std::span<const std::byte> part(uint64_t at, uint64_t count) const {
    return file_.subspan(at, count);
  }
  std::string_view text(uint64_t at, uint64_t count) const {
    return {reinterpret_cast<const char*>(file_.data()) + at, count};
  }

 private:
  std::span<const std::byte> file_;
};

struct ZipDirectory {
  uint64_t begin = 0, bytes = 0, count = 0;
};

StatusOr<ZipDirectory> find_directory(const ZipBytes& file) {
  constexpr uint64_t kMaxComment = 65535;
  for (uint64_t back = kEndBytes; back <= std::min(file.size(), kEndBytes + kMaxComment); ++back) {
    const uint64_t at = file.size() - back;
    if (file.number(at, 4) != kEndMark) continue;
    ZipDirectory out = {file.number(at + 16, 4), file.number(at + 12, 4), file.number(at + 10, 2)};
    if (at >= 20 && file.number(at - 20, 4) == kLocator64Mark) {
      const uint64_t end = file.number(at - 12, 8);
      if (file.number(end, 4) != kEnd64Mark) return invalid_argument("zip64: its end is not there");
      out = {file.number(end + 48, 8), file.number(end + 40, 8), file.number(end + 32, 8)};
    }
    if (!file.has(out.begin, out.bytes) || out.count > kMaxZipEntries ||
        out.count * kEntryBytes > out.bytes)
      return invalid_argument(
          "zip directory of {} files in {} bytes at {} does not fit in {} bytes", out.count,
          out.bytes, out.begin, file.size());
    return out;
  }
  return invalid_argument("is not a zip archive, or its end is missing");
}

// The 64-bit values of an entry's saturated 32-bit fields, in the order of `wanted`.
bool read_extra(const ZipBytes& file, uint64_t at, uint64_t end,
                std::initializer_list<uint64_t*> wanted) {
  while (at + 4 <= end) {
    const uint64_t kind = file.number(at, 2), bytes = file.number(at + 2, 2);
    if (kind == 1) {
      uint64_t field = at + 4;
      for (uint64_t* value : wanted) {
        if (*value != kIn64) continue;
        if (field + 8 > std::min(at + 4 + bytes, end)) return false;
        *value = file.number(field, 8);
        field += 8;
      }
      return true;
    }
    at += 4 + bytes;
  }
  return std::ranges::all_of(wanted, [](const uint64_t* value) { return *value != kIn64; });
}

// Reads the entry at `at` and moves `at` behind it.
StatusOr<ZipEntry> read_entry(const ZipBytes& file, uint64_t end, uint64_t& at) {
  if (at + kEntryBytes > end || file.number(at, 4) != kEntryMark)
    return invalid_argument("zip directory is cut off");
  const uint64_t flags = file.number(at + 8, 2), method = file.number(at + 10, 2);
  uint64_t stored = file.number(at + 20, 4), size = file.number(at + 24, 4);
  uint64_t local = file.number(at + 42, 4);
  const uint64_t name_bytes = file.number(at + 28, 2), extra = file.number(at + 30, 2);
  const uint64_t comment = file.number(at + 32, 2), name_at = at + kEntryBytes;
  at = name_at + name_bytes + extra + comment;
  if (at > end) return invalid_argument("zip directory is cut off");
  ZipEntry entry;
  entry.name = file.text(name_at, name_bytes);
  const std::string_view shown = entry.name.substr(0, 200);
  if (!read_extra(file, name_at + name_bytes, name_at + name_bytes + extra,
                  {&size, &stored, &local}))
    return invalid_argument("zip file '{}': its size is missing", shown);
  if (method != 0 || (flags & 1) != 0 || stored != size)
    return invalid_argument("zip file '{}': is compressed or encrypted; only stored ones are read",
                            shown);
  if (!file.has(local, kLocalBytes) || file.number(local, 4) != kLocalMark)
    return invalid_argument("zip file '{}': is not where the directory says", shown);
  const uint64_t data =
      local + kLocalBytes + file.number(local + 26, 2) + file.number(local + 28, 2);
  if (!file.has(data, size))
    return invalid_argument("zip file '{}': ends behind the file's {} bytes", shown, file.size());
  entry.data = file.part(data, size);
  return entry;
}

}  // namespace

StatusOr<std::vector<ZipEntry>> parse_zip(std::span<const std::byte> bytes) {
  const ZipBytes file(bytes);
  ASSIGN_OR_RETURN(const ZipDirectory directory, find_directory(file));
  std::vector<ZipEntry> entries;
  uint64_t at = directory.begin;
  for (uint64_t i = 0; i < directory.count; ++i) {
    ASSIGN_OR_RETURN(entries.emplace_back(),
                     read_entry(file, directory.begin + directory.bytes, at));
  }
  std::sort(entries.begin(), entries.end(), [](const ZipEntry& a, const ZipEntry& b) {
    return std::pair(a.data.data(), a.data.size()) < std::pair(b.data.data(), b.data.size());
  });
  for (size_t i = 1; i < entries.size(); ++i)
    if (entries[i - 1].data.data() + entries[i - 1].data.size() > entries[i].data.data())
      return invalid_argument("zip file '{}' overlaps '{}'", entries[i].name.substr(0, 200),
                              entries[i - 1].name.substr(0, 200));
  return entries;
}

}  // namespace nereid::io
