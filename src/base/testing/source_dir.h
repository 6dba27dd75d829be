// Where the files are that tests and benchmarks read. Functions, not macros of a target: only their
// own source names the folders, so a compiler cache knows every other file again in another
// checkout.
#pragma once

#include <string>

namespace nereid {

std::string source_dir();  // of the checkout that the program was built from
std::string build_dir();   // the CMake build folder: bin/, lib/, backends/ lie in it

}  // namespace nereid
