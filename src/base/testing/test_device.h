// The device for tests of whole models.
#pragma once

#include <cstdlib>
#include <string>

namespace nereid {

// $NEREID_TEST_DEVICE, such as cuda:0; "cpu" when it is not set.
inline std::string test_device() {
  const char* const name = std::getenv("NEREID_TEST_DEVICE");
  return name ? name : "cpu";
}
inline bool tests_run_on_cpu() { return test_device() == "cpu"; }

}  // namespace nereid
