"""How the C++ code of packages, which launches their kernels, is compiled fast.

What is the same in every package is compiled once, while others still import and trace: its headers,
and the functions by which a package is called (interface.cpp of AOTInductor, which Inductor copies
into the code of each). A package's own code is compiled without them and linked with their object.
"""

import contextlib
import functools
import os
import shutil
from pathlib import Path
from typing import Any

MODEL_HEADER = "torch/csrc/inductor/aoti_runtime/model.h"
BASE_CLASS = "template class AOTInductorModelBase<AOTInductorModel>;"
NAMESPACE = "namespace torch::aot_inductor {{ {} }}\n"


@functools.cache
def precompiled_header(header: str, command_line: str, **compile_command: Any) -> str:
    """Stands in for Inductor's function of this purpose, which runs the preprocessor and a checksum
    program first in each process. Here compiler and torch version name the file, once a folder.
    """
    from torch._inductor import codecache, cpp_builder

    options = cpp_builder.CppTorchDeviceOptions(**compile_command, precompiling=True)
    path = named_by_content(f"#include <{header}>\n", "h", command_line, compile_command, options)
    builder = cpp_builder.CppBuilder(name=str(path), sources=str(path), BuildOption=options)
    codecache._worker_compile_cpp(f"{path}.lock", (builder,))
    return str(path)


def named_by_content(
    content: str, extension: str, command_line: str, compile_command: Any, options: Any
) -> Path:
    """Writes a source file whose name tells all that its compiled form depends on."""
    import torch
    from torch._inductor import codecache, cpp_builder

    version = cpp_builder.get_compiler_version_info(options.get_compiler())
    told = sorted(f"{name}={value}" for name, value in compile_command.items())
    _, path = codecache.write(
        content=content,
        extension=extension,
        extra=f"{command_line} {told} {version} {torch.__version__}",
        specified_dir=str(Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) / "headers"),
    )
    return Path(path)


@functools.cache
def interface_text() -> list[str]:
    """interface.cpp, line by line."""
    from torch._inductor import codegen

    file = Path(codegen.__file__).parent / "aoti_runtime" / "interface.cpp"
    return [line.rstrip() for line in file.read_text().strip().splitlines()]


@functools.cache
def interface_object(device: str) -> str:
    """The object file of interface.cpp and of the template that every package instantiates."""
    from torch._inductor import codecache, cpp_builder

    line, command = flags(device)
    header = codecache._get_cpp_wrapper_header(device, aot_mode=True)
    options = cpp_builder.CppTorchDeviceOptions(compile_only=True, min_optimize=True, **command)
    options.precompiled_header = precompiled_header(header, line, min_optimize=True, **command)
    text = "\n".join([*interface_text(), NAMESPACE.format(BASE_CLASS)])
    path = named_by_content(text, "cpp", line, command, options)
    builder = cpp_builder.CppBuilder(
        name=path.stem, sources=str(path), output_dir=str(path.parent), BuildOption=options
    )
    codecache._worker_compile_cpp(f"{path}.lock", (builder,))
    return builder.get_target_file_path()


def flags(device: str) -> tuple[str, dict[str, Any]]:
    """As in AotCodeCompiler.compile: they are part of the names of what is compiled."""
    from torch._inductor import cpp_builder, cpu_vec_isa

    isa = cpu_vec_isa.pick_vec_isa()
    options = cpp_builder.CppTorchDeviceOptions(vec_isa=isa, device_type=device, aot_mode=True)
    line = repr(
        cpp_builder.CppBuilder(name="o", sources="i", BuildOption=options).get_command_line()
    )
    return line, {
        "aot_mode": True,
        "device_type": device,
        "use_mmap_weights": False,
        "use_mmap_weights_external": False,
        "use_relative_path": False,
        "vec_isa": isa,
    }


def prepare_wrappers(device: str) -> None:
    """Compiles what packages share while others still trace; who needs it waits at its lock."""
    from torch._inductor import codecache

    interface_object(device)
    line, command = flags(device)
    if prefix := codecache._get_cpp_prefix_header(device):
        precompiled_header(prefix, line, **command)


def without_interface(source: Path) -> bool:
    """Takes interface.cpp out of a package's code. False where it is not there as expected, so that
    the code has to be compiled as it is."""
    lines = [line.rstrip() for line in source.read_text().splitlines()]
    wanted = interface_text()
    with contextlib.suppress(ValueError):
        first = lines.index(wanted[0])
        if lines[first : first + len(wanted)] == wanted:
            includes = [line for line in wanted if line.startswith("#include <") and "/" not in line]
            extern = NAMESPACE.format(f"extern {BASE_CLASS}")
            lines[first : first + len(wanted)] = [f"#include <{MODEL_HEADER}>", *includes, extern]
            source.write_text("\n".join(lines) + "\n")
            return True
    return False


class WrapperBuilds:
    """Stands in for CppBuilder.build: one package's objects, and its library made of them."""

    def __init__(self, device: str, build: Any) -> None:
        self._device = device
        self._build = build
        self._apart = False  # the package's code was compiled without interface.cpp

    def __call__(self, builder: Any) -> None:
        source = Path(builder._sources_args)
        if builder._compile_only and source.name.endswith(".wrapper.cpp"):
            self._compile(builder, source)
        elif builder._do_link:
            self._link(builder)
        else:
            self._build(builder)

    def _compile(self, builder: Any, source: Path) -> None:
        whole = source.read_text()
        self._apart = without_interface(source)
        try:
            self._build(builder)
        finally:
            source.write_text(whole)  # what the package shows is complete

    def _link(self, builder: Any) -> None:
        from torch._inductor import exc

        if self._apart:
            builder._sources_args += f" {interface_object(self._device)}"
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
