// The certificates of a port.
#pragma once

#include <string>

namespace nereid::front {

// Files are PEM.
struct TlsOptions {
  bool enabled = false;
  bool is_mutual = false;  // clients must show a certificate that root_cert signed
  std::string server_cert, server_key, root_cert;
  std::string flags;  // how their flags begin, for errors: "grpc" of --grpc-server-cert
};

}  // namespace nereid::front
