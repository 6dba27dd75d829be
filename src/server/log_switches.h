// Which log levels are written, each switched on its own, for the whole process.
#pragma once

#include "base/status.h"
#include "triton/core/tritonserver.h"

namespace nereid::server {

// Puts the switches in front of the default logger, set as its level says. Call it before threads
// log; later calls do nothing.
void install_log_switches();

void switch_log(TRITONSERVER_LogLevel level, bool on);  // all messages of the level, from now on
// 0 = no verbose messages; below 0 also without what the core says of starting and of its models,
// for a front end that says it in its own words.
void set_log_verbosity(int level);
bool is_log_terse();  // the last verbosity was below 0
bool is_log_on(TRITONSERVER_LogLevel level);
void set_log_format(TRITONSERVER_LogFormat format);
// Writes to a file instead, which is appended to; to the process's own log again when `path` is
// empty. Unavailable when it cannot be opened.
Status set_log_file(const std::string& path);

}  // namespace nereid::server
