#include "base/testing/source_dir.h"

#include <cstdlib>

namespace nereid {

std::string source_dir() {
  const char* const copy = std::getenv("NEREID_SOURCE_DIR");
  return copy ? copy : NEREID_SOURCE_DIR;
}
std::string build_dir() { return NEREID_BUILD_DIR; }

}  // namespace nereid
