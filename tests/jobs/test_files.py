"""Directories of job files by strangers, in strange forms, and too many: a sentence each, no harm, and bounded time."""

from __future__ import annotations

import json
import os
import re
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from ibpulse.agent.jobs import files
from ibpulse.agent.jobs.files import (
    DOCUMENT,
    JobDirectory,
    boot_time_ns,
    normal_address,
    read_job_documents,
    read_slurm_mapping,
)
from ibpulse.core.jobs import Found
from tests.other_users import USER
from tests.tables import for_each

GOOD = {"id": "42", "scheduler": "slurm", "gpus": ["0000:3e:00.0"]}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="no root")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "owners"
    made.mkdir(mode=0o755)
    return made


def put(folder: Path, content: object, name: str = "42.json") -> Path:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    (folder / name).write_bytes(text)
    return folder / name


def read(folder: Path) -> Found:
    return read_job_documents(folder, 0, "this boot")


def told(folder: Path) -> str:
    """The one remark about a directory without any job, without its path."""
    found = read(folder)
    assert found.claims == ()
    (remark,) = found.remarks
    return remark.removeprefix(f"{folder}: ")


def test_a_document_says_what_a_job_holds(folder: Path) -> None:
    put(folder, GOOD | {"name": "llama", "namespace": "team", "devices": ["mlx5_0", "mlx5_0"], "boot_id": "this boot"})
    found = read(folder)
    (claim,) = found.claims
    assert (claim.key, claim.source, claim.name, claim.namespace) == (("slurm", "42"), "file", "llama", "team")
    assert (claim.gpus, claim.gpu_indexes, claim.devices) == (("0000:3e:00.0",), (), ("mlx5_0",))
    assert (found.remarks, found.present, found.knows, found.whole) == ((), True, True, True)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("0000:3e:00.0", "0000:3e:00.0"),
        ("00000000:3E:00.0", "0000:3e:00.0"),
        ("00010000:E1:00.1", "10000:e1:00.1"),
        ("10000:e1:00.1", "10000:e1:00.1"),
        ("3e:00.0", ""),
        ("0000:3e:00.8", ""),
        ("0000:3e:00.0\n", ""),
        ("０000:3e:00.0", ""),
    ],
)
def test_addresses_are_those_of_sysfs(address: str, expected: str) -> None:
    assert normal_address(address) == expected


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "it is not JSON in UTF-8"),
        (b'{"id": "42", "scheduler": "slurm", "name": "\xe9"}', "it is not JSON in UTF-8"),
        (b"[" * 4096, "it is not JSON in UTF-8"),
        ([], "it is not a JSON object"),
        (b'{"id": "42", "id": "43", "scheduler": "slurm"}', "a member is given twice"),
        ({"id": "42"}, "scheduler is missing"),
        (GOOD | {"id": 42}, "id is not the id of a job, such as 42"),
        (GOOD | {"id": "43"}, "its name is not its id with .json"),
        (GOOD | {"scheduler": "Slurm"}, "scheduler is not a word such as slurm"),
        (
            GOOD | {"user": "root"},
            "member 'user' is not known; use id, scheduler, name, namespace, gpus, devices, boot_id",
        ),
        (GOOD | {"name": "a\nb"}, "name is not a text of at most 128 printable characters"),
        (GOOD | {"name": "a" * 129}, "name is not a text of at most 128 printable characters"),
        (GOOD | {"gpus": ["GPU-1"]}, "gpus is not a list of at most 64 PCI addresses such as 0000:3e:00.0"),
        (GOOD | {"gpus": ["0000:3e:00.0"] * 65}, "gpus is not a list of at most 64 PCI addresses such as 0000:3e:00.0"),
        (GOOD | {"devices": ["../etc"]}, "devices is not a list of at most 64 RDMA devices such as mlx5_0"),
    ],
    ids=str,
)
def test_what_is_no_document_is_ignored_with_the_reason(folder: Path, content: object, sentence: str) -> None:
    put(folder, content)
    assert told(folder) == f"42.json: ignored: {sentence}."


def test_a_document_of_another_boot_is_stale(folder: Path) -> None:
    put(folder, GOOD | {"boot_id": "another boot"})
    assert told(folder).startswith("42.json: it is older than the last boot of this node")


def test_a_file_is_stale_if_it_was_written_before_the_boot(folder: Path) -> None:
    written_ns = put(folder, GOOD).stat().st_mtime_ns
    assert len(read_job_documents(folder, written_ns, "").claims) == 1
    assert read_job_documents(folder, written_ns + 1, "").claims == ()


def test_a_mapping_file_is_stale_if_it_was_written_before_the_boot(folder: Path) -> None:
    written_ns = put(folder, b"12", "0").stat().st_mtime_ns
    assert [claim.id for claim in read_slurm_mapping(folder, written_ns).claims] == ["12"]
    found = read_slurm_mapping(folder, written_ns + 1)
    assert found.claims == ()
    assert found.remarks[0].startswith(f"{folder}: 0: it is older than the last boot of this node")


def test_the_last_boot_is_when_the_kernel_says_that_it_was() -> None:
    (line,) = re.findall(r"(?m)^btime (\d+)$", Path("/proc/stat").read_text())
    assert abs(boot_time_ns() / 1e9 - int(line)) < 5


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


def make_link(path: Path) -> None:
    path.with_name("target").write_text(json.dumps(GOOD))
    path.symlink_to("target")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (make_fifo, "ignored: it is not a regular file."),
        (make_link, "ignored: it is a symbolic link."),
        (Path.mkdir, "ignored: it is not a regular file."),
        (lambda path: path.write_bytes(b" " * 4097), "ignored, because it is longer than 4096 bytes."),
        (make_huge, "ignored, because it is longer than 4096 bytes."),
    ],
)
def test_what_is_no_small_regular_file_is_never_waited_for(
    folder: Path, make: Callable[[Path], object], sentence: str
) -> None:
    make(folder / "42.json")
    found = read(folder)
    assert found.claims == ()
    assert f"{folder}: 42.json: {sentence}" in found.remarks


@needs_root
@pytest.mark.parametrize(
    ("user", "mode", "sentence"),
    [
        (65534, 0o644, "ignored: it belongs to user 65534."),
        (0, 0o666, "ignored: other users can write to it (mode 0666)."),
    ],
)
def test_a_file_that_others_can_change_is_ignored(folder: Path, user: int, mode: int, sentence: str) -> None:
    path = put(folder, GOOD)
    os.chown(path, user, 0)
    path.chmod(mode)
    assert told(folder) == f"42.json: {sentence}"


@needs_root
@pytest.mark.parametrize(("user", "mode"), [(65534, 0o755), (0, 0o777), (0, 0o1777)])
@pytest.mark.parametrize("read_it", [read, lambda folder: read_slurm_mapping(folder, 0)])
def test_a_directory_that_others_can_change_is_not_read(
    folder: Path, user: int, mode: int, read_it: Callable[[Path], Found]
) -> None:
    put(folder, GOOD)
    put(folder, b"42", "0")
    os.chown(folder, user, 0)
    folder.chmod(mode)
    found = read_it(folder)
    assert (found.claims, found.present, found.knows, found.unread) == ((), True, False, True)
    (remark,) = found.remarks
    assert remark.startswith(f"{folder} is not read: ")
    assert remark.endswith("have to belong to root or to user 0, and no other user may be able to write to them.")


def test_a_directory_that_does_not_exist_is_no_source(tmp_path: Path) -> None:
    for found in (read(tmp_path / "none"), read_slurm_mapping(tmp_path / "none", 0)):
        assert (found.claims, found.remarks, found.present, found.knows) == ((), (), False, False)


def test_ten_thousand_hostile_files_are_a_few_sentences(folder: Path) -> None:
    for number in range(9_950):
        name = os.fsencode(folder) + b"/\xff\n\x1b[31m" + str(number).encode()
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
    for number in range(100):
        put(folder, GOOD | {"id": str(number)}, f"{number}.json")
    make_fifo(folder / "pipe.json")
    put(folder, b"not a document", ".42.json.new")
    found = read(folder)
    # the files of jobs may be among those that were not listed
    assert (found.claims, found.whole) == ((), False)
    assert len(found.remarks) <= 4
    assert all(remark.isprintable() and len(remark) < 1000 for remark in found.remarks)
    assert found.remarks[0] == (
        f"{folder} has more than 10000 files, which is too many to read; showing the jobs known before."
    )
    assert any("its name is not like 42.json" in remark and r"\udcff\n\u001b[31m" in remark for remark in found.remarks)


def test_more_files_than_are_read_are_named(folder: Path) -> None:
    for number in range(70):
        put(folder, GOOD | {"id": str(number)}, f"{number}.json")
    found = read(folder)
    assert [claim.id for claim in found.claims] == [str(number) for number in range(64)]
    assert (found.whole, found.cut) == (False, True)
    assert found.remarks == (
        f"{folder}: 64.json, 65.json, 66.json, 67.json and 2 more: ignored, because only 64 files are read.",
    )


def test_a_directory_that_takes_too_long_is_given_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder, GOOD)
    read_in_time = JobDirectory(folder, DOCUMENT)
    monkeypatch.setattr(files, "MAX_SECONDS", -1.0)
    late = JobDirectory(folder, DOCUMENT)
    assert (len(read_in_time.files), read_in_time.whole) == (1, True)
    assert (len(late.files), late.whole) == (0, False)
    assert late.found(Found()).remarks == (f"{folder} takes too long to read; showing the jobs known before.",)


def test_a_process_without_descriptors_says_nothing_about_jobs(folder: Path) -> None:
    put(folder, GOOD)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open("/dev/null", os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        found = read(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert not found.whole
    assert found.remarks == (f"{folder} cannot be read: Too many open files; showing the jobs known before.",)


UUID, MIG = "GPU-0451a3f1-f345-8e4c-6592-e96c0feca949", "MIG-265a219d-a49f-578a-825d-222c72699c16"
NOT_AN_ID = "it holds something that is not the id of a job, so jobs may be missing."
OTHER_NAME = "its name is not like 0 or 0.1, so the GPUs of its job are not known."
# content by file, the GPUs of each job, and the remarks; with any, jobs may be missing
MAPPINGS: dict[str, tuple[dict[str, str], dict[str, tuple[int, ...]], tuple[str, ...]]] = {
    "DCGM": ({"0": "12\n13\n", "10": "12", "2.1": "14"}, {"12": (0, 10), "13": (0,), "14": (2,)}, ()),
    "soperator: no newline, 0 without a job": ({"0": "12", "1": "0"}, {"12": (0,)}, ()),
    "dcgm-job-map: 0 on idle GPUs": ({"0.0": "0\n", "1.3": "12\n"}, {"12": (1,)}, ()),
    "jobstats: job and user": ({"0": "4711 1000\n", "1": "4711 1000\n"}, {"4711": (0, 1)}, ()),
    "jobstats: by number and by UUID": ({"3": "4711 1000\n", UUID: "4711 1000\n"}, {"4711": (3,)}, ()),
    "jobstats: instances of MIG": ({MIG: "4711 1000\n"}, {"4711": ()}, (f"{MIG}: {OTHER_NAME}",)),
    "AMD": ({"5": '{\n "SLURM_JOB_ID": "12",\n "SLURM_JOB_GPUS": "5" }\n'}, {"12": (5,)}, ()),
    "AMD, damaged": ({"5": '{ "SLURM_JOB_ID": '}, {}, (f"5: {NOT_AN_ID}",)),
    "AMD, without a job": ({"5": '{ "SLURM_JOB_ID": "" }'}, {}, ()),
    "PBS, an array of Slurm": ({"0": "12.server\n", "1": "12_7\n"}, {"12.server": (0,), "12_7": (1,)}, ()),
    "Slurm 25.11: CUDA_VISIBLE_DEVICES has UUIDs": ({UUID: "12\n"}, {"12": ()}, (f"{UUID}: {OTHER_NAME}",)),
    "instances behind a UUID": ({f"{UUID}.1": "12\n"}, {"12": ()}, (f"{UUID}.1: {OTHER_NAME}",)),
    "one GPU by number, another by UUID": (
        {"0": "12", UUID: "12", UUID.replace("4", "5"): "12"},
        {"12": ()},
        (f"{UUID}, {UUID.replace('4', '5')}: {OTHER_NAME}",),
    ),
    "idle, by UUID": ({UUID: "", MIG: "0\n", ".0.new": "x"}, {}, ()),
    "words for no job": ({"0": "none\n"}, {}, (f"0: {NOT_AN_ID}",)),
    "a README": ({"README": "Files of the prolog\n", "0": "12"}, {"12": (0,)}, (f"README: {NOT_AN_ID}",)),
    "bytes": (
        {"0": "12 \x00../x /\n&", "1": "x" * 1025},
        {"12": (0,)},
        ("1: ignored, because it is longer", f"0: {NOT_AN_ID}"),
    ),
}


@for_each(MAPPINGS)
def test_a_mapping_file_says_what_its_writer_meant(
    files: dict[str, str],
    gpus: dict[str, tuple[int, ...]],
    remarks: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("mapping")
    for name, content in files.items():
        (folder / name).write_text(content)
    found = read_slurm_mapping(folder, 0)
    assert {claim.id: claim.gpu_indexes for claim in found.claims} == gpus
    assert (found.knows, found.unread) == (True, bool(remarks))
    assert len(found.remarks) == len(remarks)
    assert all(remark.startswith(f"{folder}: {text}") for text, remark in zip(remarks, found.remarks, strict=True))


def test_documents_that_are_not_read_may_be_of_jobs(folder: Path) -> None:
    put(folder, GOOD)
    assert not read(folder).unread
    put(folder, b"{", "43.json")
    assert ([claim.id for claim in read(folder).claims], read(folder).unread) == (["42"], True)


@needs_root
def test_a_link_of_another_user_is_not_followed(tmp_path: Path) -> None:
    jobs, link = tmp_path / "jobs", tmp_path / "link"
    jobs.mkdir()
    (jobs / "42.json").write_text('{"id": "42", "scheduler": "slurm"}')
    (jobs / "0").write_text("42")
    link.symlink_to(jobs)

    def ids(found: Found) -> list[str]:
        return [claim.id for claim in found.claims]

    assert ids(read_job_documents(link, 0, "")) == ids(read_slurm_mapping(link, 0)) == ["42"]
    os.lchown(link, USER, USER)
    for found in (read_job_documents(link, 0, ""), read_slurm_mapping(link, 0)):
        assert (found.claims, found.knows) == ((), False)
        assert found.remarks[0].startswith(f"{link} is not read: {link} is a symbolic link of user {USER}; ")
