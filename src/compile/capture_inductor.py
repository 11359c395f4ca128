"""How capture.py sets Inductor up: settings, vector instructions, what is known without asking."""

import contextlib
import ctypes
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import capture_wrapper


@contextlib.contextmanager
def gpu_untouched(device: str) -> Iterator[None]:
    """Within it PyTorch is told that there is a GPU, where `device` is one, rather than left to ask
    the driver: modules of Inductor ask while they are imported, and a process that has asked once
    cannot have forked children that use CUDA.
    """
    import torch

    if device != "cuda":
        yield
        return
    ask = torch._C._cuda_getDeviceCount
    torch._C._cuda_getDeviceCount = lambda: 1  # the one that trainsuite runs on
    try:
        yield
    finally:
        torch._C._cuda_getDeviceCount = ask
    if torch.cuda.is_initialized():
        raise RuntimeError("CUDA was initialized before the compiling processes were started")


def vector_isas(device: str) -> list[Any]:
    """What Inductor's CPU code may use. The processor's word is taken for it: Inductor's own probes
    are ten g++ runs a package, each with a Python that imports torch. GPU graphs hold no CPU code.
    """
    import torch
    from torch._inductor import cpu_vec_isa

    if device == "cuda":
        return []
    if torch.cpu._is_avx512_supported():
        return [cpu_vec_isa.VecAVX512()]
    return [cpu_vec_isa.VecAVX2()] if torch.cpu._is_avx2_supported() else []


def load_libraries() -> None:
    """Loads PyTorch's libraries in a thread, while Python modules that PyTorch needs are imported."""
    folder = capture_wrapper.torch_folder() / "lib"

    def load() -> None:
        with contextlib.suppress(OSError):  # the import will say so
            ctypes.CDLL(str(folder / "libtorch_global_deps.so"), mode=ctypes.RTLD_GLOBAL)
            ctypes.CDLL(str(folder / "libtorch_python.so"))

    thread = threading.Thread(target=load)
    thread.start()
    import networkx  # noqa: F401
    import sympy  # noqa: F401

    thread.join()


def import_all() -> None:
    """What the forked children need of torch is imported once, before them."""
    import torch._functorch.aot_autograd
    import torch._functorch.partitioners
    import torch._inductor.async_compile
    import torch._inductor.codegen.cpp_wrapper_cpu
    import torch._inductor.codegen.cpp_wrapper_gpu
    import torch._inductor.compile_fx
    import torch._inductor.constant_folding
    import torch._inductor.cpp_builder
    import torch._inductor.fx_passes.joint_graph
    import torch._inductor.fx_passes.post_grad
    import torch._inductor.graph
    import torch._inductor.package
    import torch.utils.cpp_extension  # noqa: F401


def configure(request: dict[str, Any], shared: capture_wrapper.Shared) -> None:
    """Inductor's settings, the same for every package."""
    import torch
    from torch._inductor import codecache, config, cpu_vec_isa
    from torch._inductor.fx_passes import fuse_attention

    cpu_vec_isa.valid_vec_isa_list = lambda: vector_isas(request["device"])
    config.cpp.vec_isa_ok = True
    cpu_vec_isa.VecISA.check_build = lambda isa, code: False  # of extensions beyond the plain ISA
    prefix = capture_wrapper.precompiled_prefix
    codecache._precompile_header = lambda header, line, **command: (
        str(shared.header) if header == shared.header_name else prefix(header, line, **command)
    )
    config.aot_inductor.compile_wrapper_opt_level = "O0"  # it only launches
    config.compile_threads = 1  # the packages are side by side already
    if request["device"] == "cuda":
        know_triton()
    fuse_attention._sfdp_init = lambda device: None  # our attention is an op, or naive on purpose
    torch.use_deterministic_algorithms(request["deterministic"])
    torch.set_num_threads(1)  # forked children could not use a parent's OpenMP threads


def know_triton() -> None:
    """Triton's key of its caches is a checksum over all of its files, 400 MB, taken in each process.
    Here the caches' folder is this installation's alone, so that its version will do.
    """
    import triton
    from torch._inductor.runtime import triton_compat
    from triton.runtime import autotuner, cache

    for module in (triton_compat, autotuner, cache):
        module.triton_key = lambda: triton.__version__


def prepare_triton() -> None:
    """Builds Triton's connection to the driver, which each process would build otherwise."""
    from triton.backends.nvidia import driver

    driver.CudaUtils()


def find_cuda() -> str:
    """The folder with CUDA's headers, also where PyTorch's wheels are all there is of CUDA; names it
    in CUDA_HOME, where PyTorch looks first. Before torch is imported.
    """
    compiler = shutil.which("nvcc")
    named = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    homes = [Path(home) for home in named if home]
    homes += [Path(compiler).resolve().parents[1]] if compiler else []
    homes.append(Path("/usr/local/cuda"))
    homes += sorted((capture_wrapper.torch_folder().parent / "nvidia").glob("*"))
    having = [home for home in homes if (home / "include" / "cuda_runtime_api.h").is_file()]
    if not having:
        raise RuntimeError("no CUDA headers: CUDA_HOME should name a folder with include/cuda.h")
    os.environ["CUDA_HOME"] = str(having[0])
    return str(having[0])


def provide_driver(folder: Path) -> None:
    """The driver's library by the name that linking asks for, in `folder`."""
    ctypes.CDLL("libcuda.so.1")  # loads it where it is found at run time; does not start the driver
    maps = Path("/proc/self/maps").read_text().splitlines()
    folder.mkdir(parents=True)
    driver = next(line.split(maxsplit=5)[5] for line in maps if "/libcuda.so" in line)
    (folder / "libcuda.so").symlink_to(driver)
    others = os.environ.get("LIBRARY_PATH")
    os.environ["LIBRARY_PATH"] = f"{folder}:{others}" if others else str(folder)
