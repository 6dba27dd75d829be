// The folders that tests and benchmarks read. They are functions, not macros of a target: only
// source_dir.cc depends on the paths, so the compiler cache hits in another checkout.
#pragma once

#include <string>

namespace nereid {

// The checkout that the program was built from, or $NEREID_SOURCE_DIR: on another machine, a copy
// of the files that tests read.
std::string source_dir();
std::string build_dir();  // the CMake build folder, with bin/, lib/ and backends/

}  // namespace nereid
