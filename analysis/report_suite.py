"""A suite's rows with what rules, tables and plots ask about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from published import Published
from report_costs import Costing
from report_rows import Row

TITLES = {"finetune": "Full fine-tuning, LoRA or QLoRA", "ddp": "Data-parallel training",
          "compile": "Compiled or eager"}
SOURCE_WORDS = {"trainsuite": "trainsuite", "pytorch": "PyTorch", "published": "published"}
NOISE = 0.10  # what one run's rate may be off by
# PyTorch's twin rows alone are torch.compile's.
TEXT_KEYS = ("hardware", "topology", "software", "model", "method", "data", "training", "step",
             "measured", "metric")


def letter(number: int) -> str:
    """A file's letter: A, B, ..., F27."""
    return chr(ord("A") + number) if number < 26 else f"F{number + 1}"


@dataclass
class Suite:
    """What a section of the page is made from."""

    name: str
    rows: list[Row]
    costing: Costing
    published: list[Published] = field(default_factory=list)
    files: list[str] = field(default_factory=list)  # all of the page, in its order

    @property
    def title(self) -> str:
        """The section's heading."""
        return TITLES.get(self.name, self.name)

    @property
    def ok(self) -> list[Row]:
        """Rows that were measured."""
        return [row for row in self.rows if row.ok]

    @property
    def measured(self) -> list[Row]:
        """Rows with steps."""
        return [row for row in self.rows if row.published is None]

    def published_texts(self) -> list[dict[str, Any]]:
        """What published pages say about this suite."""
        return [page.sections[self.name] for page in self.published if self.name in page.sections]

    def groups(self) -> list[list[Row]]:
        """Measured-or-published ok rows of one program, card, model and file."""
        found: dict[tuple, list[Row]] = {}
        for row in self.ok:
            found.setdefault((*row.setting_key, row.file), []).append(row)
        return list(found.values())

    def distinct(self, name: str) -> list[Any]:
        """The values of an attribute of the rows, in order."""
        return list(dict.fromkeys(getattr(row, name) for row in self.rows))

    def name_of(self, row: Row) -> str:
        """The row in words, with what tells it from the others."""
        words = [row.label]
        if self.name != "ddp" and len(self.distinct("size")) > 1:
            words.insert(0, row.size.upper() + (" (dry run)" if row.dry_run else ""))
        if self.name == "compile" or len(self.distinct("gpu")) > 1:
            words.append(f"on the {row.gpu}")
        if len(self.distinct("source")) > 1:
            words.append(f"({SOURCE_WORDS.get(row.source, row.source)})")
        if self.letter(row):
            words.append(f"[{self.letter(row)}]")
        return " ".join(words)

    def letter(self, row: Row) -> str:
        """The row's file as a letter, where two files hold the same row."""
        key = (row.name, row.source, row.gpu)
        twice = any((other.name, other.source, other.gpu) == key and other.file != row.file
                    for other in self.rows)
        return self.file_letter(row) if twice else ""

    def file_letter(self, row: Row) -> str:
        """The row's file as a letter of the page's list."""
        return letter(self.files.index(row.file))

    def find(self, like: Row, **wanted: Any) -> Row | None:
        """The measured row of like's program, card, model and file with these attributes."""
        for row in self.ok:
            if (row.file, *row.setting_key) == (like.file, *like.setting_key) and all(
                    getattr(row, key) == value for key, value in wanted.items()):
                return row
        return None

    def bases(self, row: Row) -> Iterator[tuple[str, Row]]:
        """(name, base row) of each base that the row's speed-up is told on."""
        if self.name == "ddp":
            mode = next((kind for kind in ("-compile", "-graph") if row.recipe.endswith(kind)), "")
            own = "1gpu-accumulate4" if row.accumulates else "1gpu"
            yield "own", self.find(row, recipe=own + mode)
            yield "1gpu", self.find(row, recipe="1gpu")
        elif self.name == "compile":
            yield "own", self.find(row, recipe=f"eager-{row.attention}")
        elif self.name == "finetune":
            yield "own", self.find(row, recipe="full", batches=row.batches)

    def speed_up(self, row: Row, base: str) -> float | None:
        """tokens/s over those of the base `own` or `1gpu`; None where the base is missing."""
        if row.published is not None and self.name == "ddp":
            return row.published.speed_up_own_base if base == "own" else \
                row.published.speed_up_plain_base
        other = dict(self.bases(row)).get(base)
        if other is None or not other.tokens_per_second or not row.tokens_per_second:
            return None
        return row.tokens_per_second / other.tokens_per_second

    def tie(self, a: Row, b: Row) -> bool:
        """Inside the spread: repeats' ranges overlap; a single run within 10% either way, or with
        p10 to p90 of the steps overlapping in rate."""
        if not a.tokens_per_second or not b.tokens_per_second:
            return False
        if a.rate_range and b.rate_range:
            return a.rate_range[0] <= b.rate_range[1] and b.rate_range[0] <= a.rate_range[1]
        ratio = a.tokens_per_second / b.tokens_per_second
        if max(ratio, 1 / ratio) < 1 + NOISE:
            return True
        spans = [_rate_span(row) for row in (a, b)]
        return None not in spans and spans[0][0] <= spans[1][1] and spans[1][0] <= spans[0][1]


def _rate_span(row: Row) -> tuple[float, float] | None:
    """tokens/s at p90 and p10 of the step time."""
    if not row.step_p10 or not row.step_p90 or not row.step_seconds:
        return None
    tokens = row.tokens_per_second * row.step_seconds
    return tokens / row.step_p90, tokens / row.step_p10


def published_rows(page: Published) -> list[Row]:
    """The rows of a published page. One machine each but for finetune, whose rows come from
    machines that the page does not tell apart."""
    rows = []
    for one in page.rows:
        size, _, recipe = one.case.partition("-")
        recipe = recipe.split("-")[0] if one.suite == "finetune" else recipe
        hosts = () if one.suite == "finetune" else (f"published {one.suite} {one.gpu}",)
        variant = one.variant.split(" ")[0] if one.suite == "finetune" else one.variant
        row = Row(one.suite, one.case, size, recipe, "published", one.gpu, one.gpus, one.gpus,
                  one.machine_gpus, status=one.status, reason=one.reason, date=one.run_date,
                  file=page.path, variant=variant, hosts=hosts, published=one,
                  settings={"micro_batch": one.micro_batch, "accumulate": one.accumulate})
        for name in ("tokens_per_second", "step_seconds", "train_seconds", "first_step_seconds",
                     "peak_bytes", "loss_before", "loss_after"):
            setattr(row, name, getattr(one, name))
        row.parameters_trainable, row.parameters_total = one.trainable_parameters, one.parameters
        if one.suite == "finetune" and row.parameters_total is None:
            row.parameters_total = max(other.trainable_parameters for other in page.rows
                                       if other.suite == "finetune")
        rows.append(row)
    return rows
