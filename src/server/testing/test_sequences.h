// The test backend's behaviors with sequences, states and requests in flight.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "triton/core/tritonbackend.h"

std::vector<int32_t> read_tensor(TRITONBACKEND_Request* request, const char* name);
void send_values(TRITONBACKEND_ResponseFactory* factory, const std::vector<int32_t>& values,
                 uint32_t flags, bool batched);

// "sequence": answers each request with {position in the batch, size of the batch, requests of it
// that are not ready, instance, START, END, CORRID (or the length of its text), state}; the state
// is the sum of IN's first values since START. Takes the time (gate.h) in IN's last value.
// "iterate": runs each request IN[0] times, then answers {number of runs, number of STARTs}.
// "lag_source": sends IN[0] responses, each {responses sent, not yet received by a "lag_sink"}.
// "lag_sink": an echo whose first execution waits at the gate. False: another behavior.
bool execute_sequences(TRITONBACKEND_ModelInstance* instance, const std::string& behavior,
                       TRITONBACKEND_Request** requests, uint32_t count);
