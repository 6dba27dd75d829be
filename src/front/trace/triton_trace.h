// A request trace in the form of records of the Triton trace file.
#pragma once

#include <memory>

#include "front/bridge/request_trace.h"
#include "front/trace/setting.h"

namespace nereid::front {

// Written through `setting` when it is over.
RequestTracePtr make_triton_trace(std::shared_ptr<TraceSetting> setting);

}  // namespace nereid::front
