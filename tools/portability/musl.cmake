# Builds the library for musl with the machine's own g++ and Debian's musl-tools, which have no C++
# compiler of their own:  cmake --toolchain tools/portability/musl.cmake -DLOAM_BUILD_TESTS=OFF ...
#
# The include path has musl's headers instead of the GNU C library's, the compiler's own headers,
# those of libstdc++ for types and atomics (nothing of libstdc++ is linked), and the kernel's. If
# musl is the compiler's own C library, no toolchain file is needed. For another processor
# musl-PROCESSOR.cmake sets the folder of its musl (musl_root), and includes this file.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
if(musl_root)
  set(CMAKE_SYSTEM_PROCESSOR ${musl_processor})
  set(CMAKE_C_COMPILER ${musl_processor}-linux-gnu-gcc)
  # The compiler is made for glibc: its libgcc asks glibc which atomic instructions the processor
  # has.
  set(without_glibc "-mno-outline-atomics")
  set(CMAKE_C_FLAGS_INIT "-specs=${musl_root}/musl-gcc.specs ${without_glibc}")
  set(CMAKE_CXX_COMPILER ${musl_processor}-linux-gnu-g++)
else()
  set(CMAKE_SYSTEM_PROCESSOR ${CMAKE_HOST_SYSTEM_PROCESSOR})
  set(CMAKE_C_COMPILER musl-gcc)
  set(CMAKE_CXX_COMPILER g++)
endif()

execute_process(COMMAND ${CMAKE_CXX_COMPILER} -dumpversion OUTPUT_VARIABLE version
  OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -dumpmachine OUTPUT_VARIABLE machine
  OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=include OUTPUT_VARIABLE own
  OUTPUT_STRIP_TRAILING_WHITESPACE)
string(REPLACE "-gnu" "-musl" musl "${machine}")
if(musl_root)
  set(cxx "/usr/${machine}/include/c++/${version}")
  set(cxx_machine "${cxx}/${machine}")
  set(asm "/usr/${machine}/include/asm")
  set(linux "/usr/${machine}/include")
else()
  set(cxx "/usr/include/c++/${version}")
  set(cxx_machine "/usr/include/${machine}/c++/${version}")
  set(asm "/usr/include/${machine}/asm")
  set(linux "/usr/include")
endif()

# The kernel's headers, without those of the C library that lie beside them.
set(kernel "${CMAKE_BINARY_DIR}/kernel-headers")
file(MAKE_DIRECTORY "${kernel}")
file(CREATE_LINK "${linux}/linux" "${kernel}/linux" SYMBOLIC)
file(CREATE_LINK "${linux}/asm-generic" "${kernel}/asm-generic" SYMBOLIC)
file(CREATE_LINK "${asm}" "${kernel}/asm" SYMBOLIC)

set(folders "${CMAKE_CURRENT_LIST_DIR}/musl" "${cxx}" "${cxx_machine}"
  "${musl_root}/usr/include/${musl}" "${own}"
  "${kernel}")
list(TRANSFORM folders PREPEND "-isystem ")
list(JOIN folders " " folders)
set(CMAKE_CXX_FLAGS_INIT "-nostdinc -D'__GLIBC_PREREQ(major,minor)=0' ${without_glibc} ${folders}")
