# musl.cmake for aarch64: Debian's g++-aarch64-linux-gnu, and the files of Debian's musl-dev for
# that processor, which `tools/setup packages` unpacks.
cmake_path(SET musl_root NORMALIZE "${CMAKE_CURRENT_LIST_DIR}/../../build/musl-aarch64")
set(musl_processor aarch64)
include("${CMAKE_CURRENT_LIST_DIR}/musl.cmake")
