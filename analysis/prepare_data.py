#!/usr/bin/env python3
"""Turns alpaca or chat records and a tokenizer.json into the token file that
`trainsuite finetune --data` reads (docs/data.md)."""

from __future__ import annotations

import argparse
import datetime
import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import token_file
from prepare_examples import TEMPLATES, Conversation, Rendered, read
from results_records import ResultError
from results_writer import check_creatable
from token_file import Example, TokenFile, split_of

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

END_TOKENS = {"qwen": ("<|im_end|>",),
              "alpaca": ("<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>")}


@dataclass
class Counts:
    """What became of the records of one split."""

    left_out: list[str] = field(default_factory=list)  # places of blank records
    truncated: int = 0
    unanswered: int = 0  # examples without a single label of an answer


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="trainsuite-prepare-data", description=__doc__, allow_abbrev=False,
        epilog="The first N records that are not blank become training examples, the next M are "
               "held out.")
    parser.add_argument("file", metavar="FILE",
                        help="JSON array or JSON lines: instruction, input, output; or messages")
    parser.add_argument("--tokenizer", required=True, metavar="FILE",
                        help="a model's tokenizer.json, or the folder that holds it")
    parser.add_argument("--train", type=whole(1), metavar="N",
                        help="training examples [all that are not held out]")
    parser.add_argument("--held-out", type=whole(0), default=0, metavar="M",
                        help="held-out examples [0]")
    parser.add_argument("--template", choices=tuple(TEMPLATES), default="qwen",
                        help="how a record becomes text [qwen]")
    parser.add_argument("--limit", type=whole(2), default=512, metavar="TOKENS",
                        help="longer examples are cut [512]")
    parser.add_argument("--system", metavar="TEXT", help="system message of qwen [its own]")
    parser.add_argument("--end-token", metavar="TEXT",
                        help="ends an answer [qwen <|im_end|>; alpaca the tokenizer's end of text]")
    parser.add_argument("-o", "--out", required=True, metavar="OUT.h5", help="a new file")
    return parser


def whole(minimum: int) -> Callable[[str], int]:
    """Reads a whole number from `minimum`."""
    def read_number(text: str) -> int:
        if text.isascii() and text.isdigit() and minimum <= int(text) < 2**31:
            return int(text)
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {minimum}")

    return read_number


def load_tokenizer(path: str) -> tuple[Tokenizer, str]:
    """The tokenizer and its file. Raises ResultError."""
    from tokenizers import Tokenizer

    if os.path.isdir(path):
        path = os.path.join(path, "tokenizer.json")
    if not os.path.isfile(path):
        raise ResultError(f"--tokenizer {path}: no such file; it is the tokenizer.json of a model")
    try:
        tokenizer = Tokenizer.from_file(path)
    except Exception as error:  # the library raises bare Exception
        raise ResultError(f"--tokenizer {path}: {str(error).splitlines()[0]}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer, path


def end_token(tokenizer: Tokenizer, template: str, wanted: str | None) -> str:
    """The token that ends an answer. Raises ResultError where the tokenizer has none."""
    names = (wanted,) if wanted is not None else END_TOKENS[template]
    for name in names:
        if name and tokenizer.token_to_id(name) is not None:
            break
    else:
        raise ResultError(f"the tokenizer has no token {' or '.join(map(repr, names))} to end an "
                          "answer; name one with --end-token")
    if template == "qwen" and tokenizer.token_to_id("<|im_start|>") is None:
        raise ResultError("--template qwen: the tokenizer has no token '<|im_start|>', so it is "
                          "none for chats of this kind; use --template alpaca")
    return name


def example_of(rendered: Rendered, encoding: Encoding, limit: int) -> Example:
    """At most `limit` tokens; a token is the answer's when it holds a part of it."""
    ids, spans = encoding.ids[:limit], []
    for begin, end in rendered.answers:
        inside = [index for index, (first, last) in enumerate(encoding.offsets[:limit])
                  if first < end and last > begin]
        if inside:
            spans.append((inside[0], inside[-1] + 1))
    return Example(ids, spans)


def examples_of(conversations: list[Conversation], tokenizer: Tokenizer, end: str,
                options: argparse.Namespace, counts: Counts) -> list[Example]:
    """One example a conversation."""
    rendered = [TEMPLATES[options.template](conversation, options.system, end)
                for conversation in conversations]
    encodings = tokenizer.encode_batch([one.text for one in rendered], add_special_tokens=False)
    examples = [example_of(one, encoding, options.limit)
                for one, encoding in zip(rendered, encodings, strict=True)]
    counts.truncated += sum(len(encoding.ids) > options.limit for encoding in encodings)
    counts.unanswered += sum(not example.spans for example in examples)
    return examples


def chosen(path: str, options: argparse.Namespace
           ) -> tuple[list[Conversation], list[Conversation], list[str]]:
    """Records to train on, to hold out, and the places of blank ones that were passed over."""
    records = read(path)
    kept = [record for record in records if not record.blank]
    train = len(kept) - options.held_out if options.train is None else options.train
    if train < 1 or train + options.held_out > len(kept):
        wanted = "" if options.train is None else f"--train {options.train} and "
        blank = f" ({len(records) - len(kept)} of {len(records)} are blank)" if len(
            records) > len(kept) else ""
        raise ResultError(f"{path} has {len(kept)} examples{blank}, too few for {wanted}"
                          f"--held-out {options.held_out}; ask for fewer, at least 1 to train on")
    used = kept[:train + options.held_out]
    last = records.index(used[-1]) if options.train is not None else len(records)
    blank_places = [record.place for record in records[:last] if record.blank]
    return used[:train], used[train:], blank_places


def sha256(path: str) -> str:
    """Hex digest of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def prepare(options: argparse.Namespace) -> tuple[TokenFile, Counts]:
    """The tokens of both splits, and what was left out or cut. Raises ResultError."""
    import tokenizers

    tokenizer, tokenizer_path = load_tokenizer(options.tokenizer)
    end = end_token(tokenizer, options.template, options.end_token)
    train, held_out, blank = chosen(options.file, options)
    counts = Counts(left_out=blank)
    train_split, held_out_split = (
        split_of(examples_of(part, tokenizer, end, options, counts)) for part in (train, held_out))
    now = datetime.datetime.now(datetime.timezone.utc)
    return TokenFile(train_split, held_out_split, {
        "vocabulary": tokenizer.get_vocab_size(with_added_tokens=True),
        "limit_tokens": options.limit,
        "template": options.template,
        "template_example": TEMPLATES[options.template](train[0], options.system, end).text,
        "end_token_id": tokenizer.token_to_id(end),
        "source": Path(options.file).name,
        "source_sha256": sha256(options.file),
        "tokenizer": Path(tokenizer_path).name,
        "tokenizer_sha256": sha256(tokenizer_path),
        "tokenizers_version": tokenizers.__version__,
        "created_utc": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "blank_left_out": len(blank),
        "truncated_examples": counts.truncated,
    }), counts


def summary(tokens: TokenFile, counts: Counts, path: str) -> str:
    """What was made, a line each."""
    lines = []
    for name, split in (("train", tokens.train), ("held out", tokens.held_out)):
        labels = int((split.spans[:, 1] - split.spans[:, 0]).sum())
        mean = f", mean {split.tokens / split.examples:.1f} an example" if split.examples else ""
        lines.append(f"{name:9} {split.examples:,} examples, {split.tokens:,} tokens "
                     f"({labels:,} of answers){mean}")
    limit = tokens.attributes["limit_tokens"]
    lines.append(f"cut to {limit} tokens: {counts.truncated}; without a token of an answer: "
                 f"{counts.unanswered}; blank records left out: {len(counts.left_out)}"
                 + (f" ({', '.join(counts.left_out[:5])}"
                    f"{', ...' if len(counts.left_out) > 5 else ''})" if counts.left_out else ""))
    return "\n".join([*lines, path])


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 written, 2 bad input."""
    options = make_parser().parse_args(arguments)
    try:
        check_creatable(options.out)
        tokens, counts = prepare(options)
        token_file.write(options.out, tokens)
    except ResultError as error:
        print(f"trainsuite-prepare-data: {error}", file=sys.stderr)
        return 2
    print(summary(tokens, counts, options.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
