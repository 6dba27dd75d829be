#include "base/testing/source_dir.h"

namespace nereid {

std::string source_dir() { return NEREID_SOURCE_DIR; }
std::string build_dir() { return NEREID_BUILD_DIR; }

}  // namespace nereid
