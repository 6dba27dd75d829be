// Where the files are that tests and benchmarks read. Functions, not macros of a target: only their
// own source names the folders, so a compiler cache knows every other file again in another
// checkout.
#pragma once

#include <string>

namespace nereid {

// Of the checkout that the program was built from, or $NEREID_SOURCE_DIR, where a copy of what the
// tests read lies on another machine.
std::string source_dir();
std::string build_dir();  // the CMake build folder: bin/, lib/, backends/ lie in it

}  // namespace nereid
