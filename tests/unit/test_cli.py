from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from airflow_provider.cli import app, main
from airflow_provider.concurrency import begin_write
from airflow_provider.table import HudiTable
from airflow_provider.table.file_groups import FileGroupId


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    return HudiTable.create(
        str(tmp_path / "t"), name="t", schema=pa.schema([("id", pa.int64())]), record_key=["id"]
    )


def call(*arguments: str) -> object:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_a_write_under_way_is_seen_and_rolled_back(table: HudiTable) -> None:
    writer = begin_write(table, operation="UPSERT", heartbeat_interval=60)
    writer.plan([FileGroupId("", "x-0")])
    (pending,) = call("heartbeats", table.location)  # type: ignore[misc]
    assert (pending["instant"], pending["operation"], pending["alive"]) == (writer.instant, "UPSERT", True)
    assert call("rollback", table.location) == [], "a live writer is nobody's to roll back unasked"
    assert call("rollback", table.location, writer.instant) == [{"rolled_back": writer.instant}]
    assert call("heartbeats", table.location) == []
    assert [row["action"] for row in call("timeline", table.location)] == ["rollback"]  # type: ignore[attr-defined]
    assert call("files", table.location) == []
    assert call("locks", table.location) == []
    writer.abort()


def test_an_error_is_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["table-services", "timeline", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert "NotATableError" in capsys.readouterr().err
