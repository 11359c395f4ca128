"""Training examples as text: reads alpaca and chat records, renders them with a template."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from results_records import ResultError

QWEN_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
ALPACA_WITH_INPUT = (
    "Below is an instruction that describes a task, paired with an input that provides further "
    "context. Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{}\n\n### Input:\n{}\n\n### Response:\n")
ALPACA_WITHOUT_INPUT = (
    "Below is an instruction that describes a task. Write a response that appropriately completes "
    "the request.\n\n### Instruction:\n{}\n\n### Response:\n")
ROLES = {"system": "system", "user": "user", "human": "user", "assistant": "assistant",
         "gpt": "assistant"}


@dataclass
class Turn:
    """One message; `role` is system, user or assistant."""

    role: str
    text: str


@dataclass
class Conversation:
    """The turns of one record and where it stands in its file ("line 3", "record 3")."""

    turns: list[Turn]
    place: str
    instruction: str = ""  # the alpaca record's own parts, for the alpaca template
    context: str = ""

    @property
    def blank(self) -> bool:
        """Whether there is nothing but white space in it."""
        return not any(turn.text.strip() for turn in self.turns)


@dataclass
class Rendered:
    """Text of a whole example and the ranges [begin, end) of its characters that are answers."""

    text: str
    answers: list[tuple[int, int]]


def read(path: str) -> list[Conversation]:
    """The records of a JSON array or of JSON lines, in order. A byte order mark, CRLF, blank lines
    and a missing last newline change nothing. Raises ResultError naming the line or record."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ResultError(f"{path}: {error.strerror}; name a JSON or JSONL file") from error
    except UnicodeDecodeError as error:
        raise ResultError(f"{path}: byte {error.start} is not UTF-8; convert the file") from error
    if text.lstrip().startswith("["):
        return [_conversation(path, f"record {number}", record)
                for number, record in enumerate(_parsed(path, "", text), 1)]
    lines = [(f"line {number}", line) for number, line in enumerate(text.split("\n"), 1)
             if line.strip()]  # only "\n" ends a line: U+2028 may stand within JSON text
    return [_conversation(path, place, _parsed(path, f" {place}:", line)) for place, line in lines]


def _parsed(path: str, place: str, text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        hint = " (a file of one object a line has no line breaks within one)" if place else ""
        raise ResultError(f"{path}:{place} no valid JSON: {error}{hint}") from error


def _conversation(path: str, place: str, record: object) -> Conversation:
    """An alpaca record (instruction, input, output) or a chat (messages or conversations)."""
    if not isinstance(record, dict):
        raise ResultError(f"{path}: {place} is no object, but a {type(record).__name__}")
    for key, role, text in (("messages", "role", "content"), ("conversations", "from", "value")):
        if key in record:
            return Conversation(_turns(path, place, record[key], key, role, text), place)
    if "instruction" not in record or "output" not in record:
        raise ResultError(f"{path}: {place} has neither instruction and output, nor messages, nor "
                          "conversations")
    parts = [record["instruction"], record.get("input") or "", record["output"]]
    for name, part in zip(("instruction", "input", "output"), parts):
        _check_text(path, place, name, part)
    instruction, context, output = parts
    question = f"{instruction}\n{context}" if context else instruction
    return Conversation([Turn("user", question), Turn("assistant", output)], place, instruction,
                        context)


def _turns(path: str, place: str, messages: object, key: str, role: str, text: str) -> list[Turn]:
    if not isinstance(messages, list) or not messages:
        raise ResultError(f"{path}: {place}: {key} is no list of messages")
    turns = []
    for number, message in enumerate(messages, 1):
        if not isinstance(message, dict) or ROLES.get(str(message.get(role))) is None:
            raise ResultError(f"{path}: {place}: message {number} has no {role} among "
                              f"{', '.join(ROLES)}")
        _check_text(path, place, f"{text} of message {number}", message.get(text))
        turns.append(Turn(ROLES[message[role]], message[text]))
    return turns


def _check_text(path: str, place: str, name: str, value: object) -> None:
    if not isinstance(value, str):
        raise ResultError(f"{path}: {place}: {name} is no text")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ResultError(f"{path}: {place}: {name} holds half of a surrogate pair, which is no "
                          "character; repair the text")


def qwen(conversation: Conversation, system: str | None, end: str) -> Rendered:
    """As Qwen2.5's chat template: ChatML, with its own system message where none is given. The
    answer's `end` (<|im_end|>) is a label too: it is what ends the answer."""
    turns = conversation.turns
    if turns[0].role != "system":
        turns = [Turn("system", QWEN_SYSTEM if system is None else system), *turns]
    text, answers = "", []
    for turn in turns:
        text += f"<|im_start|>{turn.role}\n"
        begin = len(text)
        text += turn.text + end
        if turn.role == "assistant":
            answers.append((begin, len(text)))
        text += "\n"
    return Rendered(text, answers)


def alpaca(conversation: Conversation, system: str | None, end: str) -> Rendered:
    """Stanford Alpaca's prompts (Taori et al. 2023); `end` ends the answer and is a label too."""
    if system is not None:
        raise ResultError("--system: the alpaca template has no system message; use qwen")
    roles = [turn.role for turn in conversation.turns]
    if roles != ["user", "assistant"]:
        raise ResultError(f"{conversation.place} is a chat of {len(roles)} messages "
                          f"({', '.join(roles[:4])}); the alpaca template takes one question and "
                          "one answer, use --template qwen")
    question, answer = (turn.text for turn in conversation.turns)
    if conversation.context:
        prompt = ALPACA_WITH_INPUT.format(conversation.instruction, conversation.context)
    else:
        prompt = ALPACA_WITHOUT_INPUT.format(question)
    text = prompt + answer + end
    return Rendered(text, [(len(prompt), len(text))])


TEMPLATES = {"qwen": qwen, "alpaca": alpaca}
