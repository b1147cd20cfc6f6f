"""Reads YAML files made of sections with known keys into pydantic models; errors name file, line and key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainValidator, ValidationError, ValidationInfo

from ibpulse.yaml_file import YamlFile, is_mapping, is_scalar

if TYPE_CHECKING:
    import yaml

# the deepest value of these formats is a header, three keys down
MAX_DEPTH = 3
EMPTY = ("", "~", "null", "Null", "NULL")
_TRUTHS = {**dict.fromkeys(("true", "yes", "on"), True), **dict.fromkeys(("false", "no", "off"), False)}

Keys = tuple[str, ...]


class YamlSection(BaseModel):
    """A mapping with known keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(slots=True)
class ConfigSource:
    """The texts of a file as nested mappings and lists without empty values, the line of each key, and errors.

    `example` is a line of such a file, for the error of one that is no mapping.
    """

    file: YamlFile
    example: str
    texts: dict[str, Any] = field(default_factory=dict)
    lines: dict[Keys, int] = field(default_factory=dict)

    def place(self, keys: Keys) -> str:
        """File, line and key as the prefix of a message; the line is that of the nearest key present."""
        near = keys
        while near and near not in self.lines:
            near = near[:-1]
        line = f":{self.lines[near]}" if near else ""
        return f"{self.file.path}{line}" + (f": {'.'.join(keys)}" if keys else "")

    @classmethod
    def of(cls, path: Path, example: str, advice: str) -> ConfigSource:
        """The texts of a file; errors if it cannot be read, with this advice, or is not YAML."""
        source = cls(YamlFile(path), example)
        source._read(source.file.compose(advice))
        return source

    def _read(self, root: yaml.Node | None) -> None:
        if is_mapping(root):
            self.texts = dict(self._entries(root, ()))
        elif root is not None and not is_empty(root):
            self.file.faults.append(f"{self.file.path}: is not a mapping; write it like {self.example}")

    def _entries(self, node: yaml.MappingNode, keys: Keys) -> Iterator[tuple[str, Any]]:
        """Key and content of each non-empty entry of a mapping."""
        for name, line, value in self.file.entries(node, lambda name: f"{'.'.join((*keys, name))}:"):
            self.lines[(*keys, name)] = line
            if not is_empty(value):
                yield name, self._content(value, (*keys, name))

    def _content(self, node: yaml.Node, keys: Keys) -> Any:
        if is_scalar(node):
            return str(node.value)
        if len(keys) >= MAX_DEPTH:
            self.file.faults.append(f"{self.place(keys)}: not a single value; give one text")
            return ""
        if is_mapping(node):
            return dict(self._entries(node, keys))
        return [self._content(item, (*keys, str(number))) for number, item in enumerate(node.value)]


def is_empty(node: yaml.Node) -> bool:
    """Whether a value is absent or null."""
    return is_scalar(node) and node.style is None and node.value in EMPTY


def check_sections(
    model: type[Model], texts: Mapping[str, Any], source: ConfigSource, sections: Mapping[str, type[YamlSection]]
) -> tuple[Model | None, list[str]]:
    """The checked texts of a file, None if any is wrong, and a sentence for each error.

    `sections` are the models of the sections by name; paths are relative to the directory of the file.
    """
    try:
        return model.model_validate(texts, context={"directory": source.file.path.parent}), []
    except ValidationError as error:
        return None, [line for fault in error.errors() for line in _sentences(fault, source, {"": model, **sections})]


def _sentences(fault: Any, source: ConfigSource, sections: Mapping[str, type[YamlSection]]) -> Iterator[str]:
    keys = tuple(map(str, fault["loc"]))
    error = fault.get("ctx", {}).get("error")
    if fault["type"] == "extra_forbidden":
        yield f"{source.place(keys)}: no such key; {_advice(keys, sections)}"
    elif isinstance(error, EntriesError):
        yield from (f"{source.place((*keys, name))}: {sentence}" for name, sentence in error.faults.items())
    elif error is not None:
        yield f"{source.place(keys)}: {error}"
    else:
        yield f"{source.place(keys)}: is not a mapping; write it like {keys[-1]}: {{key: value}}"


def _advice(keys: Keys, sections: Mapping[str, type[YamlSection]]) -> str:
    known = list(sections.get(keys[0], sections[""]).model_fields)
    nearest = get_close_matches(keys[-1], known, n=1, cutoff=0.6)
    return f"did you mean {nearest[0]}?" if nearest else f"known keys: {', '.join(known)}"


T = TypeVar("T")
Model = TypeVar("Model", bound="YamlSection")


class EntriesError(ValueError):
    """Errors in the entries of a list or mapping, by entry."""

    def __init__(self, faults: Mapping[str, str]) -> None:
        self.faults = faults
        super().__init__(*faults.values())


def single(parse: Callable[[str], T]) -> PlainValidator:
    """A validator for one text, parsed by `parse`."""

    def validate(given: object) -> T:
        if isinstance(given, str):
            return parse(given)
        raise ValueError("not a single value; give one text")

    return PlainValidator(validate)


def several(parse: Callable[[str], T]) -> PlainValidator:
    """A validator for a list of texts, each parsed by `parse`; a single text counts as a list of one."""

    def validate(given: object) -> tuple[T, ...]:
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ValueError("is not a list; write it like [one, other]")
        read, faults = [], {}
        for number, text in enumerate(texts):
            try:
                read.append(parse(text))
            except ValueError as error:
                faults[str(number)] = str(error)
        if faults:
            raise EntriesError(faults)
        return tuple(read)

    return PlainValidator(validate)


def mapped(check: Callable[[str, str], str]) -> PlainValidator:
    """A validator for a mapping of texts; `check` returns the error of one entry, or an empty text."""

    def validate(given: object) -> Mapping[str, str]:
        if not isinstance(given, dict) or not all(isinstance(text, str) for text in given.values()):
            raise ValueError("is not a mapping of names to texts; write it like name: text")
        faults = {name: fault for name, text in given.items() if (fault := check(name, text))}
        if faults:
            raise EntriesError(faults)
        return given

    return PlainValidator(validate)


def _from_directory(path: Path, info: ValidationInfo) -> Path:
    """A path relative to the directory of the configuration file."""
    directory: Path = (info.context or {}).get("directory", Path())
    return directory / path


def _truth(text: str) -> bool:
    if text.lower() not in _TRUTHS:
        raise ValueError(f"unknown value {text!r}; choose true or false")
    return _TRUTHS[text.lower()]


OneText = Annotated[str, single(str)]
Texts = Annotated[tuple[str, ...], several(str)]
FilePath = Annotated[Path, single(Path), AfterValidator(_from_directory)]
Truth = Annotated[bool, single(_truth)]
