# An overlay port: vcpkg install loam --overlay-ports=packaging/vcpkg. tests/packaging/vcpkg.cmake
# does its steps without vcpkg. Linking the library replaces malloc in the whole program, so a
# static triplet gets loam::loam_static on request only.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DLOAM_BUILD_TESTS=OFF -DLOAM_BUILD_WORKLOADS=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME loam CONFIG_PATH lib/cmake/loam)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
