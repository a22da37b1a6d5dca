# The build for Windows: loam.dll, libloam.a and the programs that try them (docs/windows.md).
# Included by the main list once the sources are known.
#
# The layers are the same sources. The port is src/os/windows*.cpp; of the api, what programs on
# Windows can use: heaps, figures, and in libloam.a the C run-time's allocation functions and the
# operators. Debian's `wine` asks for a 32-bit Wine, too; what it starts is in its own folder.
find_program(LOAM_WINE NAMES wine64 PATHS /usr/lib/wine)
find_program(LOAM_WINE NAMES wine)
find_program(LOAM_WINE_SERVER NAMES wineserver64 wineserver PATHS /usr/lib/wine)

# gcc lays bit fields as Microsoft's compiler does, unless told: the records are laid out to the
# byte. There is no visibility: a DLL exports what LOAM_API names. With -fdata-sections the zeros of
# static data would be a part of the file, 2 MB of them: gcc has no section `.bss$name`.
target_compile_options(loam_flags INTERFACE -mno-ms-bitfields -fvisibility=default -Wno-attributes
  -fno-data-sections)

set(LOAM_WINDOWS_API heap_api.cpp stats.cpp windows_start.cpp)
list(TRANSFORM LOAM_WINDOWS_API PREPEND "${PROJECT_SOURCE_DIR}/src/api/")
# Each a file of its own in the archive: the linker takes those that a program has not itself.
set(LOAM_WINDOWS_OVERRIDE windows_malloc.cpp windows_imports.cpp win32_crt.cpp)
list(TRANSFORM LOAM_WINDOWS_OVERRIDE PREPEND "${PROJECT_SOURCE_DIR}/src/api/")
set(LOAM_WINDOWS_OPERATORS windows_new.cpp windows_new_aligned.cpp windows_bad_alloc.cpp)
list(TRANSFORM LOAM_WINDOWS_OPERATORS PREPEND "${PROJECT_SOURCE_DIR}/src/api/")
set(LOAM_WINDOWS_LIBRARIES synchronization psapi)

function(loam_windows_objects name)
  add_library(${name} OBJECT ${ARGN})
  target_link_libraries(${name} PRIVATE loam_flags loam_warnings)
  target_compile_options(${name} PRIVATE -Wconversion)
  target_include_directories(${name} PUBLIC "${PROJECT_SOURCE_DIR}/include"
    "${PROJECT_SOURCE_DIR}/src")
endfunction()

loam_windows_objects(loam_objects ${LOAM_CORE_SOURCES} ${LOAM_WINDOWS_API})
loam_windows_objects(loam_dll_objects ${LOAM_CORE_SOURCES} ${LOAM_WINDOWS_API})
target_compile_definitions(loam_dll_objects PRIVATE LOAM_BUILDS_DLL=1)
loam_windows_objects(loam_override ${LOAM_WINDOWS_OVERRIDE})
# the headers would say that the names are imported
target_compile_definitions(loam_override PRIVATE _CRTIMP=)
loam_windows_objects(loam_operators ${LOAM_WINDOWS_OPERATORS})
# After the flags of all. The sized forms are the C++ run-time's.
set_source_files_properties(${LOAM_WINDOWS_OPERATORS} PROPERTIES COMPILE_OPTIONS
  "-fexceptions;$<$<CXX_COMPILER_ID:GNU>:-Wno-sized-deallocation>")
foreach(objects loam_objects loam_dll_objects)
  set_target_properties(${objects} PROPERTIES UNITY_BUILD ${LOAM_UNITY} UNITY_BUILD_BATCH_SIZE 0)
endforeach()
if(LOAM_CHECKS)
  foreach(objects loam_objects loam_dll_objects loam_override loam_operators)
    target_compile_definitions(${objects} PUBLIC LOAM_DEBUG=1 LOAM_CHECK_INVARIANTS=1)
  endforeach()
endif()

enable_language(RC)
add_library(loam SHARED $<TARGET_OBJECTS:loam_dll_objects>
  "${PROJECT_SOURCE_DIR}/packaging/loam_counters.rc")
# loam.def lists what it exports: Microsoft's tools make their import library of it (lib
# /def:loam.def).
# clang names its libraries itself
target_link_options(loam PRIVATE $<$<C_COMPILER_ID:GNU>:-static-libgcc>
  "-Wl,--output-def,${LOAM_OUTPUT_DIR}/loam.def")
target_link_libraries(loam PRIVATE ${LOAM_WINDOWS_LIBRARIES})
set_target_properties(loam PROPERTIES LINKER_LANGUAGE C PREFIX "" OUTPUT_NAME loam
  RUNTIME_OUTPUT_DIRECTORY "${LOAM_OUTPUT_DIR}" ARCHIVE_OUTPUT_DIRECTORY "${LOAM_OUTPUT_DIR}"
  ADDITIONAL_CLEAN_FILES "${LOAM_OUTPUT_DIR}/loam.def")

add_library(loam_static STATIC $<TARGET_OBJECTS:loam_objects> $<TARGET_OBJECTS:loam_override>
  $<TARGET_OBJECTS:loam_operators>)
target_link_libraries(loam_static PUBLIC ${LOAM_WINDOWS_LIBRARIES})
target_include_directories(loam_static PUBLIC "${PROJECT_SOURCE_DIR}/include")
set_target_properties(loam_static PROPERTIES OUTPUT_NAME loam
  ARCHIVE_OUTPUT_DIRECTORY "${LOAM_OUTPUT_DIR}")

# In front of the system's headers, for programs of POSIX systems.
set(LOAM_POSIX "${PROJECT_SOURCE_DIR}/native/windows/posix")
if(LOAM_BUILD_TESTS)
  enable_testing()
  add_subdirectory(tests/windows)
endif()
if(LOAM_BUILD_WORKLOADS)
  add_subdirectory(native/windows)
endif()
