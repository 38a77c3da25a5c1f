"""A DAG that reads the changed rows, and stores its checkpoint with the asset."""

import pytest
from airflow.sdk import DAG, Asset, task

from airflow_provider.exceptions import CheckpointExpiredError
from airflow_provider.hooks import TableHook
from tests.airflow.conftest import xcom
from tests.unit.table.histories import History


@pytest.fixture
def history(tmp_path):
    return History(tmp_path)


def test_the_checkpoint_is_kept_between_runs(history, run_dag):
    location = history.table.location
    lake = Asset("histories", uri=f"file://{location}")
    with DAG("follow", schedule=[lake], max_active_runs=1) as dag:

        @task(inlets=[lake])
        def follow(asset_state_store):
            checkpoint = asset_state_store.get("copy")
            window = TableHook().increment(location, checkpoint)
            rows = window.scanner(columns=["v"]).to_table()["v"].to_pylist()
            if window.end is not None:
                asset_state_store.set("copy", window.end)
            return rows

        follow()

    told = []
    late = history.begin({("a", 1): "late"})
    for text in ("", "early", "next"):
        if text:
            history.commit({("a", 2): text})
        run = run_dag(dag)
        assert run.state == "success"
        told.append(xcom(run, "follow"))
    history.complete(late)
    told.append(xcom(run_dag(dag), "follow"))
    assert told == [[], ["early"], ["next"], ["late"]]


def test_the_hook_reads_increments(history):
    hook = TableHook()
    first = history.commit({("a", 1): "1"})
    straggler = history.begin({("a", 2): "2"})
    history.commit({("a", 1): "3"})
    fenced = hook.increment(history.table.location, order="fenced")
    assert (fenced.end, fenced.held_by.requested_time) == (first.instant, straggler.instant)
    part = hook.increment(history.table.location, end=first.completion_time)
    assert part.scanner().to_table()["v"].to_pylist() == ["1"]
    history.storage.delete(part.paths[0])
    with pytest.raises(CheckpointExpiredError, match="was cleaned"):
        hook.increment(history.table.location, end=first.completion_time)
