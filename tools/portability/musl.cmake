# Builds the library for musl with the machine's own g++ and Debian's musl-tools, which have no C++
# compiler of their own:  cmake --toolchain tools/portability/musl.cmake -DLOAM_BUILD_TESTS=OFF ...
#
# musl's headers instead of the GNU C library's; the compiler's own headers, and libstdc++'s for types
# and atomics (nothing of libstdc++ is linked); the kernel's. Needs no toolchain file where the
# compiler's own C library is musl.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${CMAKE_HOST_SYSTEM_PROCESSOR})
set(CMAKE_C_COMPILER musl-gcc)
set(CMAKE_CXX_COMPILER g++)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)

execute_process(COMMAND g++ -dumpversion OUTPUT_VARIABLE version OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(COMMAND g++ -dumpmachine OUTPUT_VARIABLE machine OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(COMMAND g++ -print-file-name=include OUTPUT_VARIABLE own OUTPUT_STRIP_TRAILING_WHITESPACE)
string(REPLACE "-gnu" "-musl" musl "${machine}")

# The kernel's headers, without those of the C library that lie beside them.
set(kernel "${CMAKE_BINARY_DIR}/kernel-headers")
file(MAKE_DIRECTORY "${kernel}")
file(CREATE_LINK /usr/include/linux "${kernel}/linux" SYMBOLIC)
file(CREATE_LINK /usr/include/asm-generic "${kernel}/asm-generic" SYMBOLIC)
file(CREATE_LINK "/usr/include/${machine}/asm" "${kernel}/asm" SYMBOLIC)

set(folders "${CMAKE_CURRENT_LIST_DIR}/musl" "/usr/include/c++/${version}"
  "/usr/include/${machine}/c++/${version}" "/usr/include/${musl}" "${own}" "${kernel}")
list(TRANSFORM folders PREPEND "-isystem ")
list(JOIN folders " " folders)
set(CMAKE_CXX_FLAGS_INIT "-nostdinc -D'__GLIBC_PREREQ(major,minor)=0' ${folders}")
