# nereid_library(): one call per folder under src/. The folder path is the library's name: src/kernels/api -> target
# nereid_kernels_api, include prefix "kernels/api/". DEPS are folders; only those (and this one) may be included, which
# tools/check_layers.sh verifies from the file written by nereid_write_layers().
#   HDRS SRCS   files of this folder
#   DEPS        folders this one may include
#   LINKS       third-party targets
#   TESTS       *_test.cc beside the sources, linked into one binary <folder>_test
#   TEST_DEPS   extra folders that only the tests include
#   TEST_SHARDS for tests that take long: ctest runs them in so many processes
set_property(GLOBAL PROPERTY NEREID_LAYERS "")

function(nereid_target_name out folder)
  string(REPLACE "/" "_" name "${folder}")
  set(${out} "nereid_${name}" PARENT_SCOPE)
endfunction()

# Tests' own code is not optimised: it compiles in two thirds of the time (under ASan 0.6), and the code under test is in
# libraries, which are. Every test may include base/testing.
function(nereid_test_options target)
  target_link_libraries(${target} PRIVATE nereid_base_testing)
  set_target_properties(${target} PROPERTIES NEREID_IS_TEST ON)
  target_compile_options(${target} PRIVATE -O0)
endfunction()

# With shards the program is a test for each, <name>_1 and on, that runs its share of the cases. Such tests begin first, so
# that no core waits for the last one, and have folders of their own for scratch files.
function(nereid_add_test name shards)
  if(NOT shards)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT 900)
    return()
  endif()
  foreach(shard RANGE 1 ${shards})
    math(EXPR index "${shard} - 1")
    set(scratch ${PROJECT_BINARY_DIR}/scratch/${name}_${shard})
    file(MAKE_DIRECTORY ${scratch})
    add_test(NAME ${name}_${shard} COMMAND ${name})
    set_tests_properties(${name}_${shard} PROPERTIES TIMEOUT 1800 COST 1000
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${index};TEST_TMPDIR=${scratch}")
  endforeach()
endfunction()

function(nereid_library)
  cmake_parse_arguments(L "" "TEST_SHARDS" "HDRS;SRCS;DEPS;LINKS;TESTS;TEST_DEPS;TEST_LINKS" ${ARGN})
  if(L_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "nereid_library: unknown arguments ${L_UNPARSED_ARGUMENTS}")
  endif()
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR})
  nereid_target_name(target ${folder})
  set(dep_targets "")
  foreach(dep ${L_DEPS})
    nereid_target_name(dep_target ${dep})
    list(APPEND dep_targets ${dep_target})
  endforeach()
  if(L_SRCS)
    add_library(${target} STATIC ${L_SRCS} ${L_HDRS})
    target_link_libraries(${target} PUBLIC nereid_options ${dep_targets} ${L_LINKS})
    if(folder MATCHES "^(tensor|io|kernels/cpu)$")
      set_target_properties(${target} PROPERTIES NEREID_CASTS_BYTES ON)
    endif()
    # Code that runs once, at a start or a build of an engine, compiles in six sevenths of the time.
    if(folder MATCHES "^(config|graph|models)$")
      target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
    endif()
    set(computes OFF)
    if(NEREID_SANITIZE AND folder MATCHES "^kernels/(api|ref|testing)$")
      set(computes ON)  # optimised, so that they cannot use the precompiled header of the rest
      set_target_properties(${target} PROPERTIES NEREID_COMPUTES ON)
    endif()
    if(folder STREQUAL "base")
      target_precompile_headers(${target} PRIVATE <base/precompiled.h>)
    elseif("base" IN_LIST L_DEPS AND NOT computes)
      target_precompile_headers(${target} REUSE_FROM nereid_base)
    endif()
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE nereid_options ${dep_targets} ${L_LINKS})
  endif()
  set_property(GLOBAL APPEND_STRING PROPERTY NEREID_LAYERS
    "${folder}: ${L_DEPS} | ${L_TEST_DEPS};base/testing\n")
  if(L_TESTS AND NEREID_TESTS)
    set(test_dep_targets "")
    foreach(dep ${L_TEST_DEPS})
      nereid_target_name(dep_target ${dep})
      list(APPEND test_dep_targets ${dep_target})
    endforeach()
    string(REPLACE "/" "_" short "${folder}")
    add_executable(${short}_test ${L_TESTS})
    target_link_libraries(${short}_test PRIVATE ${target} ${test_dep_targets} ${L_TEST_LINKS}
      GTest::gmock GTest::gtest_main)
    nereid_test_options(${short}_test)
    if(folder STREQUAL "base")
      target_precompile_headers(${short}_test PRIVATE <gmock/gmock.h> <gtest/gtest.h> <base/precompiled.h>)
    else()
      target_precompile_headers(${short}_test REUSE_FROM base_test)
    endif()
    nereid_add_test(${short}_test "${L_TEST_SHARDS}")
  endif()
endfunction()

function(nereid_write_layers)
  get_property(layers GLOBAL PROPERTY NEREID_LAYERS)
  file(WRITE ${PROJECT_BINARY_DIR}/layers.txt "${layers}")
endfunction()
