// What a GPU's products do with choices of algorithms (ProductTuner).
#pragma once

#include "kernels/open.h"

namespace nereid::kernels {

// Measures a product and multiplies with what was found, with choices of another library, and with
// numbers that no algorithm has. Prints one line; true when all is right, also where the device has
// no library.
bool check_choices(OpenedDevice& opened);

}  // namespace nereid::kernels
