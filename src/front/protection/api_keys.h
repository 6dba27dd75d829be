// API keys and their rights: kept as hashes, compared in constant time, read again when
// their file changes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "front/protection/key_limits.h"

namespace nereid::front {

// Constant-time comparison; the lengths are no secret.
bool same_secret(std::string_view a, std::string_view b);

class ApiKeys {
 public:
  // The owner of a key that was presented.
  struct Caller {
    KeyLimits limits;
    bool is_admin = false;
    uint64_t tenant = 0;          // another number for each key
    std::shared_ptr<KeyUse> use;  // the same one for all requests of the key
  };

  // `keys` are texts. `file` ("": none) has one on each line, as text without blanks or as
  // "sha256:" and 64 hex digits, and behind a blank its limits (parse_key_limits) and "admin" for
  // an administrator's, like `admin_keys`. A line of '*' has the limits of keys without any. Blank
  // lines and those that begin with '#' are skipped. InvalidArgument: no key at all, an empty one,
  // a bad line (with its number), or an unreadable file.
  static StatusOr<std::shared_ptr<ApiKeys>> create(const std::vector<std::string>& keys,
                                                   const std::filesystem::path& file,
                                                   const std::vector<std::string>& admin_keys = {});

  // Whether all callers need a key; else only administrators do.
  bool are_for_callers() const { return are_for_callers_; }

  // Any thread. Checks at most once a second whether the file has changed; an unreadable file
  // leaves the keys unchanged. nullopt: an unknown key.
  std::optional<Caller> find(std::string_view key);

  // SHA-256, 32 bytes, an id for callers where the key itself is not to be kept.
  static std::string fingerprint(std::string_view key);

  // The key of "Authorization: Bearer KEY"; "" for another header.
  static std::string_view bearer(std::string_view authorization);

 private:
  using Hash = std::array<unsigned char, 32>;
  struct Known {
    Hash hash{};
    KeyLimits limits;
    bool is_admin = false;
  };
  struct Contents {  // contents of the file
    std::vector<Known> keys;
    KeyLimits others;  // of keys without limits of their own
  };
  static Hash hash_of(std::string_view key);
  static StatusOr<Hash> read_key(std::string_view text);
  static StatusOr<Contents> read(const std::filesystem::path& file);
  void reload_if_changed();

  std::vector<Known> given_;
  bool are_for_callers_ = false;
  std::filesystem::path file_;
  std::atomic<int64_t> next_look_ns_{0};
  std::mutex mutex_;
  std::filesystem::file_time_type read_time_;
  std::shared_ptr<const Contents> from_file_;
  std::map<Hash, std::shared_ptr<KeyUse>> uses_;  // of keys presented so far
};

}  // namespace nereid::front
