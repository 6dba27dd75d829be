// CHECK tests an invariant of ours, never input: it prints its place and ends the process.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace nereid {

[[noreturn]] inline void check_failed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, what);
  std::abort();
}

}  // namespace nereid

#define NEREID_CHECK(cond)                               \
  do {                                                   \
    if (!(cond)) [[unlikely]]                            \
      ::nereid::check_failed(__FILE__, __LINE__, #cond); \
  } while (false)

#ifdef NDEBUG
#define NEREID_DCHECK(cond) static_cast<void>(0)
#else
#define NEREID_DCHECK(cond) NEREID_CHECK(cond)
#endif
