// Connections between the processes of several hosts: TCP, optionally TLS, a first message with a
// token and the version, and frames of JSON.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/json.h"
#include "base/status.h"
#include "comm/shared_memory.h"

namespace nereid::runtime {

struct HostAddress {
  std::string host;  // a name, IPv4 or IPv6 without brackets
  uint16_t port = 0;
};
// "HOST:PORT", "[IPV6]:PORT". InvalidArgument: anything else.
StatusOr<HostAddress> parse_host_address(std::string_view text);
std::string text_of(const HostAddress& address);

// PEM files; all empty: no TLS. Both sides show a certificate that `root` has signed.
struct HostTls {
  std::filesystem::path cert, key, root;
  bool is_on() const { return !cert.empty(); }
};

// The secrets that all processes of a group share.
struct HostSecrets {
  std::string token;
  HostTls tls;
};
// The token is the file's text without blanks at its end, of 16 to 4096 bytes. InvalidArgument: it
// has another size, or some but not all TLS files are named. NotFound: no such file.
StatusOr<HostSecrets> read_host_secrets(const std::filesystem::path& token_file, HostTls tls);

// A listening socket; port 0: any free one. Unavailable with the system's reason.
StatusOr<comm::Descriptor> listen_at(const HostAddress& address);
uint16_t local_port(const comm::Descriptor& socket);
// "10.0.0.7"
StatusOr<std::string> remote_host(const comm::Descriptor& socket);

// Connects, retried until `deadline`, shows token and version with the fields of `hello`, and takes
// the answer. DeadlineExceeded: nothing listens there. PermissionDenied, FailedPrecondition, ...:
// the other side's refusal. Unavailable: the connection.
struct HostConnection {
  comm::Descriptor socket;
  json::object message;  // the answer; of an accepted connection the hello
  std::string host;      // of the other side
};
StatusOr<HostConnection> dial_host(const HostAddress& address, const HostSecrets& secrets,
                                   json::object hello, Time deadline);
// The next connection of a listener. Blocks.
StatusOr<comm::Descriptor> accept_socket(const comm::Descriptor& listener);
// Takes the hello of an accepted connection, within seconds. A wrong one is answered with the
// reason: PermissionDenied: the token; FailedPrecondition: the version. The caller answers a good
// one by send_frame() or refuse_host().
StatusOr<HostConnection> meet_host(comm::Descriptor socket, const HostSecrets& secrets);
// Answers with an error.
void refuse_host(const HostConnection& connection, const Status& reason);

// Frames of at most 64 KiB. receive_frame(): Unavailable: the end of the connection;
// DeadlineExceeded; DataLoss: no frame; an error that the other side has sent.
Status send_frame(const comm::Descriptor& socket, const json::object& message);
StatusOr<json::object> receive_frame(const comm::Descriptor& socket, Time deadline);

// Fields of frames; DataLoss: absent or of another kind.
StatusOr<std::string> text_field(const json::object& message, std::string_view name);
StatusOr<int64_t> number_field(const json::object& message, std::string_view name);

}  // namespace nereid::runtime
