// Unguessable names made of the kernel's random numbers.
#pragma once

#include <string>

namespace nereid {

// 32 hexadecimal digits: 128 bits of getrandom().
std::string random_hex();

}  // namespace nereid
