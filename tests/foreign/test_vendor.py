"""`mcp-tasks vendor DEST`: a copy that can be told from the kit, updated, and kept from being lost."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

import workflows.kit
from bridge.settings import OperatorError, SettingsError
from bridge.vendor import MARKER, OutOfDate, check, vendor
from tests.support import run_to_end

KIT = Path(workflows.kit.__file__).parent


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A fresh copy."""
    dest = tmp_path / "acme" / "mcp_kit"
    vendor(dest)
    return dest


def as_an_older_version(copy: Path, **files: str | None) -> None:
    """Make `copy` what an older version had written: `files` with these texts, or without those that are None."""
    marker = json.loads((copy / MARKER).read_text("utf-8"))
    for stem, text in files.items():
        name = f"{stem}.py"
        if text is None:
            (copy / name).unlink()
            del marker["files"][name]
        else:
            (copy / name).write_text(text, "utf-8")
            marker["files"][name] = sha256(text.encode()).hexdigest()
    (copy / MARKER).write_text(json.dumps({**marker, "version": "0.0.9"}), "utf-8")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in [*folder.glob("*.py"), folder / "LICENSE"]}


def test_a_copy_is_the_kit_with_a_marker(copy: Path) -> None:
    assert contents(copy) == contents(KIT)
    assert {path.name for path in copy.iterdir()} == {*contents(KIT), MARKER}
    assert check(copy).version == json.loads((copy / MARKER).read_text("utf-8"))["version"]


def test_a_copy_carries_the_licence(copy: Path) -> None:
    assert (copy / "LICENSE").read_text("utf-8") == (KIT.parents[1] / "LICENSE").read_text("utf-8")


def test_a_second_run_has_nothing_to_do(copy: Path) -> None:
    done = vendor(copy)
    assert (done.written, done.removed, done.previous) == ([], [], done.version)


def test_an_update_replaces_adds_and_removes(copy: Path) -> None:
    as_an_older_version(copy, body="# older", former="# no longer there", forms=None)
    with pytest.raises(OutOfDate, match=r"0\.0\.9 is out of date"):
        check(copy)
    done = vendor(copy)
    assert (done.written, done.removed, done.previous) == (["body.py", "forms.py"], ["former.py"], "0.0.9")
    assert contents(copy) == contents(KIT)
    check(copy)


def test_what_was_changed_by_hand_is_kept_unless_forced(copy: Path) -> None:
    as_an_older_version(copy, body="# older", former="# no longer there")
    for name in ("body.py", "former.py"):
        (copy / name).write_text("# ours now")
    for run in (vendor, check):
        with pytest.raises(OperatorError, match=r"changed by hand since it was vendored: body.py, former.py"):
            run(copy)
    assert (copy / "body.py").read_text() == "# ours now"
    vendor(copy, force=True)
    assert contents(copy) == contents(KIT)


def test_a_file_of_the_projects_own_is_left_alone(copy: Path) -> None:
    (copy / "ours.py").write_text("# ours")
    vendor(copy, force=True)
    check(copy)
    assert (copy / "ours.py").read_text() == "# ours"


def test_a_file_of_the_projects_own_is_not_overwritten_by_a_new_one_of_the_kit(copy: Path) -> None:
    as_an_older_version(copy, forms=None)
    (copy / "forms.py").write_text("# ours")
    with pytest.raises(SettingsError, match=r"changed by hand since it was vendored: forms.py"):
        vendor(copy)


def test_a_file_that_is_missing_is_out_of_date_and_restored(copy: Path) -> None:
    (copy / "forms.py").unlink()
    with pytest.raises(OutOfDate):
        check(copy)
    assert vendor(copy).written == ["forms.py"]


def test_an_update_that_was_interrupted_is_taken_up(copy: Path) -> None:
    """The marker is written last, so some files are of the new version already."""
    as_an_older_version(copy, body="# older", forms="# older")
    (copy / "body.py").write_bytes((KIT / "body.py").read_bytes())
    assert vendor(copy).written == ["forms.py"]
    check(copy)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "__init__.py").touch()
    with pytest.raises(SettingsError, match=r"exists, and is no vendored kit: it has no VENDORED.json"):
        vendor(tmp_path / "acme", force=True)
    with pytest.raises(SettingsError, match="exists, and is no folder"):
        vendor(tmp_path / "acme" / "__init__.py" / "kit")


def test_a_name_that_cannot_be_imported_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="must be a Python name"):
        vendor(tmp_path / "mcp-kit")
    assert not (tmp_path / "mcp-kit").exists()


@pytest.mark.parametrize("text", ["{}", '{"version": "1", "files": {"../x.py": ""}}'], ids=["empty", "a path"])
def test_a_marker_that_is_not_ours_is_refused(copy: Path, text: str) -> None:
    (copy / MARKER).write_text(text)
    with pytest.raises(SettingsError, match=r"its VENDORED.json cannot be read"):
        vendor(copy, force=True)


async def test_the_command_says_in_one_line_what_it_did(tmp_path: Path) -> None:
    """And `--check` is for a build: status 1 if the copy is out of date, 2 if there is none."""
    dest = str(tmp_path / "mcp_kit")
    assert (await run_to_end("vendor", dest, "--check"))[0] == 2
    status, output, errors = await run_to_end("vendor", dest)
    assert (status, errors) == (0, "")
    assert output.startswith("mcp-tasks vendor: copied the kit ") and output.count("\n") == 1
    status, output, _ = await run_to_end("vendor", dest, "--check", "--json")
    assert (status, json.loads(output)["written"]) == (0, [])
    (tmp_path / "mcp_kit" / "body.py").unlink()
    status, output, errors = await run_to_end("vendor", dest, "--check")
    assert (status, output) == (1, "")
    assert errors.startswith(f"mcp-tasks: {dest}: ") and errors.count("\n") == 1
    assert "wrote body.py\n" in (await run_to_end("vendor", dest))[1]
