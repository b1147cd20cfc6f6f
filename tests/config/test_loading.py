"""The sources together: who goes first, what is unknown, and that every fault is told in one run."""

from pathlib import Path

import pytest
import yaml

from ibpulse.agent.config.loading import load, resolve
from ibpulse.base.errors import ConfigError
from tests.tables import for_each


def save(directory: Path, text: str) -> tuple[str, dict[str, list[str]]]:
    """A file with that text, and the flags that name it."""
    path = directory / "ibpulse.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path), {"config.file": [str(path)]}


def faults(flags: dict[str, list[str]], environ: dict[str, str]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as refusal:
        load(flags, environ)
    return refusal.value.faults


def test_flags_override_environment_and_file(tmp_path: Path) -> None:
    path, flags = save(tmp_path, "sampler:\n  interval: 20ms\n  history: 6m\nslow: {interval: 7s}\n")
    assert load({}, {"IBPULSE_CONFIG__FILE": path}).sampler.interval == 20_000_000
    environ = {"IBPULSE_CONFIG__FILE": "/nowhere", "PATH": "/bin", "SAMPLER": "x", "ibpulse_x": "1"}
    environ |= {"IBPULSE_SAMPLER__INTERVAL": "4ms", "IBPULSE_SAMPLER__HISTORY": "7m"}
    # the last of a repeated flag counts
    settings, origins = resolve({**flags, "sampler.interval": ["5ms", "2ms"]}, environ)
    assert settings.sampler.interval == 2_000_000
    assert settings.sampler.history == 7 * 60 * 10**9
    assert settings.slow.interval == 7 * 10**9
    assert settings.log.level == "info"
    assert origins["sampler.interval"] == "flag --sampler.interval"
    assert origins["sampler.history"] == "environment variable IBPULSE_SAMPLER__HISTORY"
    assert origins["slow.interval"] == f"{path}:4: slow.interval"
    assert origins["log.level"] == "default"


def test_a_list_replaces_that_of_a_lower_source(tmp_path: Path) -> None:
    _, flags = save(tmp_path, "ports: {include: [a, b], exclude: 'c,d', roles: null}\n")
    ports = load({**flags, "ports.include": ["e"]}, {}).ports
    assert (ports.include, ports.exclude, ports.roles) == (("e",), ("c", "d"), {})


STORAGE = {"storage": ("mlx5_1", "mlx5_7"), "compute": ("mlx5_0:1",)}


def test_roles_may_be_a_mapping_or_a_list(tmp_path: Path) -> None:
    path, flags = save(tmp_path, "ports:\n  roles: {storage: [mlx5_1, mlx5_7], compute: 'mlx5_0:1'}\n")
    given = load(flags, {})
    assert given.ports.roles == STORAGE
    assert load({}, {"IBPULSE_PORTS__ROLES": "storage=mlx5_1,mlx5_7,compute=mlx5_0:1"}).ports.roles == STORAGE
    assert load({"ports.roles": ["storage=mlx5_1,mlx5_7", "compute=mlx5_0:1"]}, {}).ports.roles == STORAGE
    save(tmp_path, yaml.safe_dump({"ports": {"roles": given.written()["ports"]["roles"]}}))
    assert load({"config.file": [path]}, {}).ports.roles == STORAGE


def test_the_expected_rails_may_be_left_to_ibpulse() -> None:
    assert load({"ports.expected-rails": ["8"]}, {}).ports.expected_rails == 8
    assert load({"ports.expected-rails": [""]}, {}).ports.expected_rails is None


def test_a_file_may_say_nothing(tmp_path: Path) -> None:
    for text in ("", "# nothing yet\n", "sampler:\n"):
        _, flags = save(tmp_path, text)
        assert load(flags, {}).written() == load({}, {}).written()


def test_all_faults_of_all_sources_are_told_in_one_run(tmp_path: Path) -> None:
    path, flags = save(tmp_path, "sampler:\n  intervall: 1ms\n  cpu: one\nslow:\n  interval: 1\n")
    found = faults(
        {**flags, "sampler.interval": ["7ms"], "analysis.traffic-window": ["10m"]},
        {"IBPULSE_LOG__LEVEL": "loud", "IBPULSE_SAMPLER_HISTORY": "1m"},
    )
    assert found == (
        "environment variable IBPULSE_SAMPLER_HISTORY: no such setting; did you mean IBPULSE_SAMPLER__HISTORY?",
        f"{path}:2: sampler.intervall: no such setting; did you mean sampler.interval?",
        "flag --sampler.interval: 7ms does not divide one second; the nearest that do are 5ms and 8ms",
        f"{path}:3: sampler.cpu: 'one' is not a whole number; choose 0 to 8191, or leave it empty for no pinning",
        f"{path}:5: slow.interval: 1 has no unit; write it like 10ms, 5s or 1h30m",
        "environment variable IBPULSE_LOG__LEVEL: unknown value 'loud'; choose debug, info, warning or error",
        "sampler.history (default): 5m is shorter than analysis.traffic-window; "
        "raise sampler.history to 10m or shorten that window",
    )


def test_default_spans_are_cut_to_the_history_and_others_are_refused() -> None:
    settings = load({"sampler.history": ["20s"]}, {})
    assert settings.analysis.traffic_window == 20 * 10**9
    assert (settings.capture.before, settings.capture.after) == (15 * 10**9, 5 * 10**9)
    assert load({"sampler.history": ["20s"], "capture.after": ["8s"]}, {}).capture.before == 12 * 10**9
    flags = {"sampler.history": ["20s"], "analysis.traffic-window": ["30s"]}
    (fault,) = faults(flags, {})
    assert fault.startswith(
        "flag --sampler.history: 20s is shorter than analysis.traffic-window; raise sampler.history"
    )
    # a setting that is invalid breaks no rule
    (fault,) = faults({**flags, "sampler.history": ["1s"]}, {})
    assert fault == "flag --sampler.history: 1s is out of bounds; choose 10s to 1h"


NESTED = ["[", "{a: ", "- "]
NOWHERE = "an escape stands for a null character or half of a surrogate pair; remove it"
TOO_DEEP = "more than 20 levels deep; correct the brackets or the indentation"
FILES = [
    ("sampler: 5\n", "1: sampler: is not a mapping; write it like sampler: {interval: 10ms}"),
    ("- 1\n", "1: the file: is not a mapping; write it like sampler: {interval: 10ms}"),
    ("sampler: {interval: {ms: 1}}\n", "1: sampler.interval: not a value; give one value or a plain list"),
    ("ports: {roles: {storage: [[a]]}}\n", "1: ports.roles: not a value; give one value or a plain list"),
    ("ports: {include: {storage: a}}\n", "1: ports.include: not a value; give one value or a plain list"),
    ("sampler: {interval: [1ms, 2ms]}\n", "1: sampler.interval: '1ms, 2ms' is a list; give one value"),
    ("\nsamplr: {interval: 1ms}\n", "2: samplr: no such group of settings; did you mean sampler?"),
    ("config: {file: x}\n", "1: config: no such group of settings; `ibpulse serve --help` lists every setting"),
    ("sampler.interval: 1ms\n", "1: sampler.interval: no such group of settings; write sampler: {interval: ...}"),
    ("slow: {interval: 1s}\nslow: {interval: 2s}\n", "2: slow: is given twice, first in line 1; give it once"),
    ("a: 1\n---\nb: 2\n", "2: not YAML: but found another document; correct this line or the one before"),
    *((f"\n{text * 5000}", f"2: {TOO_DEEP}") for text in NESTED),
    ("\n".join(" " * depth + "a:" for depth in range(1000)), f"21: {TOO_DEEP}"),
    (r'ring: {dir: "a\0b"}', f"1: {NOWHERE}"),
    ('\n"\\ud800": {}', f"2: {NOWHERE}"),
    (
        f"x: &a [{'q, ' * 1000}]\ny: [{'*a, ' * 1000}]\n",
        "2: with its aliases, more than 500000 values; write fewer aliases",
    ),
    (
        "a: &a0 [x, x]\n" + "".join(f"b{n}: &a{n + 1} [*a{n}, *a{n}]\n" for n in range(40)),
        "17: with its aliases, more than 500000 values; write fewer aliases",
    ),
]


@for_each(FILES)
def test_a_fault_of_the_file_has_its_line(text: str, sentence: str, tmp_path: Path) -> None:
    path, flags = save(tmp_path, text)
    assert faults(flags, {}) == (f"{path}:{sentence}",)


def test_a_key_made_of_aliases_is_not_written_out(tmp_path: Path) -> None:
    chain = ", ".join(f"&a{number} [*a{number - 1}]" for number in range(1, 900))
    path, flags = save(tmp_path, f"x: [&a0 [y], {chain}]\n? *a899\n: 1\n")
    assert f"{path}:1: [...]: no such group of settings; `ibpulse serve --help` lists every setting" in faults(
        flags, {}
    )


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    assert faults({"config.file": ["/nowhere/x.yaml"]}, {}) == (
        "/nowhere/x.yaml: cannot be read: No such file or directory; correct --config.file or remove it",
    )
    path = tmp_path / "ibpulse.yaml"
    for content, sentence in (
        (b"# caf\xe9\n", "byte 5 is not UTF-8; save the file as UTF-8 text"),
        (b"a: \x01\n", "not YAML: unacceptable character #x0001: special characters are not allowed; save the file as"),
    ):
        path.write_bytes(content)
        (fault,) = faults({"config.file": [str(path)]}, {})
        assert fault.startswith(f"{path}: {sentence}")


def test_values_of_the_file_are_taken_as_written(tmp_path: Path) -> None:
    _, flags = save(tmp_path, 'web: {listen-address: ":8080"}\nports: {include: [off, 0x10], expected-rails: 8}\n')
    settings = load(flags, {})
    assert settings.ports.expected_rails == 8
    assert settings.web.listen_address.port == 8080
    assert settings.ports.include == ("off", "0x10")


def test_variables_that_kubernetes_sets_for_services_are_passed_over() -> None:
    address = "tcp://10.0.0.1:10055"
    loaded = load(
        {},
        {
            "IBPULSE_SERVICE_HOST": "10.0.0.1",
            "IBPULSE_SERVICE_PORT": "10055",
            "IBPULSE_SERVICE_PORT_HTTP_METRICS": "10055",
            "IBPULSE_PORT": address,
            "IBPULSE_PORT_10055_TCP": address,
            "IBPULSE_PORT_10055_TCP_PROTO": "tcp",
            "IBPULSE_PORT_10055_TCP_PORT": "10055",
            "IBPULSE_PORT_10055_TCP_ADDR": "10.0.0.1",
            "IBPULSE_METRICS_SERVICE_HOST": "10.0.0.1",
            "IBPULSE_METRICS_PORT": address,
        },
    )
    assert loaded.written() == load({}, {}).written()


def test_other_unknown_variables_are_refused() -> None:
    for variable in ("IBPULSE_PORT", "IBPULSE_WEB__SERVICE_HOST", "IBPULSE_"):
        (fault,) = faults({}, {variable: "10055"})
        assert fault.startswith(f"environment variable {variable}: no such setting; ")


RUNTIME = {"RUNTIME_DIRECTORY": "/run/ibpulse:/run/other", "TMPDIR": "/var/tmp"}


@pytest.mark.parametrize(
    ("environ", "memory", "directory"),
    [
        (RUNTIME, ".", "{memory}/ibpulse"),
        (RUNTIME, "missing", "/run/ibpulse"),
        ({"TMPDIR": "/var/tmp"}, "missing", "/var/tmp/ibpulse"),
        ({}, "missing", "/tmp/ibpulse"),
    ],
)
def test_the_ring_lies_in_memory_or_where_systemd_says_or_in_the_temporary_directory(
    tmp_path: Path, environ: dict[str, str], memory: str, directory: str
) -> None:
    assert str(load({}, environ, tmp_path / memory).ring.dir) == directory.format(memory=tmp_path)


def test_a_ring_directory_that_is_given_stands(tmp_path: Path) -> None:
    assert load({"ring.dir": [str(tmp_path)]}, {}).ring.dir == tmp_path
