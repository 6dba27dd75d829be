// Test of ProductTuner: a GPU's products with algorithm choices.
#pragma once

#include "kernels/open.h"

namespace nereid::kernels {

// Measures a product and runs it with the choices found, with choices of another library, and with
// invalid numbers. Prints one line; true on success, also without the library.
bool check_choices(OpenedDevice& opened);

}  // namespace nereid::kernels
