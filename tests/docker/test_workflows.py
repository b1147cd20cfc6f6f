"""The workflow files: valid, pinned, and with no more permissions than they need. Nothing here runs them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import check_jsonschema
import pytest
import yaml
from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


@pytest.mark.needs("actionlint")
@pytest.mark.real("process")
def test_actionlint_has_nothing_to_say() -> None:
    command = ["actionlint", "-color=false", *WORKFLOWS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
class TestWorkflow:
    def test_it_is_valid_against_the_schema(self, path: Path) -> None:
        words = ["--builtin-schema", "vendor.github-workflows", str(path)]
        answer = CliRunner().invoke(check_jsonschema.main, words)
        assert answer.exit_code == 0, answer.output

    def test_every_action_is_pinned_to_a_commit_and_says_its_version(self, path: Path) -> None:
        uses = re.findall(r"^.*\buses:.*$", path.read_text(), re.MULTILINE)
        assert uses
        for line in uses:
            assert re.search(r"uses: [\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line

    def test_no_job_has_a_permission_that_it_does_not_name(self, path: Path) -> None:
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {}
        assert all("permissions" in job for job in workflow["jobs"].values())

    def test_no_checkout_leaves_its_token_behind(self, path: Path) -> None:
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            checkouts = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")]
            assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_a_release_names_in_its_chart_the_image_that_it_built() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    assert jobs["image"]["outputs"]["image"] == ("${{ steps.facts.outputs.image }}@${{ steps.build.outputs.digest }}")
    (step,) = [step for step in jobs["files"]["steps"] if "make release" in step.get("run", "")]
    assert step["env"]["IMAGE"] == "${{ needs.image.outputs.image }}"
    assert jobs["files"]["needs"] == "image"


def test_a_release_attests_the_wheel_its_bill_of_materials_the_image_and_the_chart() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    attested = {
        (name, subject, "sbom-path" in step["with"])
        for name, job in jobs.items()
        for step in job["steps"]
        if step.get("uses", "").startswith("actions/attest@")
        for subject in step["with"].get("subject-path", "").split() or [step["with"]["subject-name"]]
    }
    kinds = ("whl", "tar.gz", "tgz", "deb", "rpm")
    assert {("files", f"dist/*.{kind}", False) for kind in kinds} | {("files", "dist/*.whl", True)} <= attested
    assert ("image", "${{ steps.facts.outputs.image }}", False) in attested
    assert ("files", "${{ steps.push.outputs.name }}", False) in attested
    (build,) = [step["with"] for step in jobs["image"]["steps"] if step.get("id") == "build"]
    assert (build["provenance"], build["sbom"]) == ("mode=max", True)
