"""The links of a task instance: to its table, its instant, and Spark's applications."""

from __future__ import annotations

import json

import pytest

from airflow_provider import operators
from airflow_provider.operators import IngestOperator
from airflow_provider.operators._base import SparkOperator, TableOperator
from airflow_provider.plugins.links import SparkLink

ON_A_TABLE = [
    each for name in operators.__all__ if issubclass(each := getattr(operators, name), TableOperator)
]


@pytest.mark.parametrize("name", operators.__all__)
def test_each_operator_that_names_a_table_links_to_it(name):
    operator = getattr(operators, name)
    links = {link.name for link in operator.operator_extra_links}
    assert ("Table" in links) == ("table" in operator.template_fields)


@pytest.mark.parametrize("operator", ON_A_TABLE, ids=lambda each: each.__name__)
def test_each_operator_links_to_its_table_and_instant(operator):
    names = {link.name for link in operator.operator_extra_links}
    assert names == {"Table", "Instant"} | ({"Spark"} if issubclass(operator, SparkOperator) else set())


@pytest.mark.parametrize(
    ("conf", "extra", "link"),
    [
        ({"spark.yarn.historyServer.address": "history:18080"}, {}, "http://history:18080"),
        ({}, {"yarn_resourcemanager_webapp_address": "http://rm:8088"}, "http://rm:8088"),
        (
            {"spark.yarn.historyServer.address": "https://history"},
            {"yarn_resourcemanager_webapp_address": "http://rm:8088"},
            "https://history",
        ),
        ({}, {}, ""),
    ],
)
def test_where_spark_is_seen(connect, conf, extra, link):
    connect("yarn", conn_type="spark", host="yarn", extra=json.dumps(extra))
    task = IngestOperator(task_id="t", table="lake.t", source="/x", spark_conf=conf, spark_conn_id="yarn")
    assert SparkLink().get_link(task, ti_key=None) == link


def test_a_connection_that_is_gone_is_no_error_of_a_link():
    task = IngestOperator(task_id="t", table="lake.t", source="/x", spark_conn_id="gone")
    assert SparkLink().get_link(task, ti_key=None) == ""
