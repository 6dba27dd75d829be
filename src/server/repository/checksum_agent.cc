// The built-in repository agent "checksum": refuses to load a model whose files do not match the
// digests of its configuration.
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>

#include "server/api/error.h"
#include "server/repository/repo_agent.h"

namespace nereid::server {
namespace {

// Lower-case hexadecimal.
StatusOr<std::string> md5_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return not_found("cannot read {}", path.string());
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   &EVP_MD_CTX_free);
  if (context == nullptr || EVP_DigestInit_ex(context.get(), EVP_md5(), nullptr) != 1) {
    return unsupported("MD5 is not available in this process");
  }
  std::array<char, 64 << 10> block;
  while (file.read(block.data(), block.size()) || file.gcount() > 0) {
    EVP_DigestUpdate(context.get(), block.data(), static_cast<size_t>(file.gcount()));
  }
  if (file.bad()) return internal_error("cannot read {}", path.string());
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned size = 0;
  if (EVP_DigestFinal_ex(context.get(), digest.data(), &size) != 1) {
    return internal_error("MD5 of {} failed", path.string());
  }
  std::string out;
  for (unsigned i = 0; i < size; ++i) out += fmt::format("{:02x}", digest[i]);
  return out;
}

Status check_file(const std::filesystem::path& dir, const std::string& key, std::string expected) {
  constexpr std::string_view kPrefix = "MD5:";
  if (!std::string_view(key).starts_with(kPrefix)) {
    return invalid_argument("Unexpected parameter '{}', allowed is MD5:<file>", key);
  }
  const std::filesystem::path name = key.substr(kPrefix.size());
  const bool escapes = name.is_absolute() ||
                       std::any_of(name.begin(), name.end(), [](auto& p) { return p == ".."; });
  if (escapes || name.empty()) {
    return invalid_argument("'{}' is not a file below the model's folder", name.string());
  }
  ASSIGN_OR_RETURN(const std::string actual, md5_of(dir / name));
  std::transform(expected.begin(), expected.end(), expected.begin(),
                 [](char c) { return c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c; });
  if (actual == expected) return ok();
  return invalid_argument("Mismatched MD5 hash for file {}, expect: {}, got: {}", name.string(),
                          expected, actual);
}

TRITONSERVER_Error* act(TRITONREPOAGENT_Agent*, TRITONREPOAGENT_AgentModel* model,
                        const TRITONREPOAGENT_ActionType action) {
  if (action != TRITONREPOAGENT_ACTION_LOAD) return nullptr;
  const auto& self = *reinterpret_cast<AgentModel*>(model);
  for (const auto& [key, value] : self.parameters()) {
    if (Status s = check_file(self.location(), key, value); !s.ok()) return to_error(s);
  }
  return nullptr;
}

}  // namespace

const AgentFunctions& checksum_agent_functions() {
  static const AgentFunctions functions{nullptr, nullptr, nullptr, nullptr, act};
  return functions;
}

}  // namespace nereid::server
