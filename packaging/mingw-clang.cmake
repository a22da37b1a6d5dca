# A toolchain file: builds for Windows (x86-64) with clang, and mingw-w64's headers, libraries and
# linker.
#
#   cmake -G Ninja -S . -B build/windows-clang -DCMAKE_TOOLCHAIN_FILE=packaging/mingw-clang.cmake
#
# clang knows the target and does not look where Debian keeps gcc's C++ library for it.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(LOAM_CLANG "" CACHE STRING "What is behind the compiler's name: -14")
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES LOAM_CLANG)
set(CMAKE_C_COMPILER clang${LOAM_CLANG})
set(CMAKE_CXX_COMPILER clang++${LOAM_CLANG})
set(CMAKE_C_COMPILER_TARGET x86_64-w64-mingw32)
set(CMAKE_CXX_COMPILER_TARGET x86_64-w64-mingw32)
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)
set(CMAKE_AR x86_64-w64-mingw32-ar CACHE FILEPATH "")
set(CMAKE_RANLIB x86_64-w64-mingw32-ranlib CACHE FILEPATH "")
file(GLOB gcc "/usr/lib/gcc/x86_64-w64-mingw32/*-posix")
list(GET gcc -1 gcc)
set(CMAKE_CXX_FLAGS_INIT
  "-stdlib++-isystem ${gcc}/include/c++ -isystem ${gcc}/include/c++/x86_64-w64-mingw32")
set(linking "-fuse-ld=/usr/bin/x86_64-w64-mingw32-ld -L${gcc} -nodefaultlibs")
set(CMAKE_EXE_LINKER_FLAGS_INIT "${linking}")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "${linking}")
# In a group: clang would name them in an order that is not gcc's.
set(CMAKE_C_STANDARD_LIBRARIES
  "-Wl,--start-group -lmingw32 -lgcc -lgcc_eh -lmingwex -lmsvcrt -lpthread -ladvapi32 \
-lshell32 -luser32 -lkernel32 -Wl,--end-group" CACHE STRING "")
set(CMAKE_CXX_STANDARD_LIBRARIES
  "-Wl,--start-group -lstdc++ -lmingw32 -lgcc -lgcc_eh -lmingwex -lmsvcrt -lpthread \
-ladvapi32 -lshell32 -luser32 -lkernel32 -Wl,--end-group" CACHE STRING "")
set(CMAKE_FIND_ROOT_PATH /usr/x86_64-w64-mingw32)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
