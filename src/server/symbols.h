// Symbols of shared objects that a user provides.
#pragma once

#include <dlfcn.h>

namespace nereid::server {

// Null: no such symbol.
template <class Fn>
void find_symbol(void* handle, const char* symbol, Fn& function) {
  function = reinterpret_cast<Fn>(dlsym(handle, symbol));
}

}  // namespace nereid::server
