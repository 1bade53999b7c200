"""Builds the extensions and maps the flat folders onto one package. Metadata is in pyproject.toml."""
import os
from glob import glob

import numpy as np
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

PACKAGES = {
    "thinwire": "src/thinwire",
    "thinwire.compress": "compress",
    "thinwire.collectives": "collectives",
    "thinwire.perf": "perf",
}
# Strict IEEE: no contraction, no fast-math, so that every instruction set and device computes the same bits.
FLAGS = ["-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden", "-fopenmp", "-g0"]
MACROS = [("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")]
if os.environ.get("THINWIRE_CLONES"):
    MACROS.append(("THINWIRE_CLONES", os.environ["THINWIRE_CLONES"]))


class BuildExt(build_ext):
    def run(self):
        from shutil import which

        compiler = os.environ.get("CXX", "c++")
        if not which(compiler.split()[0]) and not which("g++"):
            raise SystemExit(
                f"thinwire builds its kernels with a C++17 compiler and found none ({compiler}). "
                "Install one: apt install g++ python3-dev (Debian, Ubuntu), dnf install gcc-c++ python3-devel (Fedora), "
                "or set CXX to yours."
            )
        super().run()

    def build_extensions(self):
        # One file a codec, each compiled for several instruction sets: compile them side by side.
        from concurrent.futures import ThreadPoolExecutor

        compile_one = self.compiler._compile

        def compile_all(sources, output_dir=None, macros=None, include_dirs=None, debug=0, extra_preargs=None, extra_postargs=None, depends=None):
            macros, objects, extra_postargs, pp_opts, build = self.compiler._setup_compile(
                output_dir, macros, include_dirs, sources, depends, extra_postargs
            )
            args = self.compiler._get_cc_args(pp_opts, debug, extra_preargs)
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(lambda obj: compile_one(obj, *build[obj], args, extra_postargs, pp_opts), [o for o in objects if o in build]))
            return objects

        self.compiler.compile = compile_all
        super().build_extensions()


def extension(name, *sources):
    return Extension(
        f"thinwire.{name}",
        [f"cython/{name}.pyx", *sources],
        include_dirs=["include", "cpu", np.get_include()],
        define_macros=MACROS,
        extra_compile_args=FLAGS,
        extra_link_args=["-fopenmp"],
        depends=glob("include/thinwire/*.h") + glob("cpu/*.h"),
        language="c++",
    )


setup(
    packages=list(PACKAGES),
    package_dir=PACKAGES,
    package_data={"thinwire": ["py.typed", "*.pyi"]},
    ext_modules=cythonize([extension("_native", *sorted(glob("cpu/*.cpp"))), extension("_dlpack")], build_dir="build/cython", include_path=["cython"]),
    cmdclass={"build_ext": BuildExt},
)
