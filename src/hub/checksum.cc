// See checksum.h.
#include "hub/checksum.h"
#include "hub/text.h"

#include <absl/strings/ascii.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>

namespace nereid::hub {

std::string_view name_of(ChecksumKind kind) {
  return kind == ChecksumKind::kSha256 ? "sha256" : "git_blob";
}

std::optional<Checksum> parse_checksum(std::string_view text) {
  if (text.starts_with("W/")) text.remove_prefix(2);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"')
    text = text.substr(1, text.size() - 2);
  if (text.starts_with("sha256:")) text.remove_prefix(7);
  if ((text.size() != 64 && text.size() != 40) || !std::ranges::all_of(text, [](char c) {
        return absl::ascii_isxdigit(static_cast<unsigned char>(c));
      }))
    return std::nullopt;
  return Checksum{text.size() == 64 ? ChecksumKind::kSha256 : ChecksumKind::kGitBlob,
                  lowered(text)};
}

void Hasher::Deleter::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

StatusOr<Hasher> Hasher::create(ChecksumKind kind, int64_t size) {
  Hasher hasher(EVP_MD_CTX_new());
  const EVP_MD* const digest = kind == ChecksumKind::kSha256 ? EVP_sha256() : EVP_sha1();
  if (!hasher.context_ || EVP_DigestInit_ex(hasher.context_.get(), digest, nullptr) != 1)
    return internal_error("OpenSSL offers no {}", name_of(kind));
  if (kind == ChecksumKind::kGitBlob) {
    const std::string head = fmt::format("blob {}", size);
    hasher.update({head.c_str(), head.size() + 1});
  }
  return hasher;
}

void Hasher::update(std::string_view bytes) {
  EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
}

std::string Hasher::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  EVP_DigestFinal_ex(context_.get(), digest.data(), &size);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

}  // namespace nereid::hub
