"""Copies a result file with every text passed through a function.

The copy is built anew, not changed in place: HDF5 leaves overwritten texts in a file's free space,
where anybody can read them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

from results_durable import create_exclusively
from results_layout import TEXT
from results_reader import open_checked, part_paths
from results_writer import check_creatable, copy_cases, new_image

# (name of the attribute, column or dataset, its texts) -> as many texts
Texts = Callable[[str, list[str]], list[str]]


def rewrite(path: str, out: str, texts: Texts) -> None:
    """Creates `out` exclusively: `path` with its parts, each text as `texts` gives it.

    Raises ResultError when `path` is no result file or `out` cannot be created.
    """
    check_creatable(out)
    with open_checked(path) as main:
        whole = new_image(lambda target: _copy_all(path, main, target))
    with h5py.File(h5py.h5f.open_file_image(whole)) as source:
        image = new_image(lambda target: _rewrite_group(source, target, texts))
    if not create_exclusively(out, image):
        check_creatable(out)


def _copy_all(path: str, main: h5py.File, target: h5py.File) -> None:
    for name in main:
        main.copy(name, target)
    for name, value in main.attrs.items():
        target.attrs.create(name, value, dtype=main.attrs.get_id(name).dtype)
    for part in part_paths(path):
        with h5py.File(h5py.h5f.open_file_image(Path(part).read_bytes())) as rows:
            copy_cases(rows, target)


def _rewrite_group(source: h5py.Group, target: h5py.Group, texts: Texts) -> None:
    _rewrite_attributes(source, target, texts)
    for name, item in source.items():
        if isinstance(item, h5py.Group):
            _rewrite_group(item, target.create_group(name), texts)
        else:
            data = _rewrite_values(name, item[()], item.dtype, texts)
            made = target.create_dataset(name, data=data, dtype=item.dtype, shape=item.shape)
            _rewrite_attributes(item, made, texts)


def _rewrite_attributes(source: h5py.Group | h5py.Dataset, target: h5py.Group | h5py.Dataset,
                        texts: Texts) -> None:
    for name, value in source.attrs.items():
        stored = source.attrs.get_id(name)
        if h5py.check_string_dtype(stored.dtype):
            value = _through(name, value, texts)
            target.attrs.create(name, value, shape=stored.shape, dtype=TEXT)
        else:
            target.attrs.create(name, value, shape=stored.shape, dtype=stored.dtype)


def _rewrite_values(name: str, data: np.ndarray, dtype: np.dtype, texts: Texts) -> object:
    if dtype.names:
        for column in dtype.names:
            if h5py.check_string_dtype(dtype[column]):
                data[column] = _through(column, data[column], texts)
        return data
    return _through(name, data, texts) if h5py.check_string_dtype(dtype) else data


def _through(name: str, value: object, texts: Texts) -> object:
    """A text, or an array of texts, through the function; bytes that are no UTF-8 stay."""
    array = np.asarray(value, dtype=object)
    made = texts(name, [_decoded(one) for one in array.ravel().tolist()])
    stored = np.empty(len(made), dtype=object)
    stored[:] = [text.encode("utf-8", "surrogateescape") for text in made]
    return stored.reshape(array.shape)


def _decoded(value: object) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
