"""The description of a clustering for a Spark job."""

from __future__ import annotations

import json

import pytest

from airflow_provider.exceptions import InvalidInputError
from airflow_provider.ingestion import IngestJob
from airflow_provider.services.clustering.clustering_job import ClusteringJob


def test_it_survives_the_way_to_another_process() -> None:
    job = ClusteringJob.of(
        "/t",
        instant="20240101000000000",
        storage_options={"key": "k"},
        parallel_groups=3,
        heartbeat_interval=2.5,
        spark_conf={"a": "b"},
    )
    assert ClusteringJob.from_json(job.to_json()) == job


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not the description of a job of kind .clustering"),
        (IngestJob.of("/t").to_json(), "not the description of a job of kind .clustering"),
        (
            json.dumps({"job": "clustering", "location": "/t", "sort": 1}),
            "there is no field 'sort'",
        ),
        (json.dumps({"job": "clustering"}), "not the description of a job of kind .clustering"),
    ],
)
def test_what_is_not_one_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ClusteringJob.from_json(text)


@pytest.mark.parametrize(
    "field", [{"parallel_groups": 0}, {"heartbeat_interval": 0.0}, {"tolerable_misses": 0}]
)
def test_numbers_that_cannot_work_are_refused(field: dict[str, int]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(field))):
        ClusteringJob.of("/t", **field)
