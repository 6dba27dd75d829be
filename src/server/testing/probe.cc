#include "server/testing/probe.h"

namespace nereid::server {

Probe& probe() {
  static Probe shared;
  return shared;
}

}  // namespace nereid::server
