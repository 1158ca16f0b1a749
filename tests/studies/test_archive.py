"""Records of a study in one compressed file: nothing is lost, and a newer record in a file of its own is used."""

import json
import lzma
from pathlib import Path

import pytest

from shoal.cli.command_line import main
from shoal.errors import InputError, WriteError
from shoal.storage import lock
from shoal.studies import archive
from shoal.studies.plan import Cell
from shoal.studies.record import read_record, readable_records, write_record
from shoal.studies.state import record_path, records_of_cells
from support.small_studies import cells_of, made_record, write_study_file


@pytest.fixture
def cells(tmp_path: Path) -> list[Cell]:
    return cells_of(write_study_file(tmp_path))


@pytest.fixture
def folder(tmp_path: Path, cells: list[Cell]) -> Path:
    """The records of three runs, each in a file of its own."""
    folder = tmp_path / "records" / "demo"
    for i, cell in enumerate(cells[:3]):
        write_record(record_path(folder, cell), made_record(cell, (float(i), 0.1)))
    return folder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_gathered_records_are_equal_and_take_fewer_bytes(folder: Path, cells: list[Cell]) -> None:
    before = records_of_cells(folder, cells)
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert archive.gather(folder) == 3 and names(folder) == {archive.ARCHIVE_FILE}
    assert records_of_cells(folder, cells) == before and readable_records(folder) == [
        before[name] for name in sorted(before)
    ]
    assert (folder / archive.ARCHIVE_FILE).stat().st_size < size / 5
    assert archive.gather(folder) == 0


def test_extracting_restores_the_files_and_gathering_them_the_archive(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    archive.gather(folder)
    data = (folder / archive.ARCHIVE_FILE).read_bytes()
    assert archive.extract(folder) == 3 and archive.extract(folder) == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert archive.gather(folder) == 3 and (folder / archive.ARCHIVE_FILE).read_bytes() == data


def test_an_archive_is_xz_of_one_json_object_per_line(folder: Path) -> None:
    before = {path.stem: json.loads(path.read_text()) for path in folder.iterdir()}
    archive.gather(folder)
    with lzma.open(folder / archive.ARCHIVE_FILE, "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    assert [line["name"] for line in lines] == sorted(before)
    assert {line.pop("name"): line for line in lines} == before


def test_a_file_of_its_own_replaces_the_line_of_the_same_run(folder: Path, cells: list[Cell]) -> None:
    archive.gather(folder)
    digest = cells[0].name.rpartition("-")[2]
    write_record(folder / f"other-name-{digest}.json", made_record(cells[0], (5.0, 6.0)))
    for _ in range(2):
        assert records_of_cells(folder, cells)[cells[0].name].scores[:, 0].tolist() == [5.0, 6.0]
        archive.gather(folder)
    assert names(folder) == {archive.ARCHIVE_FILE} and len(archive.stored(folder)) == 3


def test_archives_can_be_appended(folder: Path, cells: list[Cell], tmp_path: Path) -> None:
    archive.gather(folder)
    other = tmp_path / "other"
    write_record(record_path(other, cells[3]), made_record(cells[3]))
    write_record(record_path(other, cells[0]), made_record(cells[0], (7.0, 7.0)))
    archive.gather(other)
    with (folder / archive.ARCHIVE_FILE).open("ab") as file:
        file.write((other / archive.ARCHIVE_FILE).read_bytes())
    held = records_of_cells(folder, cells)
    assert set(held) == {cell.name for cell in cells[:4]} and held[cells[0].name].scores[0, 0] == 7.0


def test_files_that_are_no_records_are_not_moved(folder: Path) -> None:
    (folder / "damaged-1.json").write_text("{")
    (folder / "other-2.json").write_text("{}")
    (folder / ".0123.tmp.json").write_text('{"format": 4}')
    assert archive.gather(folder) == 3
    assert names(folder) == {"damaged-1.json", "other-2.json", ".0123.tmp.json", archive.ARCHIVE_FILE}


def test_a_failed_write_of_the_archive_loses_no_record(
    folder: Path, cells: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = records_of_cells(folder, cells)

    def fail(*_: object) -> None:
        raise WriteError("full")

    monkeypatch.setattr(archive, "write_bytes", fail)
    with pytest.raises(WriteError):
        archive.gather(folder)
    assert records_of_cells(folder, cells) == before and len(names(folder)) == 3


def test_a_record_written_while_others_are_gathered_is_kept(
    folder: Path, cells: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = archive.write_bytes

    def late(path: Path, data: bytes) -> None:
        plain(path, data)
        write_record(record_path(folder, cells[0]), made_record(cells[0], (9.0, 9.0)))
        write_record(record_path(folder, cells[3]), made_record(cells[3]))

    monkeypatch.setattr(archive, "write_bytes", late)
    archive.gather(folder)
    held = records_of_cells(folder, cells)
    assert len(held) == 4 and held[cells[0].name].scores[0, 0] == 9.0


def test_extracting_keeps_a_newer_file_of_its_own(folder: Path, cells: list[Cell]) -> None:
    archive.gather(folder)
    write_record(record_path(folder, cells[0]), made_record(cells[0], (9.0, 9.0)))
    assert archive.extract(folder) == 2 and len(names(folder)) == 3
    assert records_of_cells(folder, cells)[cells[0].name].scores[0, 0] == 9.0


def test_a_record_that_is_gathered_while_the_folder_is_listed_is_read_from_the_archive(
    folder: Path, cells: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, listed = records_of_cells(folder, cells), archive._files

    def gathered_meanwhile(folder: Path) -> list[Path]:
        found = listed(folder)
        monkeypatch.setattr(archive, "_files", listed)
        archive.gather(folder)
        return found

    monkeypatch.setattr(archive, "_files", gathered_meanwhile)
    assert records_of_cells(folder, cells) == before and names(folder) == {archive.ARCHIVE_FILE}


def test_a_record_that_is_gathered_after_it_was_listed_is_read_from_the_archive(folder: Path) -> None:
    listed = archive.stored(folder).values()
    before = [one.contents() for one in listed]
    archive.gather(folder)
    assert [one.contents() for one in listed] == before
    (folder / archive.ARCHIVE_FILE).unlink()
    with pytest.raises(InputError, match="There is no record"):
        next(iter(listed)).contents()


def test_only_one_process_moves_records(folder: Path) -> None:
    with lock.hold(folder):
        assert archive.gather(folder) == 0 and len(list(folder.glob("*.json"))) == 3
    archive.gather(folder)
    with lock.hold(folder), pytest.raises(InputError, match=r"Another process moves the records in .*; repeat this"):
        archive.extract(folder)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda data: data[:-20], "is damaged: its end is missing."),
        (lambda data: b"{}\n" * 20, "is damaged: it cannot be decompressed."),
        (lambda data: data + b"x" * 20, "is damaged: it cannot be decompressed."),
        (lambda data: lzma.compress(b'{"name":"../a-1","format":4}\n'), "line 1 does not start with a name."),
        (lambda data: lzma.compress(bytes(archive.MAX_ARCHIVE + 1), preset=0), "is larger than 1 MiB."),
    ],
    ids=["truncated", "not compressed", "more data", "a path as a name", "too large"],
)
def test_a_damaged_archive_is_refused(
    damage, sentence: str, folder: Path, cells: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_ARCHIVE", 2**20)
    archive.gather(folder)
    path = folder / archive.ARCHIVE_FILE
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError) as caught:
        records_of_cells(folder, cells)
    assert "archive of records" in str(caught.value) and str(path) in str(caught.value)
    assert str(caught.value).endswith(sentence)
    assert readable_records(folder) == []


def test_a_damaged_record_in_an_archive_is_named(folder: Path, cells: list[Cell]) -> None:
    name = cells[0].name
    line = f'{{"name":"{name}","format":9}}\n'
    (folder / archive.ARCHIVE_FILE).write_bytes(lzma.compress(line.encode()))
    (folder / f"{name}.json").unlink()
    with pytest.raises(InputError) as caught:
        records_of_cells(folder, cells)
    assert str(caught.value).startswith(
        f"{folder / archive.ARCHIVE_FILE} ({name}) is not a record of a run: its format 9 is"
    )


def test_the_command_extracts_records(folder: Path, capsys: pytest.CaptureFixture) -> None:
    archive.gather(folder)
    file = str(folder.parents[1] / "demo.toml")
    assert main(["study", file, "--extract", "--again"]) == 2
    assert "--extract moves all records of a study, without" in capsys.readouterr().err
    assert main(["study", file, "--extract"]) == 0
    assert capsys.readouterr().out == f"3 records moved to files in {folder}\n"
    assert all(read_record(path).study == "demo" for path in folder.glob("*.json")) and len(names(folder)) == 3
