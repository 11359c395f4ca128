"""The token file that `trainsuite finetune --data` reads (docs/data.md): its only writer, and a
reader that checks everything."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, field

import h5py
import numpy as np
from numpy.typing import NDArray

from results_durable import create_exclusively
from results_layout import put_value
from results_records import ResultError, Value
from results_writer import check_creatable, new_image

SCHEMA = "trainsuite-tokens"
SCHEMA_VERSION = 1
SPLITS = ("train", "held_out")
DATASETS = {"offsets": "<i8", "span_offsets": "<i8", "spans": "<i8", "ids": "<i4"}
WHOLE = ("schema_version", "vocabulary", "limit_tokens")


@dataclass
class Example:
    """Token ids, and the half-open ranges of them [begin, end) that are the answer's."""

    ids: list[int]
    spans: list[tuple[int, int]]


@dataclass
class Split:
    """Examples one after the other: example i is ids[offsets[i]:offsets[i + 1]], its label spans
    are spans[span_offsets[i]:span_offsets[i + 1]], counted from the example's first token."""

    ids: NDArray[np.int32]  # [tokens]
    offsets: NDArray[np.int64]  # [examples + 1]
    spans: NDArray[np.int64]  # [spans, 2]
    span_offsets: NDArray[np.int64]  # [examples + 1]

    @property
    def examples(self) -> int:
        """How many there are."""
        return len(self.offsets) - 1

    @property
    def tokens(self) -> int:
        """Tokens of all examples."""
        return len(self.ids)

    def example(self, index: int) -> NDArray[np.int32]:
        """Ids of one example, int32 [length]."""
        return self.ids[self.offsets[index]:self.offsets[index + 1]]

    def answer(self, index: int) -> NDArray[np.bool_]:
        """Which tokens of one example are the answer's, bool [length]."""
        inside = np.zeros(self.offsets[index + 1] - self.offsets[index], dtype=bool)
        for begin, end in self.spans[self.span_offsets[index]:self.span_offsets[index + 1]]:
            inside[begin:end] = True
        return inside

    def crc32(self) -> int:
        """CRC-32 (ISO-HDLC, as zlib's) of the four datasets' bytes, in the order of DATASETS."""
        crc = 0
        for name, kind in DATASETS.items():
            crc = zlib.crc32(np.ascontiguousarray(getattr(self, name), dtype=kind).tobytes(), crc)
        return crc


@dataclass
class TokenFile:
    """Both splits and what the root says about them."""

    train: Split
    held_out: Split
    attributes: dict[str, Value] = field(default_factory=dict)


def split_of(examples: list[Example]) -> Split:
    """The examples in their order."""
    def ends(lengths: list[int]) -> NDArray[np.int64]:
        return np.cumsum([0, *lengths], dtype=np.int64)

    ids = [number for example in examples for number in example.ids]
    spans = [span for example in examples for span in example.spans]
    return Split(np.array(ids, dtype=np.int32), ends([len(e.ids) for e in examples]),
                 np.array(spans, dtype=np.int64).reshape(-1, 2),
                 ends([len(e.spans) for e in examples]))


def write(path: str, tokens: TokenFile) -> None:
    """Creates `path`, whole or not at all. Raises ResultError where it exists or cannot be made."""
    check_creatable(path)

    def fill(file: h5py.File) -> None:
        put_value(file, "schema", SCHEMA)
        put_value(file, "schema_version", SCHEMA_VERSION)
        for name, value in tokens.attributes.items():
            put_value(file, name, value)
        for name in SPLITS:
            split = getattr(tokens, name)
            group = file.create_group(name)
            for dataset, kind in DATASETS.items():
                group.create_dataset(dataset, data=getattr(split, dataset), dtype=kind)
            put_value(group, "examples", split.examples)
            put_value(group, "tokens", split.tokens)
            put_value(group, "label_tokens", int((split.spans[:, 1] - split.spans[:, 0]).sum()))
            put_value(group, "crc32", split.crc32())

    if not create_exclusively(path, new_image(fill)):
        check_creatable(path)


def load(path: str) -> TokenFile:
    """The file, checked. Raises ResultError that names what is wrong with it."""
    try:
        with h5py.File(path) as file:
            attributes = {name: _plain(value) for name, value in file.attrs.items()}
            _check_root(path, attributes)
            train, held_out = (_split(path, file, name, attributes) for name in SPLITS)
    except OSError as error:
        reason = error.strerror or "no HDF5 file, or cut short"
        if not os.path.exists(path):
            reason = "no such file"
        raise ResultError(f"{path}: {reason}; trainsuite-prepare-data makes token files") from error
    return TokenFile(train, held_out, attributes)


def _plain(value: object) -> Value:
    return value.item() if isinstance(value, np.generic) else value


def _check_root(path: str, attributes: dict[str, Value]) -> None:
    if attributes.get("schema") != SCHEMA:
        raise ResultError(f"{path} is no token file (attribute schema is "
                          f"{attributes.get('schema')!r}); trainsuite-prepare-data makes them")
    for name in WHOLE:
        value = attributes.get(name)
        if not isinstance(value, int) or value < 1:
            raise ResultError(f"{path}: attribute {name} is {value!r}, not a number from 1; "
                              "prepare it again")
    if attributes["schema_version"] != SCHEMA_VERSION:
        raise ResultError(f"{path} has schema version {attributes['schema_version']}, this program "
                          f"reads {SCHEMA_VERSION}; prepare it again")


def _split(path: str, file: h5py.File, name: str, attributes: dict[str, Value]) -> Split:
    """One split whose parts fit together."""
    def refuse(why: str) -> ResultError:
        return ResultError(f"{path}: {name}{why}; the file is damaged, prepare it again")

    group = file.get(name)
    arrays = {}
    for dataset in DATASETS:
        data = group.get(dataset) if isinstance(group, h5py.Group) else None
        if not isinstance(data, h5py.Dataset) or data.dtype.kind != "i":
            raise refuse(f"/{dataset} is missing or holds no whole numbers")
        if data.ndim != (2 if dataset == "spans" else 1):
            raise refuse(f"/{dataset} has {data.ndim} dimensions")
        arrays[dataset] = data[...]
    split = Split(**arrays)
    if split.crc32() != _plain(group.attrs.get("crc32")):
        raise refuse(" does not have the content that its attribute crc32 was made of")
    for parts, ends in ((split.ids, "offsets"), (split.spans, "span_offsets")):
        bounds = arrays[ends]
        if not len(bounds) or bounds[0] != 0 or bounds[-1] != len(parts) or (
                np.diff(bounds) < 0).any():
            raise refuse(f"/{ends} does not rise from 0 to {len(parts)}")
    if len(split.offsets) != len(split.span_offsets) or split.spans.shape[1] != 2:
        raise refuse("'s offsets, span_offsets and spans are not of one number of examples")
    if split.tokens and not 0 <= split.ids.min() <= split.ids.max() < attributes["vocabulary"]:
        raise refuse(f"/ids has ids outside 0..{attributes['vocabulary'] - 1}")
    lengths = np.diff(split.offsets)
    of_span = np.repeat(lengths, np.diff(split.span_offsets))
    begin, end = split.spans.T
    if ((begin < 0) | (end < begin) | (end > of_span)).any():
        raise refuse("/spans reaches outside its example")
    return split
