// The parts of the test backend that know sequences, state and what is on its way.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "triton/core/tritonbackend.h"

std::vector<int32_t> read_tensor(TRITONBACKEND_Request* request, const char* name);
void send_values(TRITONBACKEND_ResponseFactory* factory, const std::vector<int32_t>& values,
                 uint32_t flags, bool batched);

// "sequence": each request is answered with {place in the batch, size of the batch, requests of it
// that are not ready, instance, START, END, CORRID (or the length of its text), state}; the state
// is the sum of IN's first values since START. Takes the time (gate.h) that the last of IN says.
// "iterate": runs each request IN[0] times, then answers {number of runs, number of STARTs}.
// "lag_source": sends IN[0] responses, each {responses sent, not yet seen by a "lag_sink"}.
// "lag_sink": an echo whose first execution waits at the gate.
// False: another behavior.
bool execute_sequences(TRITONBACKEND_ModelInstance* instance, const std::string& behavior,
                       TRITONBACKEND_Request** requests, uint32_t count);
