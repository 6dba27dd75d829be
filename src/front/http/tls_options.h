// The certificates of a port.
#pragma once

#include <string>

namespace nereid::front {

// Files are PEM.
struct TlsOptions {
  bool enabled = false;
  bool is_mutual = false;  // clients must present a certificate signed by root_cert
  std::string server_cert, server_key, root_cert;
  std::string flags;  // prefix of the flags, for errors: "grpc" for --grpc-server-cert
};

}  // namespace nereid::front
