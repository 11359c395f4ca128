"""capture.py on its own: no GPU is touched before it forks, the compiler finds what it needs, failures
come with their cause."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

CAPTURE = Path(__file__).resolve().parents[2] / "src" / "compile" / "capture.py"

# In place of the driver's library: says so on standard error when somebody starts it.
DRIVER = r"""
#include <stdio.h>
#include <string.h>
int cuDriverGetVersion(int* version) { *version = 13000; return 0; }
int cuInit(unsigned flags) { (void)flags; fputs("the driver was started\n", stderr); return 100; }
int cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long long flags,
                        void* status) {
  (void)version; (void)flags; (void)status;
  if (strcmp(name, "cuInit") == 0) fputs("the driver was started\n", stderr);
  *function = 0;
  return 500;
}
"""

PARENT = """
import json, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import capture
request = json.loads(sys.argv[2])
capture.environment(request)
Path(sys.argv[3]).mkdir()
capture.prepare(request, Path(sys.argv[3]), capture.shared_of(request))
import torch
if os.fork() == 0:
    os._exit(torch.cuda._is_in_bad_fork())
bad_fork = os.waitstatus_to_exitcode(os.wait()[1])
print("prepared", file=sys.stderr, flush=True)
torch.cuda.is_available()
print(json.dumps([bad_fork, os.environ["CUDA_HOME"], os.environ["LIBRARY_PATH"]]))
"""


@pytest.fixture(scope="module")
def gpu_machine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a machine with a driver, or so it seems, and without a CUDA toolkit."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.c").write_text(DRIVER)
    library = folder / "libcuda.so.1"
    words = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", "-o", library]
    subprocess.run([*words, folder / "driver.c"], check=True)
    path = f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    return os.environ | {"LD_LIBRARY_PATH": path, "CUDA_HOME": "/nowhere", "LIBRARY_PATH": ""}


def request(folder: Path, device: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    """A request as trainsuite writes it."""
    return {
        "device": device,
        "architecture": "sm_90",
        "attention": "auto",
        "deterministic": False,
        "ops_library": os.environ["TRAINSUITE_OPS_LIBRARY"],
        "torch_version": torch.__version__,
        "work_folder": str(folder / "work"),
        "blocks": list(blocks),
    }


def tracing(folder: Path) -> Any:
    """The module capture, ready to trace in this process."""
    sys.path.insert(0, str(CAPTURE.parent))
    import capture

    wanted = request(folder, "cpu")
    capture.prepare(wanted, folder, capture.shared_of(wanted))
    return capture


def test_the_parent_leaves_the_gpu_to_its_children(
    tmp_path: Path, gpu_machine: dict[str, str]
) -> None:
    """Nothing starts the driver before the fork."""
    wanted = json.dumps(request(tmp_path, "cuda"))
    ended = subprocess.run(
        [sys.executable, "-c", PARENT, str(CAPTURE.parent), wanted, tmp_path / "made"],
        env=gpu_machine, capture_output=True, text=True, timeout=120, check=True,
    )
    before, after = ended.stderr.split("prepared")
    assert "the driver was started" not in before
    assert "the driver was started" in after  # the stand-in does its part
    bad_fork, cuda_home, library_path = json.loads(ended.stdout)
    assert bad_fork == 0

    # The wheels' headers and the driver's library as it is found at run time are enough to build.
    (tmp_path / "user.cpp").write_text("#include <cuda.h>\nint f() { return cuInit(0); }\n")
    subprocess.run(
        ["g++", "-shared", "-fPIC", f"-I{cuda_home}/include", tmp_path / "user.cpp", "-lcuda", "-o",
         tmp_path / "user.so"],
        env=os.environ | {"LIBRARY_PATH": library_path}, check=True,
    )
    needed = subprocess.run(
        ["readelf", "-d", tmp_path / "user.so"], capture_output=True, text=True, check=True
    ).stdout
    assert "[libcuda.so.1]" in needed


def test_the_last_line_says_what_failed_and_why(
    tmp_path: Path, gpu_machine: dict[str, str]
) -> None:
    """A block whose tensors do not fit together; on two packages it is one cause."""
    tensors = [{"shape": [2, 3], "dtype": "float32", "gradient": True}] * 3
    block = {
        "name": "wrong", "op": "linear_cross_entropy", "tensors": tensors,
        "arguments": [{"tensor": 0}, {"tensor": 1}, {"tensor": 2}],
    }
    (tmp_path / "request.json").write_text(json.dumps(request(tmp_path, "cuda", block)))
    ended = subprocess.run(
        [sys.executable, CAPTURE, tmp_path / "request.json", tmp_path / "made"],
        env=gpu_machine, capture_output=True, text=True, timeout=120,
    )
    assert ended.returncode == 1
    said = ended.stderr.splitlines()[-1]
    assert said.startswith("capture.py: wrong/backward, wrong/forward: "), said
    assert "Error: " in said, said


def test_a_quantized_block_keeps_no_matrix_for_backward(tmp_path: Path) -> None:
    """What forward hands to backward is codes and activations; each matrix is dequantized again."""
    capture = tracing(tmp_path)
    width, hidden, rank, key = 48, 80, 2, 16  # 3 query heads, 1 of keys and values, 16 wide
    matrices = [(width + 2 * key, width), (width, width), (2 * hidden, width), (width, hidden)]
    tensors = [([5, 7, width], "float32", True)]
    for parts, (out, columns) in zip((3, 1, 2, 1), matrices, strict=True):
        tensors += [([parts * rank, columns], "float32", True), ([out, rank], "float32", True)]
    for index, (out, columns) in enumerate(matrices):
        if index in (0, 2):
            tensors.append(([width], "float32", False))
        tensors.append(([out * columns // 2], "uint8", False))
        tensors.append((([-(-out * columns // 64)]), "float32", False))
    tensors += [([7, key // 2], "float32", False)] * 2
    block = {
        "op": "decoder_adapted_block",
        "tensors": [
            {"shape": shape, "dtype": dtype, "gradient": gradient}
            for shape, dtype, gradient in tensors
        ],
        "arguments": [
            {"tensor": 0}, {"tensors": [9, 10]}, {"tensors": [1, 8]}, {"tensor": 19},
            {"tensor": 20}, 3, 1, 1e-6, 2.0, False,
        ],
    }
    graph, _ = capture.trace(block, "cpu")["forward"]
    outputs = next(node for node in graph.graph.nodes if node.op == "output").args[0]
    kept = [tuple(node.meta["val"].shape) for node in outputs if hasattr(node, "meta")]
    assert (matrices[0][0] * width // 2,) in kept  # codes
    for shape in matrices:
        assert shape not in kept and shape[::-1] not in kept


def llama_block(fused: bool) -> dict[str, object]:
    """Two heads, bf16, 2 x 64 tokens, 128 wide."""
    batch, sequence, width, hidden, heads = 2, 64, 128, 512, 2
    shapes = [[batch, sequence, width], [width], [3 * width, width], [width, width], [width],
              [2 * hidden, width], [width, hidden]]
    tensors = [{"shape": shape, "dtype": "bfloat16", "gradient": True} for shape in shapes]
    angles = [sequence, width // heads // 2]
    tensors += [{"shape": angles, "dtype": "float32", "gradient": False}] * 2
    return {
        "op": "decoder_block", "tensors": tensors,
        "arguments": [{"tensor": 0}, {"tensors": [1, 6]}, {"tensor": 7}, {"tensor": 8}, heads,
                      heads, 1e-6, False, fused],
    }


def operators(graph: Any) -> list[str]:
    """Of this project, by name, in order."""
    names = (str(node.target) for node in graph.graph.nodes if node.op == "call_function")
    return [name.split(".")[1] for name in names if name.startswith("trainsuite.")]


def test_kernels_of_ours_are_operators_of_a_fused_block(tmp_path: Path) -> None:
    """Each is one node of the traced graph: what is compiled calls it."""
    capture = tracing(tmp_path)
    graphs = capture.trace(llama_block(fused=True), "cpu")
    assert operators(graphs["forward"][0]) == [
        "rms_norm_rows", "rotary_joined", "rms_norm_rows", "swiglu"
    ]
    assert operators(graphs["backward"][0]) == [
        "swiglu_backward", "rms_norm_rows_backward", "rotary_joined", "rms_norm_rows_backward"
    ]
    assert operators(capture.trace(llama_block(fused=False), "cpu")["forward"][0]) == []


@pytest.mark.parametrize("fused", [False, True])
def test_a_block_keeps_no_more_for_backward_than_its_activations(
    tmp_path: Path, fused: bool
) -> None:
    """Llama, bf16: what is kept of a token, views by the memory that they hold alive."""
    capture = tracing(tmp_path)
    batch, sequence, width, hidden, heads = 2, 64, 128, 512, 2
    graph, _ = capture.trace(llama_block(fused), "cpu")["forward"]
    outputs = next(node for node in graph.graph.nodes if node.op == "output").args[0]
    inputs = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
    storages = {value.untyped_storage()._cdata for value in (*inputs, outputs[0].meta["val"])}
    kept = 0
    for value in (node.meta["val"] for node in outputs):
        if value.untyped_storage()._cdata in storages:  # weights, the input, the output
            continue
        storages.add(value.untyped_storage()._cdata)
        kept += value.untyped_storage().nbytes()
    # Two norms' outputs, q, k, v, what attention gives, the stream between; gate, up, their product.
    # The fused block computes the norms' outputs and that product again.
    bf16_values = (5 if fused else 7) * width + (2 if fused else 3) * hidden
    numbers = 2 * 2 + heads  # fp32: of norms (mean square's root) and of attention (log of the sum)
    assert kept <= batch * sequence * (2 * bf16_values + 4 * numbers)


def test_a_fused_head_is_one_operator_in_the_graph(tmp_path: Path) -> None:
    """The product, the loss and the gradient of the logits; else Inductor would make them anew."""
    capture = tracing(tmp_path)
    batch, sequence, width, vocabulary = 2, 8, 16, 40
    for op, vectors, numbers in (("gpt2_head_loss", 2, [1.0]), ("decoder_head_loss", 1, [1.0, 1e-6])):
        shapes = [[batch, sequence, width], *[[width]] * vectors, [vocabulary, width]]
        tensors = [{"shape": shape, "dtype": "bfloat16", "gradient": True} for shape in shapes]
        tensors.append({"shape": [batch, sequence], "dtype": "int64", "gradient": False})
        arguments = [{"tensor": index} for index in range(len(tensors))]
        for fused in (True, False):
            block = {"op": op, "tensors": tensors, "arguments": [*arguments, *numbers, fused]}
            graphs = capture.trace(block, "cpu")
            nodes = list(graphs["forward"][0].graph.nodes)
            names = [str(node.target) for node in nodes if node.op == "call_function"]
            assert names.count("trainsuite.linear_cross_entropy_rows.default") == int(fused), names


def test_a_compiler_that_cannot_prepare_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages are then compiled in Inductor's own way."""
    sys.path.insert(0, str(CAPTURE.parent))
    from capture_wrapper import Shared

    monkeypatch.setenv("CXX", "false")
    shared = Shared(tmp_path / "shared", "cpu", None, torch.__version__)
    source = tmp_path / "x.wrapper.cpp"
    source.write_text(f"// before\n{shared.interface}\n// after\n")
    assert shared.interface_of(source.read_text()) is not None
    assert shared.interface_of("int x;\n" + shared.interface[:-9]) is None
    started: list[Any] = []
    shared.start(lambda work: started.append(work()))
    assert len(started) == 1
    assert shared.objects() == []
    assert not shared.compile(source, str(tmp_path / "x.o"))
    assert "after" in source.read_text()
