# Does what vcpkg does with a port, as far as this port needs it: the functions of a portfile, by
# CMake alone.
#
#   cmake -DPORT=packaging/vcpkg -DCURRENT_PACKAGES_DIR=DIR -DBUILD=DIR \
#     -P tests/packaging/vcpkg.cmake
cmake_minimum_required(VERSION 3.20)

function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "exit status ${status}: ${ARGN}")
  endif()
endfunction()

function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 its "" "SOURCE_PATH" "OPTIONS")
  step("${CMAKE_COMMAND}" -G Ninja -S "${its_SOURCE_PATH}" -B "${BUILD}" ${its_OPTIONS}
    -DCMAKE_BUILD_TYPE=Release
    "-DCMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR}" -DCMAKE_INSTALL_LIBDIR=lib
    -DBUILD_SHARED_LIBS=OFF)
endfunction()

function(vcpkg_cmake_install)
  step("${CMAKE_COMMAND}" --build "${BUILD}" --target install --parallel 2)
endfunction()

# The package's configuration moves to share/NAME, and its path to the prefix is adapted.
function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(PARSE_ARGV 0 its "" "PACKAGE_NAME;CONFIG_PATH" "")
  set(from "${CURRENT_PACKAGES_DIR}/${its_CONFIG_PATH}")
  set(to "${CURRENT_PACKAGES_DIR}/share/${its_PACKAGE_NAME}")
  file(GLOB files "${from}/*")
  if(NOT files)
    message(FATAL_ERROR "${from} is empty: the port's CONFIG_PATH is wrong")
  endif()
  foreach(file IN LISTS files)
    file(READ "${file}" text)
    string(REPLACE "/../../../" "/../../" text "${text}")
    # share/loam is one level less deep than lib/cmake/loam.
    set(first "get_filename_component(_IMPORT_PREFIX \"\${CMAKE_CURRENT_LIST_FILE}\" PATH)\n")
    set(second "get_filename_component(_IMPORT_PREFIX \"\${_IMPORT_PREFIX}\" PATH)\n")
    string(REPLACE "${first}${second}" "${first}" text
      "${text}")
    cmake_path(GET file FILENAME name)
    file(WRITE "${to}/${name}" "${text}")
  endforeach()
  file(REMOVE_RECURSE "${from}")
endfunction()

function(vcpkg_fixup_pkgconfig)
  file(GLOB_RECURSE files "${CURRENT_PACKAGES_DIR}/*.pc")
  if(NOT files)
    message(FATAL_ERROR "the port installs no file for pkg-config")
  endif()
endfunction()

function(vcpkg_install_copyright)
  cmake_parse_arguments(PARSE_ARGV 0 its "" "" "FILE_LIST")
  file(COPY_FILE "${its_FILE_LIST}" "${CURRENT_PACKAGES_DIR}/share/copyright")
endfunction()

include("${PORT}/portfile.cmake")
