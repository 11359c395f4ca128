"""Ranks, devices, process groups and the ops library."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from flags import UsageError

LINK_ENVIRONMENT: dict[str, dict[str, str]] = {
    "auto": {},
    "shm": {"NCCL_P2P_DISABLE": "1"},
    "socket": {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1"},
}
CONTROL_WAIT = timedelta(minutes=60)  # other ranks wait while rank 0 runs alone
TRAINING_WAIT = timedelta(minutes=5)  # a collective of the training
TRAINING_WAIT_CPU = timedelta(minutes=1)  # over gloo, where nothing else tells of a failed rank


class World:
    """Who is here, and talking among ranks outside the measured part."""

    def __init__(self, device: str, link: str, memory_limit_gib: float | None) -> None:
        if "RANK" not in os.environ and int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1")) > 1:
            raise UsageError("start several ranks with torchrun --nproc-per-node N, not mpirun")
        self.rank = int(os.environ.get("RANK", "0"))
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        self.device = choose_device(device, self.local_rank, local_size)
        self.cuda = self.device.type == "cuda"
        if link != "auto" and not self.cuda:
            raise UsageError(f"--link {link} needs GPUs: it switches paths of NCCL")
        if memory_limit_gib is not None and not self.cuda:
            raise UsageError("--memory-limit needs a GPU: it caps the CUDA allocator")
        os.environ.update(LINK_ENVIRONMENT[link])
        self._done_groups: list[dist.ProcessGroup] = []
        self.backend = "nccl" if self.cuda else "gloo"
        if self.cuda:
            activate(self.device, memory_limit_gib)

    def connect(self) -> None:
        """Joins the other ranks; a lone process is a world of one."""
        lone = dist.HashStore() if "RANK" not in os.environ else None
        where = {"store": lone, "rank": 0, "world_size": 1} if lone else {}
        dist.init_process_group("gloo", timeout=CONTROL_WAIT, **where)
        if self.cuda:
            uuid = str(torch.cuda.get_device_properties(self.device).uuid)
            uuids = self.all_gather(uuid)
            if len(set(uuids)) < len(uuids):
                raise UsageError("two ranks share one GPU: start at most one rank a GPU")

    @contextmanager
    def training_group(self) -> Iterator[dist.ProcessGroup]:
        """A fresh group for one case's gradients; collective. After a failure it is given up
        without waiting for ranks that may still be in a collective of it."""
        wait = TRAINING_WAIT if self.cuda else TRAINING_WAIT_CPU
        group = dist.new_group(backend=self.backend, timeout=wait)
        try:
            dist.all_reduce(torch.zeros(1, device=self.device), group=group)  # connects now
            yield group
        except BaseException:
            if self.cuda:
                group.abort()
            raise  # a gloo group is given up; ranks that wait in it reach its timeout
        self._done_groups.append(group)

    def drop_groups(self) -> None:
        """Ends the groups of cases that went well, once all ranks are known to be done."""
        while self._done_groups:
            group = self._done_groups.pop()
            if self.cuda:
                dist.destroy_process_group(group)

    def all_gather(self, thing: Any) -> list[Any]:
        """Every rank's object in rank order."""
        things = [None] * self.size
        dist.all_gather_object(things, thing)
        return things

    def broadcast(self, thing: Any) -> Any:
        """Rank 0's object."""
        things = [thing]
        dist.broadcast_object_list(things)
        return things[0]


def choose_device(requested: str, local_rank: int, local_size: int) -> torch.device:
    """By local rank. Raises UsageError where it cannot be had."""
    gpus = torch.cuda.device_count() if requested != "cpu" else 0
    if requested == "cuda" and gpus == 0:
        raise UsageError("--device cuda: no GPU is visible to this process")
    if gpus == 0:
        return torch.device("cpu")
    if gpus == 1:  # perhaps each rank is shown its own; World.connect looks
        return torch.device("cuda", 0)
    if local_size > gpus:
        raise UsageError(f"{local_size} ranks on a host with {gpus} GPUs: start at most {gpus}")
    return torch.device("cuda", local_rank)


def activate(device: torch.device, memory_limit_gib: float | None) -> None:
    """Makes the device current and caps its allocator."""
    torch.cuda.set_device(device)
    if memory_limit_gib is None:
        return
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, memory_limit_gib * 2**30 / total), device)


def release_memory(device: torch.device) -> None:
    """Returns what the last case left behind."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def find_ops_library(requested: str | None) -> Path:
    """The library that holds trainsuite's ops: weights, tokens and hashes.

    Order: --ops-library, TRAINSUITE_OPS_LIBRARY, beside the installed trainsuite, build/.
    """
    named = requested or os.environ.get("TRAINSUITE_OPS_LIBRARY")
    if named:
        if not Path(named).is_file():
            raise UsageError(f"ops library {named!r} is not a file")
        return Path(named)
    name = "libtrainsuite_ops.so"
    paths: list[Path] = []
    if binary := shutil.which("trainsuite"):
        folder = Path(binary).resolve().parent
        paths = [folder / name, folder.parent / "lib" / name]
    paths += sorted((Path(__file__).resolve().parents[2] / "build").glob(f"**/{name}"))
    for path in paths:
        if path.is_file():
            return path
    raise UsageError(
        "libtrainsuite_ops.so was not found (it makes the weights and tokens): build trainsuite, "
        "or name it with --ops-library or TRAINSUITE_OPS_LIBRARY"
    )


def load_ops(requested: str | None) -> None:
    """Loads the ops library; its ops are then under torch.ops.trainsuite."""
    if not hasattr(torch.ops.trainsuite, "random_tokens"):
        path = find_ops_library(requested)
        try:
            torch.ops.load_library(path)
        except OSError as error:
            raise UsageError(f"ops library {str(path)!r} cannot be loaded: {error}") from error


def leave(status: int) -> NoReturn:
    """Ends this rank; where all went well, once every rank is done.

    Without interpreter shutdown, and gloo's groups are never destroyed: tearing one down now and
    then ended the process with "terminate called without an active exception" (torch 2.11, two
    ranks on a CPU).
    """
    if dist.is_initialized() and status == 0:
        dist.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
