"""Conan 2: `conan create packaging/conan` in a source tree."""
import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rm


class Loam(ConanFile):
    name = "loam"
    description = "A low-fragmentation heap that replaces malloc"
    license = "MIT"
    topics = ("malloc", "allocator", "heap", "fragmentation")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "late_dlopen": [True, False]}
    default_options = {"shared": True, "late_dlopen": False}

    @property
    def _root(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        header = load(self, os.path.join(self._root, "include", "loam", "loam.h"))
        number = int(re.search(r"^#define LOAM_HEADER_VERSION (\d+)$", header, re.M)[1])
        self.version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "include/*", "src/*", "native/recorder/*",
                        "native/peer/*", "packaging/*.in",
                        "packaging/install.cmake"):
            copy(self, pattern, self._root, self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def validate(self):
        if self.settings.os != "Linux" or self.settings.arch not in ("x86_64", "armv8"):
            raise ConanInvalidConfiguration("Loam's heap runs on Linux on x86_64 and armv8")

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.variables["LOAM_BUILD_TESTS"] = False
        toolchain.variables["LOAM_BUILD_WORKLOADS"] = False
        # A heap that is not optimised slows every debug build down; its own checks are another
        # preset's.
        toolchain.variables["CMAKE_BUILD_TYPE"] = "Release"
        if self.options.late_dlopen:
            toolchain.variables["LOAM_TLS_MODEL"] = "global-dynamic"
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        # The build makes both libraries; the package has the one that was asked for.
        rm(self, "libloam.a" if self.options.shared else "libloam.so",
           os.path.join(self.package_folder, "lib"))
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "loam")
        self.cpp_info.set_property("pkg_config_name", "loam")
        self.cpp_info.set_property("cmake_target_name",
                                   "loam::loam" if self.options.shared else "loam::loam_static")
        self.cpp_info.libs = ["loam"]
