"""capture.py on its own: no GPU is touched before it forks, failures come with their cause."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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
sys.path.insert(0, sys.argv[1])
import capture
request = json.loads(sys.argv[2])
capture.environment(request)
capture.prepare(request)
import torch
if os.fork() == 0:
    os._exit(torch.cuda._is_in_bad_fork())
print("bad fork:", os.waitstatus_to_exitcode(os.wait()[1]))
if sys.argv[3] == "ask":
    torch.cuda.is_available()
"""


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


def test_the_parent_leaves_the_gpu_to_its_children(tmp_path: Path) -> None:
    """On a machine with a driver, or so it seems, nothing starts it before the fork."""
    (tmp_path / "driver.c").write_text(DRIVER)
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, tmp_path / "driver.c"], check=True)
    path = f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    words = [sys.executable, "-c", PARENT, str(CAPTURE.parent), json.dumps(request(tmp_path, "cuda"))]

    def run(then: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*words, then], env=os.environ | {"LD_LIBRARY_PATH": path}, capture_output=True,
            text=True, timeout=120, check=True,
        )

    ended = run("end")
    assert ended.stdout == "bad fork: 0\n"
    assert "the driver was started" not in ended.stderr
    assert "the driver was started" in run("ask").stderr  # the stand-in does its part


def test_the_last_line_says_what_failed_and_why(tmp_path: Path) -> None:
    """A block whose tensors do not fit together; on two packages it is one cause."""
    tensors = [{"shape": [2, 3], "dtype": "float32", "gradient": True}] * 3
    block = {
        "name": "wrong", "op": "linear_cross_entropy", "tensors": tensors,
        "arguments": [{"tensor": 0}, {"tensor": 1}, {"tensor": 2}],
    }
    (tmp_path / "request.json").write_text(json.dumps(request(tmp_path, "cuda", block)))
    ended = subprocess.run(
        [sys.executable, CAPTURE, tmp_path / "request.json", tmp_path / "made"],
        capture_output=True, text=True, timeout=120,
    )
    assert ended.returncode == 1
    said = ended.stderr.splitlines()[-1]
    assert said.startswith("capture.py: wrong/backward, wrong/forward: "), said
    assert "Error: " in said, said
