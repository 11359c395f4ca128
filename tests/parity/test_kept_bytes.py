"""What a compiled decoder block keeps for backward, as the tracer saves it: the number that
decoder_block_bytes foretells (tests/unit/test_decoder_account.cpp)."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "src" / "compile"))

import capture  # noqa: E402

FORETOLD = 41_032  # bytes a token and block of 468m in bf16


def tensor(*shape: int, dtype: str = "bfloat16", gradient: bool = True) -> dict[str, object]:
    return {"shape": list(shape), "dtype": dtype, "gradient": gradient}


def test_a_compiled_block_keeps_what_is_foretold(ops) -> None:
    width, heads, hidden, batch, sequence = 1024, 16, 4096, 2, 64
    rotary = tensor(sequence, width // heads // 2, dtype="float32", gradient=False)
    weights = [tensor(width), tensor(3 * width, width), tensor(width, width), tensor(width),
               tensor(2 * hidden, width), tensor(width, hidden)]
    block = {"op": "decoder_block", "tensors": [tensor(batch, sequence, width), *weights, rotary,
                                                rotary],
             "arguments": [{"tensor": 0}, {"tensors": [1, 6]}, {"tensor": 7}, {"tensor": 8}, heads,
                           heads, 1e-6, False]}
    graph, _ = capture.trace(block, "cpu")["forward"]
    (output,) = (node for node in graph.graph.nodes if node.op == "output")
    saved = {}  # by storage; views of weights and tables are held anyway
    for node in output.args[0][1:]:
        source = node
        while source.op == "call_function" and source.target in VIEWS:
            source = source.args[0]
        if source.op != "placeholder" or source.meta["val"].shape[:2] == (batch, sequence):
            saved[source.name] = node.meta["val"].nbytes
    assert sum(saved.values()) == FORETOLD * batch * sequence


VIEWS = {torch.ops.aten.permute.default, torch.ops.aten.view.default, torch.ops.aten.alias.default,
         torch.ops.aten.t.default, torch.ops.aten.expand.default}
