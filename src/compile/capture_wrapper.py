"""How the C++ code of packages, which launches their kernels, is compiled fast.

What is the same in every package is compiled once, from the first moment on and beside all else: the
headers, and the functions by which a package is called (interface.cpp of AOTInductor, which Inductor
copies into the code of each) with the templates that they need. A package's own code is compiled
without them and linked with their objects. Where that does not work Inductor's own way is taken.
"""

import fcntl
import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

BASE = "template class AOTInductorModelBase<AOTInductorModel>;"
NAMESPACE = "namespace torch::aot_inductor {{ {} }}\n"
MODEL = "#include <torch/csrc/inductor/aoti_runtime/model.h>\n" + NAMESPACE.format(f"extern {BASE}")


def torch_folder() -> Path:
    """Where torch is, without importing it."""
    found = importlib.util.find_spec("torch")
    if found is None or not found.submodule_search_locations:
        raise ImportError("No module named 'torch'")
    return Path(found.submodule_search_locations[0])


class Shared:
    """What packages share on disk: a precompiled header and the objects that all are linked with."""

    def __init__(
        self, folder: Path, device: str, cuda_home: str | None, torch_version: str
    ) -> None:
        torch = torch_folder()
        self.header_name = f"torch/csrc/inductor/aoti_include/{device}.h"
        interface = torch / "_inductor" / "codegen" / "aoti_runtime" / "interface.cpp"
        self.interface = interface.read_text().strip()
        compiler = os.environ.get("CXX") or "g++"
        # It only launches: no optimization. The definitions are Inductor's.
        self.words = [
            compiler, "-std=c++17", "-fPIC", "-O0", "-w", "-DTORCH_INDUCTOR_CPP_WRAPPER",
            "-DSTANDALONE_TORCH_HEADER", "-DC10_USING_CUSTOM_GENERATED_MACROS",
            f"-I{torch / 'include'}", f"-I{torch / 'include/torch/csrc/api/include'}",
        ]  # fmt: skip
        if cuda_home:
            self.words += ["-DUSE_CUDA", f"-I{cuda_home}/include"]
        program = Path(shutil.which(compiler) or compiler).resolve()
        age = program.stat().st_mtime_ns if program.exists() else 0
        told = f"{self.words} {program} {age} {torch_version}"
        key = hashlib.sha256(told.encode()).hexdigest()[:16]
        self.header = folder / key / "wrapper.h"
        self._lock = folder / key / "lock"
        self._objects = [folder / key / name for name in ("interface.o", "base.o")]

    def start(self, fork: Callable[..., Any]) -> None:
        """Builds in a process of its own what is not there and nobody is building."""
        self.header.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._lock, os.O_CREAT | os.O_RDWR, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not self._complete():
                fork(self._build)  # holds the lock until it ends, however it does
        except OSError:
            pass  # another process builds them, or locks are not to be had
        finally:
            os.close(handle)

    def _complete(self) -> bool:
        return all(path.exists() for path in [self._gch, *self._objects])

    @property
    def _gch(self) -> Path:
        return self.header.with_name(f"{self.header.name}.gch")

    def _build(self) -> None:
        for part in self.header.parent.glob("*.part"):  # of one that was killed
            part.unlink(missing_ok=True)
        self.header.write_text(f"#include <{self.header_name}>\n")
        if self._run(["-x", "c++-header", str(self.header)], self._gch).wait() != 0:
            return  # who compiles a package will see why
        texts = [MODEL + self.interface, MODEL.replace("extern ", "")]
        jobs = []
        for path, text in zip(self._objects, texts, strict=True):
            source = path.with_suffix(".cpp")
            source.write_text(text + "\n")
            jobs.append(self._run(["-include", str(self.header), "-c", str(source)], path))
        for job in jobs:
            job.wait()

    def _run(self, words: list[str], path: Path) -> subprocess.Popen[bytes]:
        # It is there whole or not at all.
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        script = 'part=$1; shift; "$@" && mv "$part" "$0"'
        command = [*self.words, *words, "-o", str(part)]
        return subprocess.Popen(["sh", "-c", script, str(path), str(part), *command])

    def objects(self) -> list[str]:
        """The objects to link with, once they are there; none where they cannot be had."""
        with self._lock.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
        return [str(path) for path in self._objects] if self._complete() else []

    def wait_for_header(self) -> bool:
        """Whether it can be used. It is there before the objects, which need it too."""
        return self._gch.exists() or bool(self.objects())

    def compile(self, source: Path, target: str) -> bool:
        """Compiles a package's code without interface.cpp. False where that does not work."""
        text = source.read_text()
        if not self.wait_for_header() or self.interface_of(text) is None:
            return False
        own = source.with_suffix(".own.cpp")
        own.write_text(text.replace(str(self.interface_of(text)), MODEL))
        words = ["-include", str(self.header), "-c", str(own), "-o", target]
        return subprocess.run([*self.words, *words], check=False).returncode == 0

    def interface_of(self, text: str) -> str | None:
        """interface.cpp as it stands in a package's code."""
        lines = [line.rstrip() for line in self.interface.splitlines()]
        whole = [line.rstrip() for line in text.splitlines()]
        if lines[0] not in whole:
            return None
        first = whole.index(lines[0])
        if whole[first : first + len(lines)] != lines:
            return None
        return "\n".join(text.splitlines()[first : first + len(lines)])


class WrapperBuilds:
    """Stands in for CppBuilder.build: one package's objects, and its library made of them."""

    def __init__(self, shared: Shared, build: Any) -> None:
        self._shared = shared
        self._build = build
        self._apart = False  # the package's code was compiled without interface.cpp

    def __call__(self, builder: Any) -> None:
        source = Path(builder._sources_args)
        if builder._compile_only and source.name.endswith(".wrapper.cpp"):
            self._apart = self._shared.compile(source, builder.get_target_file_path())
            if not self._apart:
                print(f"{source} is compiled in Inductor's way", file=sys.stderr)
                self._build(builder)
        elif builder._do_link:
            self._link(builder)
        else:
            self._build(builder)

    def _link(self, builder: Any) -> None:
        from torch._inductor import exc

        if self._apart:
            objects = self._shared.objects()
            if not objects:
                raise RuntimeError(f"{self._shared.header.parent} lacks what packages share")
            builder._sources_args += " " + " ".join(objects)
        flags_before = builder._ldflags_args
        if shutil.which("ld.gold"):  # half of ld's time, which is torch's tables of symbols
            builder._ldflags_args += " -fuse-ld=gold "
        try:
            self._build(builder)
        except exc.CppCompileError:
            if builder._ldflags_args == flags_before:
                raise
            builder._ldflags_args = flags_before  # it may not understand newer libraries
            self._build(builder)


@functools.cache
def precompiled_prefix(header: str, command_line: str, **compile_command: Any) -> str:
    """Stands in for Inductor's function of this purpose, which runs the preprocessor and a checksum
    program first in each process. Here compiler and torch version name the file, once a folder.
    """
    import torch
    from torch._inductor import codecache, cpp_builder

    options = cpp_builder.CppTorchDeviceOptions(**compile_command, precompiling=True)
    version = cpp_builder.get_compiler_version_info(options.get_compiler())
    told = sorted(f"{name}={value}" for name, value in compile_command.items())
    _, path = codecache.write(
        content=f"#include <{header}>\n",
        extension="h",
        extra=f"{command_line} {told} {version} {torch.__version__}",
        specified_dir=str(Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) / "headers"),
    )
    builder = cpp_builder.CppBuilder(name=path, sources=path, BuildOption=options)
    codecache._worker_compile_cpp(f"{path}.lock", (builder,))
    return path


def prepare_prefix(device: str) -> None:
    """Builds the header of CPU kernels while others still trace; who needs it waits at its lock."""
    from torch._inductor import codecache, cpp_builder, cpu_vec_isa

    prefix = codecache._get_cpp_prefix_header(device)
    if not prefix:
        return
    isa = cpu_vec_isa.pick_vec_isa()
    # As in AotCodeCompiler.compile: the flags are part of the header's name.
    options = cpp_builder.CppTorchDeviceOptions(vec_isa=isa, device_type=device, aot_mode=True)
    builder = cpp_builder.CppBuilder(name="o", sources="i", BuildOption=options)
    precompiled_prefix(
        prefix,
        repr(builder.get_command_line()),
        aot_mode=True,
        device_type=device,
        use_mmap_weights=False,
        use_mmap_weights_external=False,
        use_relative_path=False,
        vec_isa=isa,
    )
