"""Rules of Megatron both ways and unknown, options from its files, and `ibpulse model check`."""

from __future__ import annotations

import ast
import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from ibpulse.base.errors import ConfigError
from ibpulse.cli import main
from ibpulse.workbench.models import check
from ibpulse.workbench.models.check import RULES as ALL_RULES
from tests.docs.pages import ROOT, blocks
from tests.tables import for_each

RULES = {rule.id: rule for rule in ALL_RULES}
Values = dict[str, check.OptionValue]
EP: Values = {"overlap_moe_expert_parallel_comm": True}
WGRAD: Values = {"delay_wgrad_compute": True}
DISPATCHER = "moe_token_dispatcher_type"
DEEPEP: Values = {DISPATCHER: "flex", "moe_flex_dispatcher_backend": "deepep"}

# rule, where it applies, options that comply, options that do not, as Megatron checks them
CASES: list[tuple[str, Values, Values, Values]] = [
    ("ep-overlap-torch", EP, {"torch": "2.6.0"}, {"torch": "2.6.0a0+df5bbc09d1.nv24.12"}),
    ("ep-overlap-recompute-moe", EP, {"recompute_modules": None}, {"recompute_modules": ("core_attn", "moe")}),
    (
        "flex-deepep-gpu",
        DEEPEP,
        {"compute_capability": "9.0", "gpu_name": "NVIDIA H100 80GB HBM3"},
        {"compute_capability": "10.0", "gpu_name": "NVIDIA GB200"},
    ),
    (
        "param-gather-agreement",
        {"comm_overlap": True},
        {"overlap_param_gather": True, "optimizer_overlap_param_gather": True},
        {"overlap_param_gather": True, "optimizer_overlap_param_gather": False},
    ),
]


def run_of(values: Values) -> check.Options:
    return {key: check.GivenOption(value, "test") for key, value in values.items()}


@for_each(CASES)
def test_cases_of_rules_both_ways(name: str, applies: Values, good: Values, bad: Values) -> None:
    rule = RULES[name]
    assert set(applies) | set(good) | set(bad) <= set(check.KINDS)
    right, wrong = (check.check_rule(rule, run_of({**applies, **values})) for values in (good, bad))
    assert (right.status, right.applies) == ("ok", True)
    assert (wrong.status, wrong.applies) == ("violated", True)
    assert set(wrong.rule.keys) >= set(bad)
    unsure = check.check_rule(rule, run_of(applies))
    assert unsure.status == "unknown"
    assert set(unsure.missing) & set(bad)
    # without its switch, no value of the others violates it
    switch = next(iter(applies))
    opposite: check.OptionValue = not applies[switch] if isinstance(applies[switch], bool) else None
    idle = check.check_rule(rule, run_of({**applies, **bad, switch: opposite}))
    assert idle.status == "ok" if idle.applies is False else idle.applies is True


def values_near(rule: check.Rule) -> list[list[check.OptionValue]]:
    """For each option of a rule, values at and around the literals in its text."""
    literals = [node.value for tree in rule.conditions for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    texts: list[check.OptionValue] = [one for one in literals if isinstance(one, str)]
    numbers = [one for one in literals if isinstance(one, int) and not isinstance(one, bool)]
    near: dict[str, list[check.OptionValue]] = {
        "switch": [True, False],
        "count": [None, 1, 8, *(one + by for one in numbers for by in (-1, 0, 1))],
        "text": [None, "other", *texts],
        "list": [None, ("other",), *((str(one),) for one in texts)],
        "version": [None, "0.1", *(one for one in texts if str(one)[0].isdigit())],
    }
    return [list(dict.fromkeys(near[check.KINDS[key]])) for key in rule.keys]


@for_each({rule.id: (rule,) for rule in ALL_RULES})
def test_each_rule_can_hold_and_be_violated(rule: check.Rule) -> None:
    found = set()
    for values in itertools.product(*values_near(rule)):
        result = check.check_rule(rule, run_of(dict(zip(rule.keys, values, strict=True))))
        found.add((result.status, result.applies))
        if len(found) == 3:
            break
    assert found == {("ok", True), ("ok", False), ("violated", True)}
    assert check.check_rule(rule, run_of({})).missing == rule.keys


def test_every_rule_has_sources_and_known_options() -> None:
    assert len(RULES) == len(ALL_RULES) == 67
    for rule in RULES.values():
        assert rule.sources
        assert rule.programs
        assert rule.effect in check.EFFECTS
        assert rule.change
    assert {key for rule in RULES.values() for key in rule.keys} == set(check.KINDS)


def test_a_run_is_checked_by_its_own_program() -> None:
    options = run_of({**WGRAD, "transformer_impl": "local"})
    (failing,) = (result for result in check.check_run(check.LM, options) if result.fails)
    assert failing.rule.id == "delay-wgrad-implementation"
    assert not [result for result in check.check_run(check.BRIDGE, options) if result.fails]


KLEENE = {True: {True: (True, True), False: (False, True), None: (None, True)},
          False: {True: (False, True), False: (False, False), None: (False, None)},
          None: {True: (None, True), False: (False, None), None: (None, None)}}  # fmt: skip
"""The conjunction and the disjunction of two conditions that are true, false or unknown."""


def test_conditions_follow_the_tables_of_kleene() -> None:
    for one, row in KLEENE.items():
        for other, expected in row.items():
            options = run_of({name: value for name, value in (("a", one), ("b", other)) if value is not None})
            found = [check.holds(ast.parse(text, mode="eval").body, options) for text in ("a and b", "a or b", "not a")]
            assert found == [*expected, None if one is None else not one]


def test_unknown_switches_make_violations_unknown_and_one_known_condition_is_enough() -> None:
    rule = RULES["ep-overlap-dispatcher"]
    assert check.check_rule(rule, run_of({DISPATCHER: "allgather"})).status == "unknown"
    assert check.check_rule(rule, run_of({DISPATCHER: "flex"})).status == "ok"
    assert check.check_rule(rule, run_of({})).missing == ("overlap_moe_expert_parallel_comm", DISPATCHER)
    rule = RULES["ep-overlap-precision"]
    assert check.check_rule(rule, run_of({**EP, "bf16": True})).status == "ok"
    assert check.check_rule(rule, run_of({**EP, "bf16": False})).status == "unknown"


@pytest.mark.parametrize(
    ("lower", "higher"),
    [
        ("2.6.0a0+nv25.01", "2.6.0"), ("2.6.0rc1", "2.6"), ("2.7.0.dev0", "2.7.0"), ("2.9.1", "2.10.0"),
        ("2.6.0", "2.6.1+cu124"), ("9.0", "10.0"),
    ],
)  # fmt: skip
def test_the_order_of_versions(lower: str, higher: str) -> None:
    assert check.version_key(lower) < check.version_key(higher)
    assert check.version_key("2.6.0+cu124") == check.version_key("2.6")


TARGET = "megatron.bridge.training.config.ConfigContainer"
SAMPLES: dict[str, tuple[str, check.OptionValue]] = {
    "switch": ("true", True), "count": ("3", 3), "text": ("some", "some"), "list": ("[a, Scope.b]", ("a", "b")),
    "version": ("2.6.0", "2.6.0"),
}  # fmt: skip


def read(tmp_path: Path, text: str, settings: list[str] | None = None) -> check.RunOptions:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    return check.read_run_options(path, settings or [])


def value(run: check.RunOptions, name: str) -> check.OptionValue:
    return run.options[name].value


def refusal(tmp_path: Path, text: str, settings: list[str] | None = None) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as found:
        read(tmp_path, text, settings)
    return tuple(fault.replace(f"{tmp_path}/", "") for fault in found.value.faults)


def test_every_option_is_read_from_both_files(tmp_path: Path) -> None:
    for name, kind in check.KINDS.items():
        text, expected = SAMPLES[kind]
        args = read(tmp_path, f"MODEL_ARGS: {{--{name.replace('_', '-')}: {text}}}")
        config = read(tmp_path, f"_target_: {TARGET}\nmodel: {{{name}: {text}}}\n")
        assert (args.program, config.program) == (check.LM, check.BRIDGE)
        assert (value(args, name), args.options[name].place) == (expected, f"{tmp_path}/run.yaml:1")
        if name != "comm_overlap":
            assert (value(config, name), config.options[name].place) == (expected, f"{tmp_path}/run.yaml:2")
            assert set(config.options) == {name, "comm_overlap"}
    for flag, option in check.DATA["spellings"].items():
        name = option.removeprefix("!")
        text, expected = SAMPLES[check.KINDS[name]]
        run = read(tmp_path, f"MODEL_ARGS: {{--{flag.replace('_', '-')}: {text}}}")
        assert value(run, name) == (not expected if option.startswith("!") else expected)


def test_missing_arguments_have_their_defaults(tmp_path: Path) -> None:
    run = read(tmp_path, "ENV_VARS: {CUDA_DEVICE_MAX_CONNECTIONS: 1}\nMODEL_ARGS:\n  --bf16: true\n")
    given: dict[str, check.OptionValue] = {"bf16": True, "batch_p2p_comm": False, "CUDA_DEVICE_MAX_CONNECTIONS": 1}
    assert {name: one.value for name, one in run.options.items()} == {**check.DEFAULTS, **given}
    assert run.options["moe_token_dispatcher_type"].place == "default of 2026-08-22"
    elsewhere = read(tmp_path, "MODEL_ARGS: {--bf16: true, --yaml-cfg: other.yaml}")
    assert set(elsewhere.options) == {"bf16"}


def test_arguments_without_a_known_value_are_unknown(tmp_path: Path) -> None:
    run = read(
        tmp_path,
        "MODEL_ARGS:\n  --tensor-model-parallel-size: ${TP}\n  --optimizer: $OPTIMIZER\n"
        "  --pipeline-model-parallel-layout: Et|(tt|)*6mL\n  --recompute-activations: true\n",
    )
    unknown = {
        *("tensor_model_parallel_size", "optimizer", "virtual_pipeline_model_parallel_size", "recompute_granularity")
    }
    assert set(check.DEFAULTS) - set(run.options) == unknown


def test_lists_and_single_stages_of_arguments(tmp_path: Path) -> None:
    run = read(
        tmp_path,
        'MODEL_ARGS: {--cuda-graph-modules: "[attn moe_router]", --num-virtual-stages-per-pipeline-rank: 1,\n'
        "  --recompute-modules: moe mlp, --no-overlap-p2p-communication: true}\n",
    )
    assert value(run, "cuda_graph_modules") == ("attn", "moe_router")
    assert value(run, "recompute_modules") == ("moe", "mlp")
    assert value(run, "virtual_pipeline_model_parallel_size") is None
    assert (value(run, "overlap_p2p_comm"), value(run, "batch_p2p_comm")) == (False, True)


@pytest.mark.parametrize(
    "text",
    [
        "MODEL_ARGS:\n  --bf16: true\n  --expert-model-parallel-size: 4\n  --recompute-modules: moe mlp\n",
        "MODEL_ARGS:\n  bf16: true\n  expert_model_parallel_size: '4'\n  recompute_modules: [moe, mlp]\n",
        "MODEL_ARGS:\n- --bf16\n- --expert-model-parallel-size 4\n- --recompute-modules\n- moe\n- mlp\n",
        "MODEL_ARGS:\n- --bf16: true\n- --expert-model-parallel-size: 4\n- --recompute-modules: moe mlp\n",
        "MODEL_ARGS: --bf16 --expert-model-parallel-size=4 --recompute-modules moe mlp\n",
        "MODEL_ARGS: |\n  --bf16 \\\n  --expert-model-parallel-size 4 \\\n  --recompute-modules moe mlp\n",
        '{"MODEL_ARGS": {\n\t"--bf16": true, "--expert-model-parallel-size": 4,\n\t"--recompute-modules": "moe mlp"}}',
    ],
)
def test_arguments_of_every_form_are_read(tmp_path: Path, text: str) -> None:
    run = read(tmp_path, text)
    expected: dict[str, check.OptionValue] = {
        "bf16": True, "expert_model_parallel_size": 4, "recompute_modules": ("moe", "mlp"),
    }  # fmt: skip
    assert {name: value(run, name) for name in expected} == expected


def test_a_config_has_unset_options_enumerations_and_places(tmp_path: Path) -> None:
    run = read(
        tmp_path,
        "model:\n  _target_: megatron.bridge.models.GPTModelProvider\n  recompute_method: null\n"
        "  cuda_graph_scope:\n  - {_target_: Scope, _args_: [attn], _call_: true}\n"
        "  cuda_graph_impl: {_target_: Impl, _args_: [local]}\n  tp_comm_overlap: false\n"
        "comm_overlap:\n  tp_comm_overlap: true\n  overlap_grad_reduce: null\n"
        "ddp: {overlap_grad_reduce: true, overlap_param_gather: true}\n"
        "optimizer: {optimizer: adam, overlap_param_gather: false}\ndata_parallel_size: 8\n"
        "dataset: {_target_: megatron.bridge.data.MockGPTDatasetProvider}\n",
    )
    expected: dict[str, check.OptionValue] = {
        "recompute_method": None, "cuda_graph_modules": ("attn",), "cuda_graph_impl": "local",
        "tp_comm_overlap": True, "overlap_grad_reduce": True, "overlap_param_gather": True, "optimizer": "adam",
        "optimizer_overlap_param_gather": False, "data_parallel_size": 8, "comm_overlap": True,
        "native_energon_packing": False,
    }  # fmt: skip
    assert {name: one.value for name, one in run.options.items()} == expected
    assert run.options["tp_comm_overlap"].place == f"{tmp_path}/run.yaml:9"
    energon = read(tmp_path, f"_target_: {TARGET}\ndataset: {{_target_: x.EnergonProvider}}\n")
    assert "native_energon_packing" not in energon.options


def test_settings_override_the_file(tmp_path: Path) -> None:
    file = "MODEL_ARGS: {--bf16: true}"
    run = read(tmp_path, file, ["torch=2.6.0", "bf16=false", "recompute_modules=moe,attn"])
    assert (value(run, "torch"), value(run, "bf16")) == ("2.6.0", False)
    assert value(run, "recompute_modules") == ("moe", "attn")
    assert refusal(tmp_path, file, ["tourch=2", "torch", "torch=new", "nodes=-1"]) == (
        "flag --set: tourch: no rule reads such an option; did you mean torch?",
        "flag --set: 'torch' is not KEY=VALUE; write it like torch=2.6.0",
        "flag --set: torch: 'new' is not a version; write it like 2.6.0",
        "flag --set: nodes: '-1' is not a whole number; choose 0 to 1000000000",
    )


NEMO = "trainer: {num_nodes: 4}\nmodel:\n  tensor_model_parallel_size: 4\n  ub_tp_comm_overlap: true\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "run.yaml: is no configuration of Megatron; give "),
        (NEMO, "run.yaml: is of NeMo; give "),
        ("model: {_target_: my.net.Net, bf16: true}", "run.yaml: is of another program; give "),
        ("MODEL_ARGS: {--lr: 3}", "run.yaml: MODEL_ARGS has no flag that a rule reads; write them like --bf16: true"),
        (f"model: {{_target_: {TARGET}, bf16: [", "run.yaml:1: not YAML: "),
        (f"model: {{_target_: {TARGET}, bf16: 3}}", "run.yaml:1: bf16: unknown value '3'; choose true or false"),
        (f"model: {{_target_: {TARGET}, bf16: {{a: b}}}}", "run.yaml:1: bf16: is not a single value; give one"),
        ("MODEL_ARGS: {--num-experts: -8}", "run.yaml:1: num_experts: '-8' is not a whole number"),
    ],
)
def test_invalid_files_get_a_clear_error(tmp_path: Path, text: str, sentence: str) -> None:
    faults = refusal(tmp_path, text)
    assert faults[0].startswith(sentence)
    assert all("\n" not in fault for fault in faults)


def test_many_faults_are_bounded(tmp_path: Path) -> None:
    assert len(refusal(tmp_path, f"_target_: {TARGET}\nmodel:\n" + "  bf16: true\n" * 1000)) == 20


def test_the_example_of_the_documentation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = blocks(ROOT / "docs/overlap.md")
    at = next(at for at, block in enumerate(page) if "MODEL_ARGS" in block)
    job, _, result = page[at : at + 3]
    Path("moe.yaml").write_text(job)
    assert main(["model", "check", "moe.yaml", "--set", "torch=2.7.0"], {}) == 1
    assert capsys.readouterr().out == result


MOE = ["--model=mixtral-8x7b", "--nodes=2", "--rails=7", "--algorithm=ring", "--recompute=full", "--step=1444ms"]


def test_control_characters_of_file_names_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a\x1b[31m\n.yaml"
    path.write_text("model: mixtral-8x7b\nnodes: 2\n")
    for form in ("text", "json"):
        assert main(["model", str(path), f"--format={form}"], {}) == 0
        assert "\x1b" not in capsys.readouterr().out


@pytest.mark.real("process")
def test_the_command_starts_without_slow_imports() -> None:
    """numpy, pydantic and others take longer than the whole prediction may."""
    probe = (
        "import sys; from ibpulse.cli import main; main(['model', *sys.argv[1:]], {}); "
        "heavy = {'numpy', 'pydantic', 'fastapi', 'pyarrow', 'matplotlib', 'jinja2'}; "
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", probe, *MOE], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_the_worked_example_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    command, output = blocks(ROOT / "docs/models.md")[:2]
    assert main(command.split()[1:], {}) == 0
    assert capsys.readouterr().out == output
