// Code that a test runs inside a backend: the functions that backend "nereid_probe" calls. A
// library of its own: the test and the backend, which the server opens, share one probe. The
// functions call the backend API as a backend would.
#pragma once

#include <functional>

#include "triton/core/tritonbackend.h"

namespace nereid::server {

// Set before the server starts; empty functions have no effect. An error fails the
// step and is consumed.
struct Probe {
  std::function<TRITONSERVER_Error*(TRITONBACKEND_Backend*)> initialize;
  std::function<TRITONSERVER_Error*(TRITONBACKEND_BackendAttribute*)> attribute;
  std::function<TRITONSERVER_Error*(TRITONBACKEND_Model*)> model;
  std::function<TRITONSERVER_Error*(TRITONBACKEND_ModelInstance*)> instance;
  std::function<void(TRITONBACKEND_ModelInstance*)> instance_end;
  // Called before each request is answered and released.
  std::function<void(TRITONBACKEND_ModelInstance*, TRITONBACKEND_Request*)> request;
  // May add outputs to the only response of a request.
  std::function<void(TRITONBACKEND_Response*)> response;
};
Probe& probe();

}  // namespace nereid::server
