// Checksums by which a hub names the content of files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

struct evp_md_ctx_st;

namespace nereid::hub {

enum class ChecksumKind : uint8_t {
  kSha256,   // of the content: files in large file storage (Git LFS)
  kGitBlob,  // Git's name of a blob: SHA-1 of "blob SIZE\0" and the content
};

struct Checksum {
  ChecksumKind kind = ChecksumKind::kSha256;
  std::string hex;  // lower case

  bool operator==(const Checksum&) const = default;
};

std::string_view name_of(ChecksumKind kind);

// A checksum of an ETag or of a listing: 64 hexadecimal digits are SHA-256, 40 a Git blob's; with
// or without quotes, "W/" and "sha256:". nullopt: neither.
std::optional<Checksum> parse_checksum(std::string_view text);

// The checksum of bytes that arrive in pieces.
class Hasher {
 public:
  // `size`: of the whole file, which Git's name contains.
  static StatusOr<Hasher> create(ChecksumKind kind, int64_t size);
  void update(std::string_view bytes);
  // Once, at the end: lower-case hexadecimal digits.
  std::string finish();

 private:
  struct Deleter {
    void operator()(evp_md_ctx_st* context) const;
  };
  explicit Hasher(evp_md_ctx_st* context) : context_(context) {}
  std::unique_ptr<evp_md_ctx_st, Deleter> context_;
};

}  // namespace nereid::hub
