// How far away an address is: a hub must not send this machine to places that only it can reach.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

struct sockaddr;

namespace nereid::hub {

// In the order of trust: who is at a place may redirect to places of the same reach and before.
enum class Reach : uint8_t {
  kPublic,
  kPrivate,    // networks of an organisation (RFC 1918, RFC 4193, RFC 6598 and the like)
  kLoopback,   // this machine
  kLinkLocal,  // neighbours on the wire, metadata services of clouds, multicast, reserved
};

std::string_view name_of(Reach reach);

// IPv4 addresses inside IPv6 ones (mapped, NAT64, 6to4) have their own reach.
Reach reach_of(const sockaddr& address);

// The reach of a host that is written as an address, brackets allowed; nullopt: a name.
std::optional<Reach> reach_of_literal(const std::string& host);

}  // namespace nereid::hub
