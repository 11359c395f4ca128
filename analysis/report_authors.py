"""What an author adds to a page (--page page.toml): title, dates, lead, licence, notes."""

from __future__ import annotations

import datetime
import difflib
from dataclasses import dataclass, field
from typing import Any

from prices_file import read_toml
from report_rows import CEILINGS, SUITES
from results import ResultError

TEXTS = ("title", "author", "lead", "licence", "citation", "published", "updated")
NOTE_SECTIONS = (*SUITES, CEILINGS, "costs", "gpus", "page")


@dataclass
class Author:
    """Texts are empty and lists too where the author gives none."""

    title: str = "Training benchmarks"
    author: str = ""
    lead: str = ""
    licence: str = ""
    citation: str = ""
    published: str = ""  # dates, ISO 8601
    updated: str = ""
    notes: dict[str, list[str]] = field(default_factory=dict)  # by section


def _unknown(where: str, key: str, known: tuple[str, ...]) -> ResultError:
    nearest = difflib.get_close_matches(key, known, 1)
    hint = f"did you mean '{nearest[0]}'?" if nearest else f"known: {', '.join(known)}"
    return ResultError(f"{where}: unknown key '{key}'; {hint}")


def _text(path: str, key: str, value: Any) -> str:
    if isinstance(value, datetime.date):
        value = value.isoformat()
    if not isinstance(value, str):
        raise ResultError(f"{path}: {key} is {value!r}; give it as text")
    return value.strip()


def load(path: str | None) -> Author:
    """Reads page.toml:

        title = "..."          author, lead, licence, citation; published and updated (dates)
        [notes]
        ddp = ["..."]          the author's notes by section: a suite (ceilings
                               too), costs, gpus or page

    Raises ResultError naming the entry.
    """
    if path is None:
        return Author()
    document = read_toml(path)
    author = Author()
    for key, value in document.items():
        if key == "notes":
            continue
        if key not in TEXTS:
            raise _unknown(path, key, (*TEXTS, "notes"))
        setattr(author, key, _text(path, key, value))
    notes = document.get("notes", {})
    if not isinstance(notes, dict):
        raise ResultError(f"{path}: notes is a table: [notes], then ddp = [\"...\"]")
    for section, lines in notes.items():
        if section not in NOTE_SECTIONS:
            raise _unknown(f"{path}: [notes]", section, NOTE_SECTIONS)
        lines = [lines] if isinstance(lines, str) else lines
        if not isinstance(lines, list):
            raise ResultError(f"{path}: [notes] {section} is {lines!r}; give a list of texts")
        author.notes[section] = [_text(path, f"notes.{section}", line) for line in lines]
    return author
