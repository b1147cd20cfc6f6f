"""The rules of Megatron about overlap, read from `megatron_rules.yaml`, and their check of a run."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any

import yaml

OptionValue = bool | int | str | tuple[str, ...] | None
"""None is an option that is set to nothing; one that is not known is missing from `Options`."""

# a release, and what follows it: 2.6.0a0+ecf3bae.nv25.01 is before 2.6.0, 2.6.0+cu124 is not
_VERSION = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.([0-9]{1,9}))?(.{0,100})")
_BEFORE_RELEASE = re.compile(r"[-._]?(?:a|alpha|b|beta|c|rc|dev)")

DATA = yaml.safe_load(files("ibpulse.workbench.models").joinpath("megatron_rules.yaml").read_text())
DATE = str(DATA["date"])
"""The date of the commits that the rules were read from."""
EFFECTS: Mapping[str, str] = DATA["effects"]
"""What a violation of a rule causes."""
FAILING = ("stops", "off")
"""The effects that make a check fail."""


@dataclass(frozen=True, slots=True)
class GivenOption:
    """The value of an option and where it came from: `run_config.yaml:14`, or that it is a default."""

    value: OptionValue
    place: str


Options = Mapping[str, GivenOption]


@dataclass(frozen=True)
class Rule:
    """Where the condition `where` is true, `needs` must be true; `change` says how to comply."""

    id: str
    where: str
    needs: str
    change: str
    effect: str
    sources: tuple[str, ...]
    programs: frozenset[str]

    @cached_property
    def conditions(self) -> tuple[ast.expr, ast.expr]:
        """`where` and `needs`, parsed."""
        return ast.parse(self.where, mode="eval").body, ast.parse(self.needs, mode="eval").body

    @property
    def keys(self) -> tuple[str, ...]:
        """The options that the rule is about, in the order of its text."""
        names = [node for tree in self.conditions for node in _names(tree)]
        return tuple(dict.fromkeys(node.id for node in names))


@dataclass(frozen=True, slots=True)
class RuleResult:
    """`status` is `ok`, `violated` or `unknown`; `applies` is None if unknown.

    `given` are the options that decided, `missing` those that would decide.
    """

    rule: Rule
    status: str
    applies: bool | None
    given: tuple[tuple[str, GivenOption], ...]
    missing: tuple[str, ...]

    @property
    def fails(self) -> bool:
        """Whether the run stops at its start or goes without the overlap."""
        return self.status == "violated" and self.rule.effect in FAILING


def check_run(program: str, options: Options) -> tuple[RuleResult, ...]:
    """The result of every rule of the program that reads the options."""
    return tuple(check_rule(rule, options) for rule in RULES if program in rule.programs)


def check_rule(rule: Rule, options: Options) -> RuleResult:
    """A rule holds where it does not apply or what it needs is true; one that is not known to hold is unknown."""
    where, needs = rule.conditions
    applies, needed = holds(where, options), holds(needs, options)
    if applies is False or needed is True:
        status = "ok"
    else:
        status = "violated" if applies is True and needed is False else "unknown"
    given = tuple((key, options[key]) for key in rule.keys if key in options)
    missing = tuple(key for key in rule.keys if key not in options) if status == "unknown" else ()
    return RuleResult(rule, status, applies, given, missing)


def holds(condition: ast.expr, options: Options) -> bool | None:
    """Whether a condition is true; None if an option that is not known decides (Kleene's logic)."""
    match condition:
        case ast.BoolOp(op=op, values=parts):
            held = [holds(part, options) for part in parts]
            decisive = isinstance(op, ast.Or)
            return decisive if decisive in held else None if None in held else not decisive
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = holds(operand, options)
            return None if inner is None else not inner
        case ast.Name(id=name):
            return options[name].value is True if name in options else None
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            if any(node.id not in options for node in _names(condition)):
                return None
            return _compare(op, _value(left, options), _value(right, options))
    raise ValueError(f"{ast.unparse(condition)} is no condition")


def _compare(op: ast.cmpop, left: Any, right: Any) -> bool:
    match op:
        case ast.Eq() | ast.Is():
            return bool(left == right)
        case ast.NotEq() | ast.IsNot():
            return bool(left != right)
        case ast.In():
            return left in (right or ())
        case ast.NotIn():
            return left not in (right or ())
        case ast.GtE():
            return _is_at_least(left, right)
        case ast.Lt():
            return left is not None and not _is_at_least(left, right)
    raise ValueError(f"{ast.dump(op)} is no comparison of rules")


def _is_at_least(value: Any, least: int | str) -> bool:
    """A number or a version that is unset is not."""
    if isinstance(least, str):
        return isinstance(value, str) and version_key(value) >= version_key(least)
    return isinstance(value, int) and value >= least


def _value(node: ast.expr, options: Options) -> Any:
    return options[node.id].value if isinstance(node, ast.Name) else ast.literal_eval(node)


def _names(tree: ast.expr) -> list[ast.Name]:
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return sorted(names, key=lambda node: node.col_offset)


def version_key(text: str) -> tuple[int, int, int, bool]:
    """A sort key of a version; one before its release, such as 2.6.0a0, is less than the release.

    Raises:
        ValueError: it is not a version.
    """
    match = _VERSION.fullmatch(text)
    if not match:
        raise ValueError(f"{text[:40]!r} is not a version; write it like 2.6.0")
    major, minor, patch, rest = match.groups()
    return int(major), int(minor or 0), int(patch or 0), not _BEFORE_RELEASE.match(rest)


def _read_rule(rule_id: str, row: Mapping[str, Any]) -> Rule:
    where, needs = row["rule"].split(" -> ")
    sources = [DATA["sources"][name] for name in row["from"]]
    return Rule(
        rule_id,
        where,
        needs,
        row["change"],
        row.get("effect", "stops"),
        tuple(source["url"] for source in sources),
        frozenset(program for source in sources for program in source["programs"]),
    )


RULES = tuple(_read_rule(rule_id, row) for rule_id, row in DATA["rules"].items())
"""Every rule, in the order of the file."""
