# Refuses other processors than x86-64 at configure time; the compiler would fail at the first intrinsic, minutes later.
# The compiler's macros decide, since a toolchain file may leave CMAKE_SYSTEM_PROCESSOR out.
include(CheckCXXSourceCompiles)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)  # no link: a compiler for another machine may have no libraries
check_cxx_source_compiles("
#if !defined(__x86_64__) || defined(__ILP32__)
#error another processor
#endif" NEREID_COMPILES_FOR_X86_64)
unset(CMAKE_TRY_COMPILE_TARGET_TYPE)
if(NOT NEREID_COMPILES_FOR_X86_64)
  message(FATAL_ERROR "nereid builds for 64-bit x86 only, and ${CMAKE_CXX_COMPILER} compiles for another processor. "
    "Detection of the processor and vector kernels (AVX2, AVX-512, AMX) are x86-64's; ARM64 has no kernels (NEON) and no tested "
    "build. What to do: build on an x86-64 machine, or name a compiler for it (-DCMAKE_CXX_COMPILER=x86_64-linux-gnu-g++).")
endif()
