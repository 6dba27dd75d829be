// Switches of the log levels, one for each, for the whole process.
#pragma once

#include "base/status.h"
#include "triton/core/tritonserver.h"

namespace nereid::server {

// Installs the switches in front of the default logger, set from its level. To be called before
// threads log; later calls have no effect.
void install_log_switches();

void switch_log(TRITONSERVER_LogLevel level, bool on);  // switches all messages of a level
// 0 = no verbose messages; below 0 also none of the core's about its start and models, for a
// front end with its own.
void set_log_verbosity(int level);
bool is_log_terse();  // whether the last verbosity was below 0
bool is_log_on(TRITONSERVER_LogLevel level);
void set_log_format(TRITONSERVER_LogFormat format);
// Redirects the log to a file, which is appended to; an empty `path` restores the process's own
// log. Unavailable: the file cannot be opened.
Status set_log_file(const std::string& path);

}  // namespace nereid::server
