// Serves a model repository until a signal.
#pragma once

#include <functional>

#include "cli/triton/triton_flags.h"

namespace nereid::cli {

// `when_ready` is called once all ports answer, with the HTTP port, -1 without one. Exit code: 0
// after a stop in time.
int serve_repository(const TritonOptions& options,
                     const std::function<void(int http_port)>& when_ready = {});

}  // namespace nereid::cli
