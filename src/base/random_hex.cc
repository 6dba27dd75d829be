#include "base/random_hex.h"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstdint>

#include <fmt/format.h>

#include "base/check.h"

namespace nereid {

std::string random_hex() {
  std::array<uint64_t, 2> bits;
  ssize_t n = 0;
  do n = ::getrandom(bits.data(), sizeof(bits), 0);
  while (n < 0 && errno == EINTR);  // up to 256 bytes are never delivered in part
  NEREID_CHECK(n == sizeof(bits));
  return fmt::format("{:016x}{:016x}", bits[0], bits[1]);
}

}  // namespace nereid
