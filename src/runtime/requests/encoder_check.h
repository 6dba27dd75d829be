// Checks of what a request asks of the encoder's output, behind those of the input.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "nereid/request.h"
#include "runtime/requests/request_check.h"

namespace nereid::runtime {

// Positions of a request's encoder input; 0: it has none, or it was taken.
int64_t num_encoder_positions(const Request& request, const RequestBounds& bounds);

// Bytes of Response::encoder_output; 0: the request does not ask for it.
int64_t encoder_output_bytes(const Request& request, const RequestBounds& bounds);

// InvalidArgument with field, value and allowed values.
Status check_encoder_output(const Request& request, const RequestBounds& bounds);
Status check_cross_mask(const Request& request, const RequestBounds& bounds);

}  // namespace nereid::runtime
