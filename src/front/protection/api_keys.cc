// API keys; see api_keys.h.
#include "front/protection/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

namespace nereid::front {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20;
constexpr int64_t kLookIntervalNs = 1'000'000'000;

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

std::string_view trimmed(std::string_view line) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t begin = line.find_first_not_of(kBlanks);
  if (begin == line.npos) return {};
  return line.substr(begin, line.find_last_not_of(kBlanks) + 1 - begin);
}

// Removes the word "admin" from a line; whether it was there.
bool take_admin(std::string& words) {
  constexpr std::string_view kWord = "admin";
  for (size_t at = 0; (at = words.find(kWord, at)) != words.npos; ++at) {
    const size_t end = at + kWord.size();
    const bool is_word = (at == 0 || words[at - 1] == ' ' || words[at - 1] == '\t') &&
                         (end == words.size() || words[end] == ' ' || words[end] == '\t');
    if (!is_word) continue;
    words.erase(at, kWord.size());
    return true;
  }
  return false;
}

}  // namespace

bool same_secret(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

ApiKeys::Hash ApiKeys::hash_of(std::string_view key) {
  Hash hash;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), hash.data());
  return hash;
}

StatusOr<ApiKeys::Hash> ApiKeys::read_key(std::string_view text) {
  constexpr std::string_view kHashed = "sha256:";
  if (!text.starts_with(kHashed)) return hash_of(text);
  const std::string_view digits = text.substr(kHashed.size());
  Hash hash{};
  bool is_good = digits.size() == 2 * hash.size();
  for (size_t i = 0; is_good && i < digits.size(); ++i) {
    const int digit = digit_of(digits[i]);
    is_good = digit >= 0;
    hash[i / 2] = static_cast<unsigned char>(hash[i / 2] << 4 | (digit & 15));
  }
  if (!is_good) return invalid_argument("'sha256:' and 64 hexadecimal digits are expected");
  return hash;
}

StatusOr<ApiKeys::Contents> ApiKeys::read(const std::filesystem::path& file) {
  ASSIGN_OR_RETURN(const std::string text, read_file(file, kMaxFileBytes));
  Contents out;
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = trimmed(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (line.empty() || line.front() == '#') continue;
    const std::string_view key = line.substr(0, line.find_first_of(" \t"));
    std::string words(line.substr(key.size()));
    const bool is_admin = take_admin(words);
    const auto limits = parse_key_limits(words);
    const auto hash = read_key(key);
    const Status may_be_admin = is_admin && key == "*"
                                    ? invalid_argument("'*' stands for all keys, not for 'admin'")
                                    : ok();
    for (const Status& status : {limits.status(), hash.status(), may_be_admin})
      if (!status.ok()) return annotate(status, fmt::format("{}: line {}", file.string(), number));
    if (key == "*")
      out.others = *limits;
    else
      out.keys.push_back({*hash, *limits, is_admin});
  }
  return out;
}

StatusOr<std::shared_ptr<ApiKeys>> ApiKeys::create(const std::vector<std::string>& keys,
                                                   const std::filesystem::path& file,
                                                   const std::vector<std::string>& admin_keys) {
  auto out = std::make_shared<ApiKeys>();
  out->are_for_callers_ = !keys.empty() || !file.empty();
  for (const auto* list : {&keys, &admin_keys})
    for (const std::string& key : *list) {
      if (key.empty()) return invalid_argument("an API key must not be empty");
      out->given_.push_back({hash_of(key), {}, list == &admin_keys});
    }
  out->file_ = file;
  if (!file.empty()) {
    std::error_code error;
    out->read_time_ = std::filesystem::last_write_time(file, error);
    auto contents = read(file);
    if (!contents.ok()) return invalid_argument("API keys: {}", message(contents.status()));
    out->from_file_ = std::make_shared<const Contents>(*std::move(contents));
  }
  if (out->given_.empty() && (out->from_file_ == nullptr || out->from_file_->keys.empty())) {
    return invalid_argument("API keys: {} has none", file.string());
  }
  return out;
}

void ApiKeys::reload_if_changed() {
  if (file_.empty()) return;
  const auto time_ns = static_cast<int64_t>(now_ns());
  int64_t next = next_look_ns_.load();
  if (time_ns < next || !next_look_ns_.compare_exchange_strong(next, time_ns + kLookIntervalNs)) {
    return;
  }
  std::error_code error;
  const auto time = std::filesystem::last_write_time(file_, error);
  std::lock_guard lock(mutex_);
  if (error || time == read_time_) return;
  read_time_ = time;
  auto contents = read(file_);
  if (contents.ok()) {
    log_info("{} API keys read from {}", contents->keys.size(), file_.string());
    from_file_ = std::make_shared<const Contents>(*std::move(contents));
  } else {
    log_error("API keys stay as they were: {}", message(contents.status()));
  }
}

std::optional<ApiKeys::Caller> ApiKeys::find(std::string_view key) {
  reload_if_changed();
  std::shared_ptr<const Contents> from_file;
  {
    std::lock_guard lock(mutex_);
    from_file = from_file_;
  }
  const Hash hash = hash_of(key);
  const Known* found = nullptr;
  bool is_admin = false;
  const auto look = [&](const std::vector<Known>& all) {
    for (const Known& known : all)
      if (CRYPTO_memcmp(known.hash.data(), hash.data(), hash.size()) == 0) {
        found = &known;
        is_admin = is_admin || known.is_admin;
      }
  };
  look(given_);
  if (from_file != nullptr) look(from_file->keys);
  if (found == nullptr || key.empty()) return std::nullopt;
  Caller out{.limits = found->limits, .is_admin = is_admin, .use = nullptr};
  std::memcpy(&out.tenant, hash.data(), sizeof(out.tenant));
  if (from_file != nullptr && !out.limits.any()) out.limits = from_file->others;
  std::lock_guard lock(mutex_);
  std::shared_ptr<KeyUse>& use = uses_[hash];
  if (use == nullptr) use = std::make_shared<KeyUse>();
  out.use = use;
  return out;
}

std::string ApiKeys::fingerprint(std::string_view key) {
  const Hash hash = hash_of(key);
  return {hash.begin(), hash.end()};
}

std::string_view ApiKeys::bearer(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() < kScheme.size()) return {};
  for (size_t i = 0; i < kScheme.size(); ++i) {
    const char c = authorization[i];
    if ((c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) != kScheme[i]) return {};
  }
  return trimmed(authorization.substr(kScheme.size()));
}

}  // namespace nereid::front
