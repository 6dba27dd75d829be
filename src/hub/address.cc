// See address.h.
#include "hub/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace nereid::hub {
namespace {

struct Network {
  uint32_t address;
  int bits;
  Reach reach;
};

// The registry of special addresses (RFC 6890 and its successors); the rest is public.
constexpr std::array kNetworks = {
    Network{0x00000000, 8, Reach::kLoopback},    // 0.0.0.0/8: this host
    Network{0x0a000000, 8, Reach::kPrivate},     // 10.0.0.0/8
    Network{0x64400000, 10, Reach::kPrivate},    // 100.64.0.0/10
    Network{0x7f000000, 8, Reach::kLoopback},    // 127.0.0.0/8
    Network{0xa9fe0000, 16, Reach::kLinkLocal},  // 169.254.0.0/16
    Network{0xac100000, 12, Reach::kPrivate},    // 172.16.0.0/12
    Network{0xc0000000, 24, Reach::kPrivate},    // 192.0.0.0/24
    Network{0xc0a80000, 16, Reach::kPrivate},    // 192.168.0.0/16
    Network{0xc6120000, 15, Reach::kPrivate},    // 198.18.0.0/15
    Network{0xe0000000, 3, Reach::kLinkLocal},   // 224.0.0.0/3: multicast, reserved
};

Reach reach_of_ipv4(uint32_t address) {
  for (const Network& network : kNetworks)
    if (((address ^ network.address) >> (32 - network.bits)) == 0) return network.reach;
  return Reach::kPublic;
}

uint32_t ipv4_at(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

Reach reach_of_ipv6(const in6_addr& address) {
  const uint8_t* const bytes = address.s6_addr;
  const auto is_zero = [&](int begin, int end) {
    return std::all_of(bytes + begin, bytes + end, [](uint8_t byte) { return byte == 0; });
  };
  if (is_zero(0, 15) && bytes[15] <= 1) return Reach::kLoopback;  // :: and ::1
  if (is_zero(0, 10) && bytes[10] == 0xff && bytes[11] == 0xff)
    return reach_of_ipv4(ipv4_at(bytes + 12));
  if (is_zero(0, 12)) return reach_of_ipv4(ipv4_at(bytes + 12));  // IPv4-compatible
  constexpr uint8_t kNat64[] = {0x00, 0x64, 0xff, 0x9b};
  if (std::equal(kNat64, kNat64 + 4, bytes)) return reach_of_ipv4(ipv4_at(bytes + 12));
  if (bytes[0] == 0x20 && bytes[1] == 0x02) return reach_of_ipv4(ipv4_at(bytes + 2));  // 6to4
  if ((bytes[0] & 0xfe) == 0xfc) return Reach::kPrivate;
  if (bytes[0] >= 0xfe) return Reach::kLinkLocal;  // fe80::/10, fec0::/10, ff00::/8
  return Reach::kPublic;
}

}  // namespace

std::string_view name_of(Reach reach) {
  constexpr std::array<std::string_view, 4> kNames = {"public", "private", "loopback",
                                                      "link-local or reserved"};
  return kNames[static_cast<size_t>(reach)];
}

Reach reach_of(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof(in));
    return reach_of_ipv4(ntohl(in.sin_addr.s_addr));
  }
  if (address.sa_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, &address, sizeof(in));
    return reach_of_ipv6(in.sin6_addr);
  }
  return Reach::kLinkLocal;  // no address of the internet
}

std::optional<Reach> reach_of_literal(const std::string& host) {
  std::string text = host;
  if (text.size() > 2 && text.front() == '[' && text.back() == ']')
    text = text.substr(1, text.size() - 2);
  text = text.substr(0, text.find('%'));
  in_addr v4{};
  if (::inet_aton(text.c_str(), &v4) != 0) return reach_of_ipv4(ntohl(v4.s_addr));  // 127.1, too
  in6_addr v6{};
  if (::inet_pton(AF_INET6, text.c_str(), &v6) == 1) return reach_of_ipv6(v6);
  return std::nullopt;
}

}  // namespace nereid::hub
