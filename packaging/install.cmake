# Install rules: the two libraries, the public headers, find_package(loam) and pkg-config loam; and
# the tool with its manual pages and completions, where `make tool` has built it.
include(CMakePackageConfigHelpers)

install(TARGETS loam loam_static loam_headers EXPORT loamTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
# The libraries that `loam record` and `loam run --allocator` preload; no program links them.
install(TARGETS loam_record loam_peer LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
# The folder itself first: the targets name it, so it must be there whatever it holds.
install(DIRECTORY DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  OPTIONAL FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

set(LOAM_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/loam")
install(EXPORT loamTargets NAMESPACE loam:: DESTINATION "${LOAM_PACKAGE_DIR}")
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/loamConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/packaging/loamConfig.cmake" INSTALL_DESTINATION "${LOAM_PACKAGE_DIR}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/packaging/loamConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/packaging/loamConfig.cmake"
  "${PROJECT_BINARY_DIR}/packaging/loamConfigVersion.cmake" DESTINATION "${LOAM_PACKAGE_DIR}")

# The description finds its prefix from where it lies, so that the tree may be moved or installed
# below DESTDIR. GNUInstallDirs allows absolute folders; then only the configured prefix is right.
set(LOAM_PC_DIR "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(LOAM_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
else()
  file(RELATIVE_PATH to_prefix "/${LOAM_PC_DIR}" "/")
  string(REGEX REPLACE "/$" "" to_prefix "${to_prefix}")
  set(LOAM_PC_PREFIX "\${pcfiledir}/${to_prefix}")
endif()
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_LIBDIR BASE_DIRECTORY "\${prefix}"
  OUTPUT_VARIABLE LOAM_PC_LIBDIR)
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_INCLUDEDIR BASE_DIRECTORY "\${prefix}"
  OUTPUT_VARIABLE LOAM_PC_INCLUDEDIR)
configure_file("${CMAKE_CURRENT_LIST_DIR}/loam.pc.in"
  "${PROJECT_BINARY_DIR}/packaging/loam.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/packaging/loam.pc"
  DESTINATION "${LOAM_PC_DIR}")

install(PROGRAMS "${PROJECT_SOURCE_DIR}/build/cargo/release/loam"
  DESTINATION "${CMAKE_INSTALL_BINDIR}" OPTIONAL)
if(TARGET replayer)
  install(TARGETS replayer RUNTIME DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/loam")
endif()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/build/share/"
  DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}" OPTIONAL)
