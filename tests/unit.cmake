# The unit tests: one executable for each layer, two if a layer is tested on both systems. The list
# of all tests and that of Windows (tests/windows) include this file.

if(CMAKE_CROSSCOMPILING OR WIN32)
  # The machine's own GTest is for the machine's own processor. On Windows it is a DLL, which has
  # another malloc(). Debian has its source in another package.
  set(LOAM_GTEST_SOURCE "/usr/src/googletest" CACHE PATH
    "GTest's source, for other systems and processors")
  set(INSTALL_GTEST OFF)
  add_subdirectory("${LOAM_GTEST_SOURCE}" "${CMAKE_CURRENT_BINARY_DIR}/gtest" EXCLUDE_FROM_ALL)
  target_compile_options(gtest PRIVATE -O0 -g0)  # for a third of the time
else()
  find_package(GTest REQUIRED)
endif()
include(GoogleTest)

# The layers are the same code on every system, and the tests of Linux guard them.
# tests/windows/memory.cpp and its neighbours guard what Windows has of its own, so the short form
# leaves a third of all objects out.
if(WIN32 AND NOT LOAM_LONG_TESTS)
  return()
endif()

# The pretended system replaces src/os/SYSTEM.cpp.
file(GLOB fake_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/fake_system/*.cpp")
loam_object_library(loam_fake_checked EXCLUDE_FROM_ALL ${fake_sources})
target_include_directories(loam_fake_checked PUBLIC "${CMAKE_CURRENT_LIST_DIR}")
target_compile_definitions(loam_fake_checked PUBLIC LOAM_DEBUG=1 LOAM_CHECK_INVARIANTS=1)

file(GLOB unit_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/unit/*/*.cpp")
set(unit_tests "")
if(WIN32)
  list(FILTER unit_sources EXCLUDE REGEX "/(${LOAM_UNIT_LINUX_ONLY})[.]cpp$")
endif()
foreach(source IN LISTS unit_sources)
  cmake_path(GET source PARENT_PATH folder)
  cmake_path(GET folder FILENAME layer)
  # A test that includes the fake system's header is linked with the fake system.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
  file(STRINGS "${source}" uses_fake REGEX "#include \"fake_system/" LIMIT_COUNT 1)
  set(test ${layer})
  if(uses_fake)
    set(test ${layer}_fake)
  endif()
  list(APPEND unit_tests ${test})
  list(APPEND sources_${test} ${source})
endforeach()
list(REMOVE_DUPLICATES unit_tests)
set(unit_measuring_counters "CompactTest.*")
# Some cases of counters measure, so each case has its own process. The other programs are one
# process, in any order. Under an emulator single cases are left out by name.
set(unit_apart counters)
# Cases of the others that count from an untouched process.
set(unit_alone_cache_fake "ThreadCacheTest.AfterHundredRoundsNeighboursStillFollowEachOther\
:ThreadCacheTest.AHundredCallsAfterASilenceGiveBackWhatAClockWouldHave\
:ThreadCacheTest.AThreadThatOnlyFreesGivesAllThatAnotherTakes\
:ThreadCacheTest.ThreadsShareWhatTheyHoldBeyondTheirDue\
:ThreadCacheTest.WhoHoldsMuchMakesRoomForWhoStartsLater")
# The process has one default heap: these count its spans, runs, locks and classes.
set(unit_alone_heap "MixedSpans.*:PartialHeap.*:RunCache*.*:SplitHeap.*")

# The common part of all unit tests: gtest.h is compiled once for all, because it took a third of
# the time.
set(unit_flags $<$<NOT:$<CONFIG:Debug>>:-O1>)
if(LOAM_SANITIZE)
  list(APPEND unit_flags -fsanitize=${LOAM_SANITIZE} -fno-omit-frame-pointer)
endif()
file(CONFIGURE OUTPUT unit_headers.cpp CONTENT "")
add_library(unit_headers STATIC "${CMAKE_CURRENT_BINARY_DIR}/unit_headers.cpp")
target_precompile_headers(unit_headers PRIVATE <gtest/gtest.h>)
target_compile_options(unit_headers PRIVATE ${unit_flags})
target_link_libraries(unit_headers PRIVATE loam_warnings loam_core_checked GTest::gtest)

# They compare a document with the source. The names are whole paths, because other folders include
# this list.
set_source_files_properties("${CMAKE_CURRENT_LIST_DIR}/unit/small/sources_test.cpp"
  "${CMAKE_CURRENT_LIST_DIR}/unit/heap/observed_test.cpp" PROPERTIES
  COMPILE_DEFINITIONS "LOAM_ROOT=\"${PROJECT_SOURCE_DIR}\"")

foreach(test IN LISTS unit_tests)
  add_executable(unit_${test} ${sources_${test}})
  target_precompile_headers(unit_${test} REUSE_FROM unit_headers)
  # Six files at a time are compiled in half the time.
  set_target_properties(unit_${test} PROPERTIES UNITY_BUILD ${LOAM_UNITY}
    UNITY_BUILD_BATCH_SIZE 6)
  # Some tests have helpers in headers beside them.
  target_include_directories(unit_${test} PRIVATE "${CMAKE_CURRENT_LIST_DIR}/unit")
  set(system loam_system_checked)
  if(test MATCHES "_fake$")
    set(system loam_fake_checked)
  endif()
  target_link_libraries(unit_${test} PRIVATE loam_warnings loam_core_checked ${system}
    ${LOAM_WINDOWS_LIBRARIES} GTest::gtest GTest::gtest_main Threads::Threads)
  target_compile_options(unit_${test} PRIVATE ${unit_flags})
  if(LOAM_SANITIZE)
    target_link_options(unit_${test} PRIVATE -fsanitize=${LOAM_SANITIZE})
  endif()
  if(WIN32)
    set(together TOGETHER)
    if(test IN_LIST unit_apart)
      set(together "")
    endif()
    loam_windows_suites(unit.${test} unit_${test} "*" ${together})
  elseif(NOT test IN_LIST unit_apart AND NOT CMAKE_CROSSCOMPILING)
    loam_shuffled_tests(unit_${test} unit.${test} unit "${unit_alone_${test}}")
  else()
    loam_discover_tests(unit_${test} "unit.${test}." unit "${unit_measuring_${test}}")
  endif()
endforeach()

