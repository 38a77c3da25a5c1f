"""``table-services replicate`` and ``table-services replication status``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from airflow_provider.cli import app
from airflow_provider.exceptions import InvalidInputError, TransactionOpenError
from tests.unit.replication.pair import Pair


def run(*arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_replicate_and_its_status(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.lake.write("trips", {1: 10})
    urls = [f"--{side}=sqlite:///{tmp_path}/{side}/metastore.db" for side in ("source", "target")]
    where = [f"--location={tmp_path}/source={tmp_path}/target", "--database=lake=lake_copy"]
    assert run("replication", "status", urls[1]) == []
    done = run("replicate", "--policy=dr", *urls, *where)
    assert done["bootstrapped"] is True
    assert done["bytes_copied"] > 0
    pair.check_equal()
    pair.lake.write("trips", {1: 11})
    [lag] = run("replication", "status", *urls)
    assert (lag["policy"], lag["phase"], lag["transactions"]) == ("dr", "following", 1)
    assert lag["events"] > 0
    done = run("replicate", "--policy=dr", *urls, *where, "--follow=0.05", "--poll=0.01")
    assert done["transactions"] == 1
    assert 0 < lag["bytes_left"] == done["bytes_copied"]
    [lag] = run("replication", "status", *urls)
    assert (lag["events"], lag["transactions"], lag["seconds"], lag["last_error"]) == (0, 0, 0.0, None)
    assert lag["bytes_left"] == 0
    shown = CliRunner().invoke(app, ["replication", "status", *urls], env={"COLUMNS": "80"}).output
    assert {"policy", "source_event_id", "last_error"} <= {line.split()[0] for line in shown.splitlines()}
    pair.check_equal()


@pytest.mark.parametrize("option", ["--database", "--location"])
def test_a_pair_without_a_target_is_refused(option: str) -> None:
    given = {"--database": "a=b", "--location": "/a=/b", option: "lake"}
    sides = ("--policy=p", "--source=sqlite:////a", "--target=sqlite:////b")
    with pytest.raises(InvalidInputError, match="source=target"):
        run("replicate", *sides, *(f"{name}={value}" for name, value in given.items()))


def test_failover_and_the_way_back(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.lake.write("trips", {1: 10})
    urls = [f"--{side}=sqlite:///{tmp_path}/{side}/metastore.db" for side in ("source", "target")]
    where = [f"--location={tmp_path}/source={tmp_path}/target", "--database=lake=lake_copy", "--policy=dr"]
    run("replicate", *urls, *where)
    txn = pair.lake.begin()
    pair.lake.write("trips", {2: 2}, txn)
    with pytest.raises(TransactionOpenError):
        run("failover", *urls, *where, "--wait=0")
    assert run("failover", *urls, *where, "--abort") == {"policy": "dr", "aborted": True}
    pair.lake.commit(txn)
    pair.lake.write("trips", {1: 11})
    done = run("failover", *urls, *where, "--promote", "--source-is-there")
    assert [each["tables"] for each in done["lacking"]] == [{"lake.trips": 2}, {"lake.trips": 3}]
    [kept] = run("failover", *urls, *where, "--follow")
    assert kept["table"] == "lake.trips"
    pair.check_equal()
    with pytest.raises(InvalidInputError, match="give one of"):
        run("failover", *urls, *where, "--follow", "--promote")
