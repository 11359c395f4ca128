"""What the job scripts decide: ranks, communicator, missing packages, environment."""

import os
import shutil
from pathlib import Path
from typing import Callable

import pytest
from conftest import PREFIX, PROJECT, run

Stub = Callable[[str, str], Path]
TWO_GPUS = "echo 'GPU 0: A (UUID: GPU-0)'; echo 'GPU 1: A (UUID: GPU-1)'"


def run_job(
    stub: Stub, arguments: list[str], smi: str = TWO_GPUS, **environment: str
) -> tuple[list[str], str]:
    """mpirun's arguments, as jobs/run.sh passes them on a host with two GPUs, and what was said."""
    stub("nvidia-smi", smi)
    folder = stub("mpirun", 'for a in "$@"; do echo "$a"; done')
    unwanted = ("CUDA_VISIBLE", "SLURM_", "TRAINSUITE_BINARY")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}
    done = run(
        [str(PROJECT / "jobs/run.sh"), *arguments],
        env=clean
        | {"PATH": f"{folder}:{os.environ['PATH']}", "TRAINSUITE_MPIRUN": str(folder / "mpirun")}
        | environment,
        timeout=580,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


def ranks_of(arguments: list[str]) -> str:
    return arguments[arguments.index("-np") + 1]


@pytest.mark.parametrize(
    ("arguments", "environment", "ranks"),
    [
        (["ddp"], {}, "2"),
        (["ddp"], {"CUDA_VISIBLE_DEVICES": "1"}, "1"),
        (["ddp"], {"CUDA_VISIBLE_DEVICES": "0,1"}, "2"),
        (["ddp"], {"CUDA_VISIBLE_DEVICES": "GPU-1a,MIG-b"}, "2"),
        (["ddp"], {"CUDA_VISIBLE_DEVICES": "1,-1,0"}, "1"),
        (["ddp"], {"CUDA_VISIBLE_DEVICES": "0,7,1"}, "1"),  # two GPUs: there is no 7
        (["ddp"], {"CUDA_VISIBLE_DEVICES": "0,1,GPU-ab"}, "2"),
        (["ddp"], {"CUDA_VISIBLE_DEVICES": "-1", "SLURM_JOB_NUM_NODES": "3"}, "2"),
        (["ddp"], {"CUDA_VISIBLE_DEVICES": ""}, "2"),
        (["ddp", "--device=cpu"], {}, "2"),
        (["ddp"], {"SLURM_JOB_NUM_NODES": "3"}, "6"),
        (["-np", "1", "ddp"], {}, "1"),
    ],
)
def test_one_rank_per_gpu(
    stub: Stub, arguments: list[str], environment: dict[str, str], ranks: str
) -> None:
    passed, said = run_job(stub, arguments, **environment)
    assert ranks_of(passed) == ranks
    assert "--comm" not in passed and "share" not in said


def test_more_ranks_than_gpus_share_them_and_this_is_said(stub: Stub) -> None:
    passed, said = run_job(stub, ["-np", "4", "ddp", "--steps", "3"])
    assert ranks_of(passed) == "4"
    assert passed[passed.index("trainsuite") :] == [
        *("trainsuite", "ddp", "--steps", "3"),
        *("--comm", "mpi", "--oversubscribe"),
    ]
    assert "4 ranks share 2 GPU(s)" in said


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["ddp", "--comm", "nccl"], {}),
        (["ddp", "--comm=mpi", "--oversubscribe"], {}),
        (["ddp", "--device", "cpu"], {}),
        (["ddp"], {"CUDA_VISIBLE_DEVICES": ""}),
        (["ddp"], {"SLURM_JOB_NUM_NODES": "2"}),
    ],
)
def test_nothing_is_added_where_chosen_or_not_needed(
    stub: Stub, arguments: list[str], environment: dict[str, str]
) -> None:
    passed, _ = run_job(stub, ["-np", "4", *arguments], **environment)
    assert passed[passed.index("trainsuite") + 1 :] == arguments


def test_without_nvidia_smi_there_are_no_gpus(stub: Stub) -> None:
    passed, _ = run_job(stub, ["ddp"], smi="exit 127", CUDA_VISIBLE_DEVICES="0,1,2")
    assert ranks_of(passed) == "2"  # as on any machine without a GPU


def test_mpirun_waits_before_it_kills(stub: Stub) -> None:
    passed, _ = run_job(stub, ["ddp"])
    assert int(passed[passed.index("odls_base_sigkill_timeout") + 1]) >= 10


@pytest.mark.parametrize(
    "arguments", [["-np", "two", "ddp"], ["-np"], [], ["--hostfile"], ["--np", "2", "ddp"]]
)
def test_run_refuses_a_bad_start(arguments: list[str]) -> None:
    assert run([str(PROJECT / "jobs/run.sh"), *arguments]).returncode == 2


def tools_without(folder: Path, missing: set[str]) -> str:
    """A PATH that holds every command of this machine but `missing`."""
    folder.mkdir()
    for place in os.environ["PATH"].split(":"):
        for tool in sorted(Path(place).iterdir()) if Path(place).is_dir() else []:
            link = folder / tool.name
            if tool.name not in missing and not link.is_symlink():
                link.symlink_to(tool)
    return str(folder)


def test_without_root_the_missing_packages_are_named(stub: Stub, tmp_path: Path) -> None:
    path = tools_without(tmp_path / "bin", {"mpirun", "mpicxx", "id"})
    path = f"{stub('id', 'echo 1000')}:{path}"
    done = run(["bash", "jobs/setup.sh", "--prefix", str(tmp_path / "environment")],
               cwd=PROJECT, env={"PATH": path}, timeout=120)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.rstrip().endswith("apt-get install openmpi-bin libopenmpi-dev")
    assert not (tmp_path / "environment").exists()


def test_without_apt_get_the_missing_packages_are_named(tmp_path: Path) -> None:
    path = tools_without(tmp_path / "bin", {"c++", "apt-get"})
    done = run(["bash", "jobs/setup.sh", "--prefix", str(tmp_path / "environment")],
               cwd=PROJECT, env={"PATH": path}, timeout=120)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "build-essential" in done.stderr and "no apt-get" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--prefx", "x"], 2, "--prefx"),
        (["--prefix"], 2, "--prefix needs a folder"),
        (["--wheels", "nowhere"], 1, "nowhere: no such folder"),
        (["--mpi", "nowhere"], 1, "nowhere: no bin/mpicxx there"),
    ],
)
def test_setup_refuses_what_it_cannot_use(arguments: list[str], status: int, words: str) -> None:
    done = run([str(PROJECT / "jobs/setup.sh"), *arguments])
    assert (done.returncode, len(done.stderr.splitlines())) == (status, 1)
    assert words in done.stderr


def test_setup_may_be_repeated() -> None:
    """It leaves one block in activate, and says nothing when nothing is to be done."""
    run([str(PROJECT / "jobs/setup.sh")], timeout=580)
    again = run([str(PROJECT / "jobs/setup.sh")], timeout=60)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    activate = (PREFIX / "bin/activate").read_text(encoding="utf-8")
    assert activate.count("# >>> trainsuite") == activate.count("# <<< trainsuite") == 1


def fake_torch(folder: Path) -> Path:
    for part in ("torch/lib", "nvidia/nccl/lib", "nvidia/cu13/lib", "nvidia/cu13/include"):
        (folder / part).mkdir(parents=True)
    (folder / "torch/__init__.py").touch()
    return folder


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_env_finds_the_libraries_of_a_carried_build(tmp_path: Path, shell: str) -> None:
    site = fake_torch(tmp_path / "site")
    done = run([shell, "-c", '. jobs/env.sh; echo "$LD_LIBRARY_PATH"'], cwd=PROJECT,
               env={"PATH": os.environ["PATH"], "PYTHONPATH": str(site),
                    "LD_LIBRARY_PATH": "/mine"})
    expected = [site / "torch/lib", site / "nvidia/cu13/lib", site / "nvidia/nccl/lib", "/mine"]
    assert done.stdout.strip() == ":".join(map(str, expected))


def test_activation_sets_mpi_and_leaves_the_library_path(stub: Stub) -> None:
    folder = stub("id", "echo 0")
    line = f". '{PREFIX}/bin/activate'; env"
    shown = run(["bash", "-c", line], env={"PATH": f"{folder}:{os.environ['PATH']}"}).stdout
    found = dict(entry.split("=", 1) for entry in shown.splitlines() if "=" in entry)
    assert found["OMPI_ALLOW_RUN_AS_ROOT"] == found["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] == "1"
    assert found["OMPI_MCA_rmaps_base_oversubscribe"] == "1"
    assert found["OMPI_MCA_mpi_yield_when_idle"] == "1"
    assert "torch/lib" not in found.get("LD_LIBRARY_PATH", "") and "TRAINSUITE_ENV" not in found
    assert Path(shutil.which("trainsuite", path=found["PATH"]) or "") == PREFIX / "bin/trainsuite"


def test_a_hostfile_reaches_mpirun_with_the_environment(stub: Stub, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("# two nodes\nn1 slots=2\n\nn2  # the other\n", encoding="utf-8")
    passed, _ = run_job(stub, ["--hostfile", str(hosts), "ddp"], NCCL_DEBUG="WARN")
    assert passed[passed.index("--hostfile") + 1] == str(hosts)
    assert ranks_of(passed) == "4"  # two GPUs on each
    exported = {passed[i + 1] for i, word in enumerate(passed) if word == "-x"}
    assert {"PATH", "NCCL_DEBUG"} <= exported and "HOME" not in exported
    assert passed[-2:] == [str(PREFIX.resolve() / "bin/trainsuite"), "ddp"]


@pytest.mark.parametrize("content", [None, "", "# nobody\n\n"])
def test_a_hostfile_without_hosts_is_refused(tmp_path: Path, content: str | None) -> None:
    hosts = tmp_path / "hosts"
    if content is not None:
        hosts.write_text(content, encoding="utf-8")
    done = run([str(PROJECT / "jobs/run.sh"), "--hostfile", str(hosts), "ddp"])
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert str(hosts) in done.stderr
