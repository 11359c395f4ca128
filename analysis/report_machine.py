"""Hardware, software and method of a suite, in sentences made from what its files record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import gpus
from report_rows import Row, gib, on_gpu
from report_suite import SOURCE_WORDS, Suite
from results import Case, Run
from results_steady import POWER_CAP

LINK_WORDS = {"PIX": "through one PCIe switch", "PXB": "through several PCIe switches",
              "PHB": "through the host bridge", "NODE": "across host bridges of one NUMA node",
              "SYS": "across CPU sockets"}
VERSIONS = (("trainsuite_version", "trainsuite"), ("torch_version", "torch"),
            ("transformers_version", "transformers"), ("peft_version", "peft"),
            ("bitsandbytes_version", "bitsandbytes"), ("cuda_version", "CUDA"),
            ("driver_version", "driver"), ("nccl_version", "NCCL"), ("mpi_version", ""),
            ("hdf5_version", "HDF5"), ("python_version", "Python"))
MODELS = {"ddp": "GPT-2 style decoder", "finetune": "Qwen2.5", "compile": "Llama style decoder"}
DATA = {"ddp": "random tokens", "compile": "random tokens"}


def link_words(link: str) -> str:
    """NV18 (NVLink), PHB (through the host bridge)."""
    if link.startswith("NV"):
        return f"{link} (NVLink)"
    return f"{link} ({LINK_WORDS[link]})" if link in LINK_WORDS else link


def topology_sentence(links: Iterable[dict[str, Any]]) -> str:
    """How the GPU pairs of the hosts are linked; empty for no pair."""
    kinds = Counter(str(one["link"]) for one in links if one["gpu_a"] != one["gpu_b"])
    if not kinds:
        return ""
    nvlink = any(kind.startswith("NV") for kind in kinds)
    if len(kinds) == 1:
        words = f"Every GPU pair {link_words(next(iter(kinds)))}"
    else:
        words = ", ".join(f"{count} of {kinds.total()} GPU pairs {link_words(kind)}"
                          for kind, count in kinds.most_common())
    return words + ("" if nvlink else ", no NVLink")


def held_back(case: Case) -> str:
    """Why and how often the driver held the GPU back, in words."""
    reasons = str(case.value("throttle_reasons") or "no reason named")
    share = f"{100 * case.value('throttled_share'):.0f}% of the samples"
    if reasons == POWER_CAP:
        return f"the GPU was at its power limit in {share} ({reasons}), as is usual under full load"
    return f"the GPU slowed down in {share} ({reasons})"


def runs_of(rows: Iterable[Row]) -> list[Run]:
    """The runs of these rows, each once."""
    found: list[Run] = []
    for row in rows:
        if row.run is not None and not any(row.run is other for other in found):
            found.append(row.run)
    return found


def card_words(device_name: str, memory_bytes: int) -> str:
    """H200 141 GB (139.8 GiB usable)."""
    nominal = gpus.nominal_gb(device_name)
    words = gpus.page_name(device_name) + (f" {nominal} GB" if nominal else "")
    return words + (f" ({gib(memory_bytes):.1f} GiB usable)" if memory_bytes else "")


def host_sentence(run: Run, host: str) -> str:
    """The cards and the machine of a host."""
    here = [one for one in run.ranks if one["host"] == host]
    cards: dict[str, tuple[str, int]] = {}
    for one in here:
        if on_gpu(one):
            cards[one["uuid"] or str(one["rank"])] = (one["device_name"], one["memory_bytes"])
    words = [f"{count}x {card_words(*card)}" for card, count in Counter(cards.values()).items()]
    if not cards:
        words.append("no GPU, on the CPU")
    for one in run.hosts:
        if one["host"] == host:
            words += _machine_words(one)
    ranks = f", {len(here)} ranks on it" if cards and len(here) != len(cards) else ""
    return f"{host or 'a host without a name'}: {', '.join(words)}{ranks}"


def _machine_words(host: dict[str, Any]) -> list[str]:
    words = []
    if host.get("cpu_model"):
        cores = f", {host['cores']} cores" if host.get("cores") else ""
        words.append(f"CPU {host['cpu_model']}{cores}")
    if host.get("ram_bytes"):
        words.append(f"{gib(host['ram_bytes']):.0f} GiB RAM")
    words += [str(host[key]) for key in ("kernel",) if host.get(key)]
    if host.get("virtualisation") and host["virtualisation"] != "none":
        words.append("virtual machine")
    return words


def hardware(suite: Suite) -> list[str]:
    """A sentence a host, then the topology; published pages' own words after."""
    runs = runs_of(suite.measured)
    sentences = [host_sentence(run, host) for run in runs
                 for host in dict.fromkeys(one["host"] for one in run.ranks)]
    for run in runs:
        links = run.topology
        sentence = topology_sentence(links)
        if sentence:
            sentences.append(sentence)
        elif len({one["uuid"] for one in run.ranks if one["uuid"]}) > 1:
            sentences.append("How its GPUs are linked is not recorded in the file")
    for texts in suite.published_texts():
        parts = [texts[key] for key in ("hardware", "topology") if key in texts]
        sentences.append("Published: " + ". ".join(parts))
    return list(dict.fromkeys(sentences))


def software(suite: Suite) -> list[str]:
    """Versions a program, as recorded."""
    sentences = []
    for run in runs_of(suite.measured):
        known = [f"{words} {run.attributes[key]}".strip() for key, words in VERSIONS
                 if run.attributes.get(key)]
        source = str(run.attributes.get("implementation", "trainsuite"))
        commit = str(run.attributes.get("git_commit", ""))[:12]
        if commit:
            dirty = " with local changes" if run.attributes.get("git_dirty") else ""
            known.append(f"commit {commit}{dirty}")
        sentences.append(f"{SOURCE_WORDS.get(source, source)}: {', '.join(known)}")
    sentences += [f"Published: {texts['software']}" for texts in suite.published_texts()
                  if "software" in texts]
    return list(dict.fromkeys(sentences))


def _values(suite: Suite, name: str, words: str) -> str:
    """"micro-batch 8", or "micro-batch 4 or 8"."""
    found = list(dict.fromkeys(row.settings[name] for row in suite.measured
                               if row.settings.get(name) not in (None, "")))
    if not found:
        return ""
    shown = [f"{value:,}" if isinstance(value, int) else f"{value:g}"
             if isinstance(value, float) else str(value) for value in found]
    return words.format(" or ".join(shown))


def method(suite: Suite) -> list[str]:
    """Model, data, shapes, recipe; then what was measured; published pages' own words after."""
    sentences = []
    if suite.measured:
        sizes = " and ".join(dict.fromkeys(row.size.upper() for row in suite.measured))
        parts = [f"{MODELS.get(suite.name, 'Model')} {sizes}",
                 _values(suite, "vocabulary", "vocabulary {}"), DATA.get(suite.name, ""),
                 _values(suite, "sequence", "sequence {}"),
                 _values(suite, "micro_batch", "micro-batch {} a rank"),
                 _values(suite, "accumulate", "accumulation {}"),
                 _values(suite, "precision", "compute in {}"), "AdamW",
                 _values(suite, "learning_rate", "learning rate {}"),
                 _values(suite, "seed", "seed {}")]
        sentences += [", ".join(part for part in parts if part), _measured(suite)]
    for texts in suite.published_texts():
        keys = ("model", "method", "data", "training", "step", "measured", "metric")
        sentences.append("Published: " + ". ".join(texts[key] for key in keys if key in texts))
    return sentences


def _measured(suite: Suite) -> str:
    steps, warmup = (_values(suite, name, "{}") for name in ("steps", "warmup"))
    rate = "tokens/s counts the tokens that are no padding, over the training's seconds without " \
           "load and evaluation" if suite.name == "finetune" else \
           "tokens/s from the median step; a step lasts as long as its slowest rank"
    words = f"{rate[0].upper()}{rate[1:]}"
    if steps:
        words += f"; {steps} steps" + (f" after {warmup} of warm-up" if warmup else "")
    kernels = _values(suite, "kernels", "{}")
    words += f"; kernels: {kernels}" if kernels else ""
    return words + "; peaks are the allocator's, over the measured steps" + \
        ("; published rows state summary figures only" if suite.published else "")
