"""Result files of every suite for tests of the page, and a reader of the page's tables."""

import copy
import html.parser
from pathlib import Path

import results

GIB = 1 << 30
PHASES = {"data": 0.02, "forward": 0.3, "backward": 0.55, "exposed_sync": 0.08, "optimizer": 0.05}
H200 = "NVIDIA H200"
DDP_SETTINGS = {"implementation": "trainsuite", "size": "124m", "precision": "bf16",
                "micro_batch": 8, "accumulate": 1, "sequence": 1024, "vocabulary": 50304,
                "compile_mode": "eager", "learning_rate": 1e-4, "steps": 6, "warmup": 2}
PRICES = """
[[price]]
gpu = "H200"
machine_gpus = 2
usd_per_hour = 7.2
date = "2026-10-29"
source = "a test"
"""


def run_record(planned: list[str], device: str = H200, ranks: int = 2, host: str = "node1",
               created: str = "2026-10-29T10:00:00Z", **attributes) -> results.RunRecord:
    """A run of so many ranks, one card each, on one host."""
    on_gpu = device.startswith("NVIDIA")
    identities = [results.RankIdentity(
        rank, rank, host, device, f"GPU-{host}-{rank}" if on_gpu else "",
        f"0000:0{rank}:00.0" if on_gpu else "", 150109880320 if on_gpu else 24 * GIB, "0-7")
        for rank in range(ranks)]
    facts = {"implementation": "trainsuite", "torch_version": "2.11.0+cu130",
             "git_commit": "0123456789abcdef", "git_dirty": False, "ranks_total": ranks,
             "trainsuite_version": "0.1.0"} | attributes
    return results.RunRecord(created, ["build/trainsuite", "ddp", "--out", "/secret/place/a.h5"],
                             planned, facts, identities,
                             [results.HostIdentity(host, "EPYC", "6.1", "none", 2, 64, 256 * GIB)])


def ddp_case(recipe: str, seconds: float, ranks: int = 2, steps: int = 8, repeat: int = 0,
             size: str = "124m", jitter: float = 0.0, **settings) -> results.CaseRecord:
    """A ddp row whose measured steps take `seconds`, give or take `jitter` as a share."""
    accumulate = 4 if "accumulate" in recipe or recipe == "both" else 1
    tokens = 8 * accumulate * 1024
    one = recipe.startswith("1gpu")
    rows = []
    for rank in range(1 if one else ranks):
        times = [20 * seconds, 2 * seconds] + [
            seconds * (1 + jitter * (-1) ** step) for step in range(steps - 2)]
        series = [results.RankSeries("step_seconds", "s", times),
                  results.RankSeries("loss", "1", [11 - 0.1 * step for step in range(steps)]),
                  results.RankSeries("tokens", "token", [float(tokens)] * steps),
                  results.RankSeries("allocated_peak_bytes", "byte", [5.0 * GIB] * steps)]
        series += [results.RankSeries(f"{name}_seconds", "s", [time * share for time in times])
                   for name, share in PHASES.items()]
        rows.append(results.RankRecord(rank, series, {"peak_allocated_bytes": 5 * GIB}))
    figures = {"peak_allocated_bytes": 5 * GIB, "peak_reserved_bytes": 6 * GIB,
               "case_seconds": 30.0, "setup_seconds": 1.0, "first_step_seconds": 20 * seconds,
               "flops_per_token": 8e8, "flops_per_token_uncausal": 9e8, "peak_flops": 989.5e12}
    mine = DDP_SETTINGS | {"recipe": recipe, "accumulate": accumulate, "size": size,
                           "tokens_per_step": tokens * len(rows)} | settings
    return results.CaseRecord("ddp", f"{size}-{recipe}", repeat, settings=mine, results=figures,
                              warmup=[True, True] + [False] * (steps - 2), ranks=rows)


def finetune_case(recipe: str, batches: str, seconds: float, peak_gib: float, before: float,
                  after: float) -> results.CaseRecord:
    """A finetune row of ten steps."""
    micro_batch, accumulate = map(int, batches.split("x"))
    series = [results.RankSeries("step_seconds", "s", [seconds / 10] * 10),
              results.RankSeries("tokens", "token", [2000.0] * 10),
              results.RankSeries("effective_tokens", "token", [1000.0] * 10),
              results.RankSeries("loss", "1", [2.0 - 0.05 * step for step in range(10)])]
    settings = {"implementation": "trainsuite", "size": "1.5b", "recipe": recipe,
                "micro_batch": micro_batch, "accumulate": accumulate, "learning_rate": 2e-4,
                "model": "Qwen2.5-1.5B-Instruct", "checkpointing": "none"}
    figures = {"train_seconds": seconds, "held_out_loss_before": before,
               "held_out_loss_after": after, "peak_allocated_bytes": int(peak_gib * GIB),
               "parameters_total": 1_543_714_304, "parameters_trainable": 18_464_768,
               "case_seconds": 2 * seconds}
    return results.CaseRecord("finetune", f"1.5b-{recipe}-{batches}", settings=settings,
                              results=figures, warmup=[False] * 10,
                              ranks=[results.RankRecord(0, series, {})])


def compile_case(execution: str, attention: str, milliseconds: float, peak_gb: float,
                 first_step: float, implementation: str = "trainsuite") -> results.CaseRecord:
    """A compile row of six steps."""
    recipe = f"{execution}-{attention}"
    series = [results.RankSeries("step_seconds", "s", [first_step] + [milliseconds / 1e3] * 5),
              results.RankSeries("tokens", "token", [8192.0] * 6)]
    settings = {"implementation": implementation, "size": "468m", "recipe": recipe,
                "compile_mode": execution, "micro_batch": 4, "accumulate": 1, "sequence": 2048,
                "vocabulary": 32000, "tokens_per_step": 8192}
    figures = {"first_step_seconds": first_step, "peak_allocated_bytes": int(peak_gb * 1e9),
               "weight_bytes_bfloat16": 936_000_000}
    return results.CaseRecord("compile", f"468m-{recipe}", settings=settings, results=figures,
                              warmup=[True] + [False] * 5,
                              ranks=[results.RankRecord(0, series, {})])


def ceiling_case(recipe: str, seconds: float, ranks: int = 2, repeat: int = 0, size: str = "full",
                 largest: int = 8192, **settings) -> results.CaseRecord:
    """A ceiling of two sizes, a quarter of `largest` and itself, each with a warm-up and three
    repetitions: of `largest` in `seconds`, of the other in half of them."""
    times = [9 * seconds] + [seconds / 2] * 3 + [9 * seconds, 0.9 * seconds, seconds, 1.2 * seconds]
    series = [results.RankSeries("step_seconds", "s", times),
              results.RankSeries("problem_size", "1", [largest / 4] * 4 + [float(largest)] * 4),
              results.RankSeries("wrong_values", "1", [0.0] * 8)]
    precision = recipe.rpartition("-")[2] if recipe.startswith("matmul") else "bytes"
    mine = {"implementation": "trainsuite", "recipe": recipe, "size": size, "device_name": H200,
            "precision": precision, "communicator": "nccl"} | settings
    return results.CaseRecord("ceilings", f"{size}-{recipe}", repeat, settings=mine, results={},
                              checks={"results_correct": True},
                              warmup=[True, False, False, False] * 2,
                              ranks=[results.RankRecord(rank, series, {}) for rank in range(ranks)])


def oom_case(suite: str, name: str, reason: str, **settings) -> results.CaseRecord:
    """A row that ran out of memory."""
    return results.CaseRecord(suite, name, status="oom", reason=reason,
                              settings={"implementation": "trainsuite"} | settings)


def make_file(path: Path, *cases: results.CaseRecord, planned: list[str] | None = None,
              finish: bool = True, **of_run) -> str:
    """A file of these rows; cut short without `finish`."""
    names = planned if planned is not None else list(dict.fromkeys(case.name for case in cases))
    writer = results.ResultWriter(str(path), run_record(names, **of_run))
    for case in cases:
        writer.append(copy.deepcopy(case))
    if finish:
        writer.finish()
    return str(path)


def ddp_file(path: Path, **of_run) -> str:
    """All recipes on two H200."""
    return make_file(path, ddp_case("1gpu", 0.10), ddp_case("1gpu-accumulate4", 0.39),
                     ddp_case("plain", 0.20), ddp_case("bf16", 0.15), ddp_case("both", 0.42),
                     **of_run)


class PageReader(html.parser.HTMLParser):
    """tables: id -> [heading cells, row cells, ...]; text: what a reader sees."""

    def __init__(self, page: str):
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.ids: list[str] = []
        self._rows: list[list[str]] | None = None
        self._in_cell = False
        self._hidden = 0
        self._words: list[str] = []
        self.feed(page)
        self.text = " ".join(" ".join(self._words).split())

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if "id" in values:
            self.ids.append(values["id"])
        if tag == "table":
            self._rows = self.tables.setdefault(values.get("id", ""), [])
        elif tag == "tr" and self._rows is not None:
            self._rows.append([])
        elif tag in ("td", "th") and self._rows:
            self._rows[-1].append("")
            self._in_cell = True
        elif tag in ("style", "script"):
            self._hidden += 1

    def handle_endtag(self, tag):
        if tag == "table":
            self._rows = None
        elif tag in ("td", "th"):
            self._in_cell = False
        elif tag in ("style", "script"):
            self._hidden -= 1

    def handle_data(self, data):
        if self._hidden:
            return
        self._words.append(data)
        if self._in_cell:
            self._rows[-1][-1] += data

    def column(self, table: str, heading: str) -> list[str]:
        """The cells below a heading."""
        head, *rows = self.tables[table]
        index = head.index(heading)
        return [row[index] for row in rows]
