"""Reads options from a command line of Megatron-LM, or from a shell script that builds one.

A script is read as words, not run. Flags in branches and loops, and variables that it does not set exactly once, have
no known value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from ibpulse.overlap.megatron_options import CONSTANT_FLAGS, OPTIONS, FoundOptions, NoDefault, Option
from ibpulse.overlap.megatron_rules import SNAPSHOT_DATE
from ibpulse.overlap.rule_conditions import GivenOption, OptionValue, value_text
from ibpulse.text import escape_controls

LIKE = 0.9
MOST_REMARKS = 20
# comparing a flag with all known ones takes a millisecond
MOST_COMPARED = 200
VIRTUAL_STAGES = "virtual_pipeline_model_parallel_size"
OTHER_STAGE_FLAGS = ("--num-layers-per-virtual-pipeline-stage", "--pipeline-model-parallel-layout")
ELSEWHERE = ("--yaml-cfg", "--config-file")
"""Flags whose file sets other options."""
_FLAGS = {flag: option for option in OPTIONS.values() for flag in option.flags}
_OFF_FLAGS = {flag: option for option in OPTIONS.values() for flag in option.off_flags}
KNOWN_FLAGS = (*_FLAGS, *_OFF_FLAGS, *CONSTANT_FLAGS, *OTHER_STAGE_FLAGS)

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z_0-9]*)\+?=(.*)", re.DOTALL)
_EXPANSION = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z_0-9]*)(?:\[[@*]\])?\}|([A-Za-z_][A-Za-z_0-9]*)|[@*])")
_OPENING, _CLOSING = ("if", "case", "for", "while", "until"), ("fi", "esac", "done")
_TEST = ("[", "[[")
_AFTER_CONDITION = ("then", "do", "in", "]", "]]")
_SEPARATORS = (";", "&&", "||", "|", "&", ")")
_SILENT = ("echo", "printf")


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a script, its line, whether it is in a branch or a loop, and whether a list of values ends with it."""

    text: str
    line: int
    branch: bool
    last: bool


@dataclass(slots=True)
class _Script:
    """The words and variables of a script; a variable without a known value is None."""

    path: Path
    words: list[Word]
    variables: dict[str, str | None] = field(default_factory=dict)
    arrays: set[str] = field(default_factory=set)
    found: FoundOptions = field(default_factory=FoundOptions)
    seen: dict[str, list[GivenOption | None]] = field(default_factory=dict)
    compared: set[str] = field(default_factory=set)
    complete: bool = True

    def place(self, line: int) -> str:
        return f"{self.path}:{line}"

    def note(self, name: str, value: OptionValue, word: Word) -> None:
        """An option got a value; in a branch, it may have it or not."""
        self.seen.setdefault(name, []).append(None if word.branch else GivenOption(value, self.place(word.line)))
        if word.branch:
            self.remark(word.line, f"{name}: a branch or a loop sets it; its value is unknown")

    def remark(self, line: int, sentence: str) -> None:
        if len(self.found.remarks) < MOST_REMARKS:
            self.found.remarks.append(escape_controls(f"{self.place(line)}: {sentence}"))


def read_command_line(path: Path, text: str) -> FoundOptions:
    """The options of a command line; a flag that it lacks has Megatron-LM's default, if all of its flags are known."""
    script = _Script(path, list(_split(text)))
    _read_variables(script)
    flags = 0
    for at, word in enumerate(script.words):
        if word.text.startswith("--"):
            flags += _read_flag(script, at)
        elif _EXPANSION.fullmatch(word.text):
            _read_expansion(script, at)
    if not flags:
        script.found.faults.append(
            f"{path}: has no flag of Megatron-LM that a rule reads; give the command line of a run"
        )
    if not any(word.text.endswith(".py") or word.text == "-m" for word in script.words):
        script.complete = False
        script.found.remarks.append(f"{path}: starts no Python program, so defaults of missing flags are not assumed")
    _conclude(script)
    return script.found


def _split(text: str) -> Iterator[Word]:
    """The words of a script without quotes, parentheses and comments."""
    depth = 0
    for number, line in enumerate(text.replace("\\\n", " \n").split("\n"), 1):
        words = line.split()
        if not words or words[0] in _SILENT:
            continue
        condition = False
        for at, raw in enumerate(words):
            if raw.startswith("#"):
                break
            if condition:
                condition = not raw.endswith(";") and raw not in _AFTER_CONDITION
                continue
            if raw.rstrip(";") in _CLOSING and (not at or words[at - 1].endswith(";")):
                depth = max(0, depth - 1)
            elif raw in _OPENING and (not at or words[at - 1].endswith(";")):
                depth += 1
                condition = True
                continue
            elif raw in _TEST:
                condition = True
                continue
            last = raw in _SEPARATORS or raw.endswith((")", ";", '"', "'"))
            for text in _unquote(raw):
                yield Word(text, number, depth > 0, last)


def _unquote(raw: str) -> Iterator[str]:
    """A word without quotes; of an assignment of a list or a quoted text, the variable and the first word in it."""
    name, equals, rest = raw.lstrip("\"'").partition("=")
    if equals and rest[:1] in ("(", '"', "'") and name.rstrip("+").isidentifier():
        inner = rest.strip("\"'();")
        if inner and rest[0] != "(" and rest.rstrip(";")[-1] == rest[0] and not inner.startswith("-"):
            yield f"{name}={inner}"
            return
        yield f"{name}="
        raw = rest
    stripped = raw.strip("\"'();")
    if stripped:
        yield stripped


def _read_variables(script: _Script) -> None:
    """The variables that are set to one plain value outside of branches."""
    for word in script.words:
        match = _ASSIGNMENT.fullmatch(word.text)
        if not match or word.text.startswith("-"):
            continue
        name, value = match.groups()
        if not value or value.startswith("-"):
            script.arrays.add(name)
            continue
        plain = None if "$" in value or "`" in value or word.branch else value
        known = name not in script.variables or script.variables[name] == plain
        script.variables[name] = plain if known else None
        if name == "CUDA_DEVICE_MAX_CONNECTIONS":
            _note_text(script, OPTIONS[name], value, word)


def _read_flag(script: _Script, at: int) -> int:
    """Note what a flag says; 1 if a rule reads it."""
    word = script.words[at]
    flag, equals, text = word.text.partition("=")
    values = [text] if equals else _values_after(script.words, at)
    if flag in CONSTANT_FLAGS:
        script.note(*CONSTANT_FLAGS[flag], word)
    elif flag in _OFF_FLAGS:
        script.note(_OFF_FLAGS[flag].name, False, word)
    elif flag in OTHER_STAGE_FLAGS:
        script.seen.setdefault(VIRTUAL_STAGES, []).append(None)
        script.remark(word.line, f"{flag}: virtual stages are not derived from it; give --set {VIRTUAL_STAGES}=COUNT")
    elif flag in ELSEWHERE:
        script.complete = False
        script.remark(word.line, f"{flag}: its file may set other options; defaults are not assumed")
    elif flag not in _FLAGS:
        _note_unknown(script, flag, word)
        return 0
    elif _FLAGS[flag].kind == "flag":
        script.note(_FLAGS[flag].name, True, word)
    elif not values:
        script.found.faults.append(f"{script.place(word.line)}: {flag}: has no value; give one")
    else:
        _note_text(script, _FLAGS[flag], " ".join(values if _FLAGS[flag].kind == "list" else values[:1]), word)
    return 1


def _values_after(words: Sequence[Word], at: int) -> list[str]:
    """The words after a flag up to the next flag or the end of its list."""
    found: list[str] = []
    if words[at].last:
        return found
    for place in range(at + 1, len(words)):
        word = words[place]
        if word.text.startswith("--") or word.text in _SEPARATORS:
            break
        found.append(word.text)
        if word.last:
            break
    return found


def _note_text(script: _Script, option: Option, text: str, word: Word) -> None:
    plain = _substitute(script, text)
    if plain is None:
        script.seen.setdefault(option.name, []).append(None)
        script.remark(word.line, f"{option.name}: {text[:60]!r} has no known value")
        return
    try:
        script.note(option.name, option.parse(plain), word)
    except ValueError as error:
        script.found.faults.append(escape_controls(f"{script.place(word.line)}: {option.name}: {error}; correct it"))


def _substitute(script: _Script, text: str) -> str | None:
    """The text with the values of its variables; None if one is not known."""
    names = [match[1] or match[2] or "" for match in _EXPANSION.finditer(text)]
    if any(script.variables.get(name) is None for name in names):
        return None
    plain = _EXPANSION.sub(lambda match: str(script.variables[match[1] or match[2]]), text)
    return None if "$" in plain or "`" in plain else plain


def _read_expansion(script: _Script, at: int) -> None:
    """A variable where a flag could be: if the script does not set it, it may hold any flag."""
    word, before = script.words[at], script.words[at - 1] if at else None
    if before is not None and before.text.startswith("--") and not before.last:
        flag = before.text
        option = _FLAGS.get(flag)
        if (option is not None and option.kind != "flag") or flag not in KNOWN_FLAGS:
            return
    match = _EXPANSION.fullmatch(word.text)
    name = (match[1] or match[2] or "") if match else ""
    if name not in script.arrays and script.variables.get(name) is None:
        script.complete = False
        script.remark(word.line, f"{word.text}: this file does not set it; defaults of missing flags are not assumed")


def _note_unknown(script: _Script, flag: str, word: Word) -> None:
    flag = flag[:100]
    if flag in script.compared or len(script.compared) >= MOST_COMPARED:
        return
    script.compared.add(flag)
    nearest = get_close_matches(flag, KNOWN_FLAGS, n=1, cutoff=LIKE)
    if nearest:
        script.remark(word.line, f"{flag}: no rule knows this flag; did you mean {nearest[0]}?")


def _conclude(script: _Script) -> None:
    """The value of each option: the one that was seen, if it is one, or the default."""
    for name, option in OPTIONS.items():
        seen = script.seen.get(name, [])
        known = {one.value for one in seen if one is not None}
        first = next((one for one in seen if one is not None), None)
        if None in seen:
            continue
        if len(known) > 1:
            texts = " and ".join(sorted(map(value_text, known)))
            script.found.remarks.append(
                escape_controls(f"{script.path}: {name} is given as {texts}; its value is unknown")
            )
        elif first is not None:
            # one virtual stage is none for Megatron-LM
            value = None if name == VIRTUAL_STAGES and first.value == 1 else first.value
            script.found.options[name] = GivenOption(value, first.place)
        elif script.complete and option.default is not NoDefault:
            script.found.options[name] = GivenOption(option.default, f"default of {SNAPSHOT_DATE}")  # type: ignore[arg-type]
    _derive_batch(script)


def _derive_batch(script: _Script) -> None:
    """Megatron-LM batches transfers between stages where they do not overlap."""
    overlap = script.found.options.get("overlap_p2p_comm")
    if overlap is not None:
        script.found.options.setdefault("batch_p2p_comm", GivenOption(not overlap.value, overlap.place))
