// Entry points of shared objects that a user brings.
#pragma once

#include <dlfcn.h>

namespace nereid::server {

// Null when there is no such symbol.
template <class Fn>
void find_symbol(void* handle, const char* symbol, Fn& function) {
  function = reinterpret_cast<Fn>(dlsym(handle, symbol));
}

}  // namespace nereid::server
