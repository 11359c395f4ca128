"""trainsuite-prepare-data: records to tokens, against hand-made tokenizers and the file's rules."""

from __future__ import annotations

import json
import shutil
import subprocess
import unicodedata
import zlib
from pathlib import Path

import h5py
import numpy as np
import prepare_data
import pytest
import token_file
from prepare_examples import QWEN_SYSTEM
from results_records import ResultError
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, trainers)

ROOT = Path(__file__).resolve().parents[2]
QWEN_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+"
              r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")  # of Qwen2.5's tokenizer.json
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TWO_SPACES, FOUR_SPACES, IM_END = 256, 257, 260  # ids of byte_tokenizer; below 256 they are bytes
RECORDS = [{"instruction": f"Say {word}.", "input": "", "output": word}
           for word in ("alpha", "beta", "gamma", "delta", "epsilon")]


def byte_letters() -> list[str]:
    """The printable letter of each byte in byte-level BPE (Radford et al. 2019)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def dressed(model: models.BPE) -> Tokenizer:
    """A tokenizer with Qwen2.5's normalizer, splitting and special tokens around `model`."""
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN_SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.fixture(scope="module")
def byte_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Ids are bytes, and two merges of spaces: every id is known by hand."""
    letters = byte_letters()
    space = letters[32]
    vocabulary = {letter: byte for byte, letter in enumerate(letters)}
    vocabulary |= {space * 2: TWO_SPACES, space * 4: FOUR_SPACES}
    tokenizer = dressed(models.BPE(vocab=vocabulary, merges=[(space, space),
                                                             (space * 2, space * 2)]))
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    tokenizer.enable_truncation(5)  # as some models ship it; it must not count
    tokenizer.enable_padding(length=200)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return str(path)


@pytest.fixture(scope="module")
def trained_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a trained one."""
    tokenizer = dressed(models.BPE())
    corpus = [record["instruction"] + record["output"] for record in RECORDS] + [QWEN_SYSTEM]
    tokenizer.train_from_iterator(corpus * 4, trainers.BpeTrainer(
        vocab_size=400, special_tokens=list(SPECIAL), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    folder = tmp_path_factory.mktemp("model")
    tokenizer.save(str(folder / "tokenizer.json"))
    return str(folder)


def prepared(tmp_path: Path, records: bytes | list, tokenizer: str, *flags: object,
             status: int = 0) -> Path:
    """The token file of these records."""
    source, out = tmp_path / "records.json", tmp_path / "tokens.h5"
    source.write_bytes(records if isinstance(records, bytes) else json.dumps(records).encode())
    out.unlink(missing_ok=True)
    arguments = [source, "--tokenizer", tokenizer, "-o", out, *flags]
    assert prepare_data.main([str(argument) for argument in arguments]) == status
    return out


def refused(tmp_path: Path, capsys: pytest.CaptureFixture, records: bytes | list, tokenizer: str,
            *flags: object) -> str:
    """The one line said about bad input; no file is left."""
    out = prepared(tmp_path, records, tokenizer, *flags, status=2)
    said = capsys.readouterr().err
    assert said.startswith("trainsuite-prepare-data: ") and said.count("\n") == 1, said
    assert not out.exists()
    return said


def text_of(ids: np.ndarray) -> str:
    """What the ids of byte_tokenizer say."""
    names = dict(enumerate(["  ", "    ", *SPECIAL], 256))
    return b"".join(names[i].encode() if i > 255 else bytes([i]) for i in ids).decode()


def as_bytes(text: str) -> list[int]:
    """Ids of byte_tokenizer for text without special tokens and runs of spaces."""
    return list(unicodedata.normalize("NFC", text).encode())


QWEN_TEXT = (f"<|im_start|>system\n{QWEN_SYSTEM}<|im_end|>\n<|im_start|>user\n{{}}<|im_end|>\n"
             "<|im_start|>assistant\n{}<|im_end|>\n")


def test_qwen_text_and_answer(tmp_path: Path, byte_tokenizer: str) -> None:
    records = [{"instruction": "Add.", "input": "1 + 1", "output": "2"}, *RECORDS]
    file = token_file.load(str(prepared(tmp_path, records, byte_tokenizer, "--held-out", 2)))
    assert (file.train.examples, file.held_out.examples) == (4, 2)
    ids, answer = file.train.example(0), file.train.answer(0)
    assert text_of(ids) == QWEN_TEXT.format("Add.\n1 + 1", "2")
    assert text_of(ids[answer]) == "2<|im_end|>"
    assert text_of(file.held_out.example(1)) == QWEN_TEXT.format("Say epsilon.", "epsilon")


def test_alpaca_text_and_answer(tmp_path: Path, byte_tokenizer: str) -> None:
    records = [{"instruction": "Add.", "input": "1 + 1", "output": "2"}, RECORDS[0]]
    path = prepared(tmp_path, records, byte_tokenizer, "--template", "alpaca")
    split = token_file.load(str(path)).train
    with_input, without = (text_of(split.example(index)) for index in (0, 1))
    assert with_input.endswith("### Instruction:\nAdd.\n\n### Input:\n1 + 1\n\n### Response:\n2"
                               "<|endoftext|>")
    assert "paired with an input" in with_input and "Input" not in without
    assert text_of(split.example(1)[split.answer(1)]) == "alpha<|endoftext|>"


@pytest.mark.parametrize("key", ["messages", "conversations"])
def test_every_assistant_turn_is_an_answer(tmp_path: Path, byte_tokenizer: str, key: str) -> None:
    turns = [("system", "Be brief."), ("user", "a?"), ("assistant", "b"), ("user", "c?"),
             ("assistant", "d")]
    if key == "messages":
        record = {key: [{"role": role, "content": text} for role, text in turns]}
    else:
        other = {"user": "human", "assistant": "gpt"}
        record = {key: [{"from": other.get(role, role), "value": text} for role, text in turns]}
    split = token_file.load(str(prepared(tmp_path, [record], byte_tokenizer))).train
    assert text_of(split.example(0)) == "".join(
        f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)
    assert text_of(split.example(0)[split.answer(0)]) == "b<|im_end|>d<|im_end|>"
    assert len(split.spans) == 2


def test_system_message_can_be_given(tmp_path: Path, byte_tokenizer: str) -> None:
    path = prepared(tmp_path, RECORDS, byte_tokenizer, "--system", "Hm.")
    assert text_of(token_file.load(str(path)).train.example(0)).startswith(
        "<|im_start|>system\nHm.<|im_end|>\n<|im_start|>user\n")


@pytest.mark.parametrize(("answer", "ids"), [
    ("a b\nc\r\n\td", as_bytes("a b\nc\r\n\td")),
    ("\n\n\nx", as_bytes("\n\n\nx")),
    ("漢字。かな", as_bytes("漢字。かな")),
    ("e\u0301a\u0308", [0xC3, 0xA9, 0xC3, 0xA4]),  # composed by NFC
    ("\u2028z\u00a0", as_bytes("\u2028z\u00a0")),
    ("x\n    y", [*b"x\n", TWO_SPACES, *b"  y"]),  # the last space belongs to the word
    ("x\n     y", [*b"x\n", FOUR_SPACES, *b" y"]),
    ("👩\u200d🚀", as_bytes("👩\u200d🚀")),
])
def test_the_library_splits_and_merges(tmp_path: Path, byte_tokenizer: str, answer: str,
                                       ids: list[int]) -> None:
    """Ids worked out by hand from bytes, Qwen2.5's splitting rule and the two merges."""
    records = [{"instruction": "x", "output": answer}]
    split = token_file.load(str(prepared(tmp_path, records, byte_tokenizer))).train
    assert split.example(0)[split.answer(0)].tolist() == [*ids, IM_END]


LINES = [json.dumps(record).encode() for record in RECORDS[:3]]


@pytest.mark.parametrize("content", [
    b"\n".join(LINES),
    b"\n".join(LINES) + b"\n",
    b"\xef\xbb\xbf" + b"\r\n".join(LINES) + b"\r\n",
    b"\n\n" + b"\n \n\t\n".join(LINES) + b"\n\n\n",
    b"\xef\xbb\xbf\r\n[" + b",\r\n".join(LINES) + b"]",
    b"\n".join(LINES).replace(b"Say alpha.", "Say\u2028alpha.".encode()),
], ids=["no last newline", "lines", "BOM and CRLF", "blank lines", "array", "line separator"])
def test_three_lines_are_three_examples(tmp_path: Path, byte_tokenizer: str,
                                        content: bytes) -> None:
    split = token_file.load(str(prepared(tmp_path, content, byte_tokenizer))).train
    answers = [text_of(split.example(index)[split.answer(index)]) for index in range(3)]
    assert split.examples == 3
    assert answers == ["alpha<|im_end|>", "beta<|im_end|>", "gamma<|im_end|>"]


def test_blank_empty_and_long_records(tmp_path: Path, byte_tokenizer: str,
                                      capsys: pytest.CaptureFixture) -> None:
    """Each has its own outcome: left out, kept with the end alone as label, cut."""
    limit = 300
    records = [RECORDS[0], {"instruction": " ", "output": "\n"}, {"instruction": "x", "output": ""},
               {"instruction": "x", "output": "word " * (2 * limit)},
               {"instruction": "question " * limit, "output": "y"}, RECORDS[1]]
    path = prepared(tmp_path, records, byte_tokenizer, "--limit", limit, "--train", 4,
                    "--held-out", 1)
    said = capsys.readouterr().out
    file = token_file.load(str(path))
    assert text_of(file.train.example(1)[file.train.answer(1)]) == "<|im_end|>"
    assert [len(file.train.example(index)) for index in (2, 3)] == [limit, limit]
    assert not file.train.answer(3).any() and file.train.answer(2).any()
    assert text_of(file.held_out.example(0)) == QWEN_TEXT.format("Say beta.", "beta")
    assert "cut to 300 tokens: 2; without a token of an answer: 1; blank records left out: 1 " \
           "(record 2)" in said
    assert f"train     4 examples, {file.train.tokens:,} tokens" in said


def test_one_token_more_than_the_limit_is_cut(tmp_path: Path, byte_tokenizer: str) -> None:
    whole = len(token_file.load(str(prepared(tmp_path, RECORDS[:1], byte_tokenizer)))
                .train.example(0))
    for limit, length, cut in ((whole, whole, 0), (whole - 1, whole - 1, 1)):
        file = token_file.load(str(prepared(tmp_path, RECORDS[:1], byte_tokenizer, "--limit",
                                            limit)))
        assert len(file.train.example(0)) == length
        assert file.attributes["truncated_examples"] == cut


def test_a_trained_tokenizer_gives_back_the_text(tmp_path: Path, trained_tokenizer: str) -> None:
    file = token_file.load(str(prepared(tmp_path, RECORDS, trained_tokenizer)))
    tokenizer = Tokenizer.from_file(trained_tokenizer + "/tokenizer.json")
    for index, record in enumerate(RECORDS):
        ids, answer = file.train.example(index), file.train.answer(index)
        text = tokenizer.decode(ids.tolist(), skip_special_tokens=False)
        assert text == QWEN_TEXT.format(record["instruction"], record["output"])
        assert tokenizer.decode(ids[answer].tolist()) == record["output"]
        assert len(ids) < len(text) / 2  # it merges
    assert file.attributes["vocabulary"] == tokenizer.get_vocab_size()
    assert file.train.ids.max() < file.attributes["vocabulary"]


def test_file_is_as_documented(tmp_path: Path, byte_tokenizer: str) -> None:
    """Read with h5py alone, as another program would."""
    with h5py.File(prepared(tmp_path, RECORDS, byte_tokenizer, "--held-out", 2)) as file:
        assert (file.attrs["schema"], file.attrs["schema_version"]) == ("trainsuite-tokens", 1)
        assert file.attrs["end_token_id"] == IM_END
        for name, examples in (("train", 3), ("held_out", 2)):
            group = file[name]
            kinds = {key: group[key].dtype.str for key in group}
            assert kinds == {"offsets": "<i8", "span_offsets": "<i8", "spans": "<i8", "ids": "<i4"}
            assert group.attrs["examples"] == examples == len(group["offsets"]) - 1
            assert group.attrs["tokens"] == len(group["ids"]) == group["offsets"][-1]
            lengths = group["spans"][:, 1] - group["spans"][:, 0]
            assert group.attrs["label_tokens"] == lengths.sum() > examples
            content = b"".join(group[key][...].tobytes()
                               for key in ("offsets", "span_offsets", "spans", "ids"))
            assert group.attrs["crc32"] == zlib.crc32(content)


@pytest.mark.parametrize(("records", "flags", "words"), [
    (b"", (), "has 0 examples"),
    (b"[]", (), "has 0 examples"),
    ([{"instruction": " ", "output": ""}], (), "has 0 examples (1 of 1 are blank)"),
    (RECORDS, ("--train", 4, "--held-out", 2), "has 5 examples, too few for --train 4"),
    (RECORDS, ("--held-out", 5), "at least 1 to train on"),
    (b'{"instruction": "a", "output": "b"}\n{"instruction": ', (), "line 2: no valid JSON"),
    (b"[" * 100000, (), "no valid JSON"),
    (b"[1]", (), "record 1 is no object, but a int"),
    ([{"text": "x"}], (), "record 1 has neither instruction and output"),
    ([RECORDS[0], {"instruction": "a", "output": 3}], (), "record 2: output is no text"),
    ([{"messages": []}], (), "record 1: messages is no list of messages"),
    ([{"messages": [{"role": "tool", "content": "x"}]}], (), "message 1 has no role among system"),
    ([{"messages": [{"role": ["user"], "content": "x"}]}], (), "message 1 has no role"),
    ([{"messages": [{"role": "user"}]}], (), "content of message 1 is no text"),
    (b'{"instruction": "\\ud800", "output": "b"}', (), "half of a surrogate pair"),
    (b'{"instruction": "\xff", "output": "b"}', (), "byte 17 is not UTF-8"),
    ([{"messages": [{"role": "user", "content": "x"}]}], ("--template", "alpaca"),
     "record 1 is a chat of 1 messages"),
    (RECORDS, ("--template", "alpaca", "--system", "x"), "--system"),
    (RECORDS, ("--end-token", "<end>"), "has no token '<end>'"),
])
def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture, byte_tokenizer: str,
                               records: bytes | list, flags: tuple, words: str) -> None:
    assert words in refused(tmp_path, capsys, records, byte_tokenizer, *flags)


@pytest.mark.parametrize("flags", [("--train", "0"), ("--held-out", "-1"), ("--limit", "1_0"),
                                   ("--template", "llama"), ("--trian", "3")])
def test_wrong_flags_end_with_2(tmp_path: Path, flags: tuple[str, str]) -> None:
    with pytest.raises(SystemExit) as ended:
        prepare_data.main(["a.json", "--tokenizer", "t.json", "-o", str(tmp_path / "o.h5"), *flags])
    assert ended.value.code == 2


def test_bad_tokenizers_are_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert "none.json: no such file" in refused(tmp_path, capsys, RECORDS, "none.json")
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    assert "bad.json: " in refused(tmp_path, capsys, RECORDS, str(bad))
    plain = Tokenizer(models.BPE(vocab={"<|im_end|>": 0, "a": 1}, merges=[]))
    plain.save(str(bad))
    assert "no token '<|im_start|>'" in refused(tmp_path, capsys, RECORDS, str(bad))


def test_a_file_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture,
                                     byte_tokenizer: str) -> None:
    path = prepared(tmp_path, RECORDS, byte_tokenizer)
    before = path.read_bytes()
    arguments = [str(tmp_path / "records.json"), "--tokenizer", byte_tokenizer, "-o", str(path)]
    assert prepare_data.main(arguments) == 2
    assert "never overwritten" in capsys.readouterr().err
    assert path.read_bytes() == before


def changed(path: Path, name: str, value: object, crc: bool = True) -> None:
    """Replaces a dataset of /train or, with an @, an attribute of the root."""
    with h5py.File(path, "a") as file:
        if name.startswith("@"):
            file.attrs[name[1:]] = value
            return
        group = file["train"]
        del group[name]
        if value is not None:
            group[name] = value
            if crc:
                content = b"".join(group[key][...].tobytes()
                                   for key in ("offsets", "span_offsets", "spans", "ids"))
                group.attrs["crc32"] = zlib.crc32(content)


@pytest.mark.parametrize(("name", "value", "words"), [
    ("@schema", "trainsuite", "is no token file"),
    ("@schema_version", 2, "has schema version 2"),
    ("@vocabulary", 0, "attribute vocabulary is 0"),
    ("@vocabulary", 200, "ids outside 0..199"),
    ("ids", None, "/ids is missing"),
    ("ids", np.zeros(3, np.int32), "/offsets does not rise from 0 to 3"),
    ("ids", np.zeros((3, 1), np.int32), "/ids has 2 dimensions"),
    ("ids", np.zeros(3, np.float32), "/ids is missing or holds no whole numbers"),
    ("offsets", np.zeros(0, np.int64), "/offsets does not rise"),
    ("span_offsets", np.array([0, 1], np.int64), "/span_offsets does not rise from 0 to 5"),
    ("spans", np.full((5, 2), 10**6), "/spans reaches outside its example"),
])
def test_damaged_files_are_refused(tmp_path: Path, byte_tokenizer: str, name: str, value: object,
                                   words: str) -> None:
    path = prepared(tmp_path, RECORDS, byte_tokenizer)
    token_file.load(str(path))
    changed(path, name, value)
    with pytest.raises(ResultError) as error:
        token_file.load(str(path))
    assert words in str(error.value)


def test_a_changed_id_and_a_cut_file_are_refused(tmp_path: Path, byte_tokenizer: str) -> None:
    path = prepared(tmp_path, RECORDS, byte_tokenizer)
    ids = token_file.load(str(path)).train.ids.copy()
    ids[5] ^= 1
    changed(path, "ids", ids, crc=False)
    with pytest.raises(ResultError, match="crc32"):
        token_file.load(str(path))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ResultError, match="no HDF5 file, or cut short"):
        token_file.load(str(path))
    with pytest.raises(ResultError, match="no such file"):
        token_file.load(str(tmp_path / "none.h5"))


def test_the_installed_command_finds_its_module(tmp_path: Path) -> None:
    """The launcher maps trainsuite-prepare-data to analysis/prepare_data.py."""
    launcher = tmp_path / "bin" / "trainsuite-prepare-data"
    module = tmp_path / "share" / "trainsuite" / "analysis" / "prepare_data.py"
    for path in (launcher, module):
        path.parent.mkdir(parents=True)
    shutil.copy(ROOT / "cmake" / "trainsuite-analysis.sh", launcher)
    module.write_text("import sys\nprint(*sys.argv[1:])\n")
    done = subprocess.run(["sh", launcher, "a b", "c"], capture_output=True, text=True, timeout=60,
                          check=False)
    assert done.stdout == "a b c\n", done.stderr
