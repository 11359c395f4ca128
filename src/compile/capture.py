#!/usr/bin/env python3
"""Compiles functions of the ops library, forward and backward, to AOTInductor packages.

    capture.py REQUEST.json OUTPUT_FOLDER

trainsuite starts it; nothing else needs to. The request names the ops library, the torch version
that must be here, the device, options and the blocks: an op, its tensors (shape, dtype, whether a
gradient is wanted) and how its arguments are made of them. Each block gets a folder with
forward.pt2, backward.pt2 and block.json; timing.json says where the time went. Exit status 1 with
one line on standard error where something fails.

PyTorch is imported once and the packages are compiled side by side in forked children; the parent
does not touch CUDA, which would not survive the fork.
"""

import ctypes
import gc
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from capture_inductor import (
    configure,
    find_cuda,
    gpu_untouched,
    import_all,
    load_libraries,
    prepare_triton,
    provide_driver,
)
from capture_wrapper import Shared, WrapperBuilds, prepare_prefix

START = time.time()


def end_with_parent() -> None:
    """Asks the kernel to end this process when its parent ends, however that happens."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def environment(request: dict[str, Any]) -> None:
    """Inductor's, Triton's and CUDA's caches go where the request says; before torch is imported."""
    work = Path(request["work_folder"])
    work.mkdir(parents=True, exist_ok=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(work / "inductor")
    os.environ["TRITON_CACHE_DIR"] = str(work / "triton")
    os.environ["CUDA_CACHE_PATH"] = str(work / "cuda")


class Parts:
    """Seconds spent in named parts of a child's work; nested parts are not counted twice."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._stack: list[float] = []

    def timed(self, name: str, function: Any) -> Any:
        """`function`, its own time added to the part `name`."""

        def run(*args: Any, **keywords: Any) -> Any:
            begin = time.time()
            self._stack.append(0.0)
            try:
                return function(*args, **keywords)
            finally:
                taken = time.time() - begin
                inner = self._stack.pop()
                self.seconds[name] = self.seconds.get(name, 0.0) + taken - inner
                if self._stack:
                    self._stack[-1] += taken

        return run


def make_inputs(block: dict[str, Any], device: str) -> list[Any]:
    """Tensors without contents, for use within a FakeTensorMode."""
    import torch

    return [
        torch.empty(
            tensor["shape"],
            dtype=getattr(torch, tensor["dtype"]),
            device=device,
            requires_grad=tensor["gradient"],
        )
        for tensor in block["tensors"]
    ]


def bind(block: dict[str, Any]) -> Any:
    """The block's op as a function of its tensors alone."""
    import torch

    op = getattr(torch.ops.trainsuite, block["op"])

    def argument(description: Any, tensors: tuple[Any, ...]) -> Any:
        if not isinstance(description, dict):
            return description
        if "tensor" in description:
            return tensors[description["tensor"]]
        first, count = description["tensors"]
        return list(tensors[first : first + count])

    return lambda *tensors: op(*(argument(one, tensors) for one in block["arguments"]))


def trace(block: dict[str, Any], device: str) -> dict[str, Any]:
    """{"forward": (graph, inputs), "backward": ...} of one block."""
    from functorch.compile import make_boxed_func
    from torch._functorch.aot_autograd import aot_function
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table
    from torch._subclasses import FakeTensorMode

    graphs: dict[str, Any] = {}

    def keep(which: str) -> Any:
        def compiler(graph: Any, inputs: Any) -> Any:
            graphs[which] = (graph, list(inputs))
            return make_boxed_func(graph.forward)

        return compiler

    function = aot_function(
        bind(block),
        fw_compiler=keep("forward"),
        bw_compiler=keep("backward"),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=select_decomp_table(),
    )
    with FakeTensorMode(allow_non_fake_inputs=True):
        result = function(*make_inputs(block, device))
        result.sum().backward()
    return graphs


def drop_missing_outputs(graph: Any) -> list[int]:
    """Removes the outputs that are None and returns the positions of the others."""
    output = next(node for node in graph.graph.nodes if node.op == "output")
    values = list(output.args[0])
    kept = [index for index, value in enumerate(values) if value is not None]
    output.args = (tuple(values[index] for index in kept),)
    graph.recompile()
    return kept


def compile_package(graph: Any, inputs: list[Any], path: Path) -> list[int]:
    """Writes the graph as a package; returns which of its outputs there are."""
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_aot
    from torch._inductor.package import package_aoti

    kept = drop_missing_outputs(graph)
    with config.patch({"aot_inductor.package": True}):
        files = compile_fx_aot(graph, inputs)
    package_aoti(str(path), files)
    return kept


def child(block: dict[str, Any], which: str, request: dict[str, Any], output: Path,
          shared: Shared, traced: dict[str, Any] | None) -> None:
    """One package, in its own process; its facts go to <block>/<which>.json."""
    from torch._inductor import async_compile, cpp_builder

    begin = time.time()
    parts = Parts()
    build = WrapperBuilds(shared, cpp_builder.CppBuilder.build)
    cpp_builder.CppBuilder.build = parts.timed("wrapper", lambda builder: build(builder))
    async_compile.AsyncCompile.wait = parts.timed("kernels", async_compile.AsyncCompile.wait)
    graphs = traced or parts.timed("trace", trace)(block, request["device"])
    graph, inputs = graphs[which]
    folder = output / block["name"]
    kept = parts.timed("inductor", compile_package)(graph, inputs, folder / f"{which}.pt2")
    facts = {
        "outputs": kept,
        "inputs": len(inputs),
        "seconds": parts.seconds,
        "total_seconds": time.time() - begin,
    }
    (folder / f"{which}.json").write_text(json.dumps(facts))


def run_to_the_end(cause: Path, function: Any, *arguments: Any) -> None:
    """What a forked child runs; an exception's text goes to the file `cause` as well."""
    end_with_parent()
    try:
        function(*arguments)
    except Exception as error:
        cause.write_text(in_one_line(error))
        raise


def in_one_line(error: Exception) -> str:
    """The exception's type, its first line and, of a compiler's output, the first error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines[1:] if "error:" in line]
    return ": ".join([type(error).__name__, *lines[:1], *told[:1]])[:500]


def cause_file(output: Path, name: str) -> Path:
    """Where the child of that name says why it failed."""
    return output / f"{name.replace('/', '-')}.cause"


def failures(output: Path, children: dict[str, Any]) -> str:
    """What to say of the children that failed, each cause once; empty where none did."""
    causes: dict[str, list[str]] = {}
    for name, process in children.items():
        if process.exitcode == 0:
            continue
        file = cause_file(output, name)
        said = file.read_text() if file.exists() else f"ended with status {process.exitcode}"
        causes.setdefault(said, []).append(name)
    return "; ".join(f"{', '.join(names)}: {cause}" for cause, names in causes.items())


def start(output: Path, name: str, *work: Any, helper: bool = False) -> Any:
    """A forked process that does `work`, a function and its arguments; a helper ends with this one."""
    fork = multiprocessing.get_context("fork")
    arguments = (cause_file(output, name), *work)
    process = fork.Process(target=run_to_the_end, args=arguments, daemon=helper)
    process.start()
    return process


def start_children(
    request: dict[str, Any], output: Path, shared: Shared, parts: Parts
) -> dict[str, Any]:
    """A process a package; {name: process}."""
    children = {}
    for block in request["blocks"]:
        (output / block["name"]).mkdir(parents=True)
        # On a GPU tracing asks the device which attention kernel fits, so each child does it.
        on_cpu = request["device"] == "cpu"
        traced = parts.timed("trace", trace)(block, "cpu") if on_cpu else None
        for which in ("backward", "forward"):
            name = f"{block['name']}/{which}"
            work = (child, block, which, request, output, shared, traced)
            children[name] = start(output, name, *work)
    return children


def shared_of(request: dict[str, Any]) -> Shared:
    """What this request's packages share."""
    cuda_home = find_cuda() if request["device"] == "cuda" else None
    folder = Path(request["work_folder"]) / "shared"
    return Shared(folder, request["device"], cuda_home, request["torch_version"])


def prepare(request: dict[str, Any], output: Path, shared: Shared) -> None:
    """What all children need, done once before they are forked."""
    load_libraries()
    import torch

    if torch.__version__ != request["torch_version"]:
        raise RuntimeError(
            f"this Python has torch {torch.__version__}, trainsuite was started with "
            f"{request['torch_version']}"
        )
    with gpu_untouched(request["device"]):
        if request["device"] == "cuda":
            provide_driver(output / "driver")
        import_all()
        configure(request, shared)
        torch.ops.load_library(request["ops_library"])
        torch.ops.trainsuite.use_attention(request["attention"])


def run(request: dict[str, Any], output: Path) -> None:
    """Compiles all blocks and writes timing.json.

    Helpers build beside this process what packages share. One that fails is missed by nobody: who
    needs its work does it then, and says why it cannot.
    """
    output.mkdir(parents=True, exist_ok=True)
    shared = shared_of(request)
    shared.start(lambda work: start(output, "shared", work, helper=True))
    if request["device"] == "cuda":
        start(output, "triton", prepare_triton, helper=True)
    prepare(request, output, shared)
    if request["device"] == "cpu":
        start(output, "prefix", prepare_prefix, "cpu", helper=True)
    parts = Parts()
    parts.seconds["import"] = time.time() - START
    children = start_children(request, output, shared, parts)
    for process in children.values():
        process.join()
    if failed := failures(output, children):
        raise RuntimeError(failed)
    # The parts of the child that took longest: they add up to about what was waited for.
    facts = {name: json.loads((output / f"{name}.json").read_text()) for name in children}
    for name, one in facts.items():
        print(f"{name}: {one['total_seconds']:.2f} s, {one['seconds']}", flush=True)
    slowest = max(facts.values(), key=lambda one: one["total_seconds"])
    for name, seconds in slowest["seconds"].items():
        parts.seconds[name] = parts.seconds.get(name, 0.0) + seconds
    (output / "timing.json").write_text(json.dumps(parts.seconds))


def main(argv: list[str]) -> int:
    """Runs the request; returns the exit status."""
    end_with_parent()
    gc.disable()  # a fifth of the time of importing; forked children inherit it
    request = json.loads(Path(argv[1]).read_text())
    environment(request)
    warnings.filterwarnings("ignore", category=FutureWarning)
    try:
        run(request, Path(argv[2]))
    except (ImportError, OSError, RuntimeError) as error:
        traceback.print_exc()
        print(f"capture.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
