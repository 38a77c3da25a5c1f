"""Assets that stand for tables."""

from __future__ import annotations

import pytest
from airflow.sdk import Asset

from airflow_provider.assets import table_asset
from airflow_provider.assets.hudi import convert_asset_to_openlineage
from airflow_provider.exceptions import InvalidInputError
from airflow_provider.get_provider_info import get_provider_info


@pytest.mark.parametrize(
    ("table", "uri", "dataset"),
    [
        ("lake.flights", "hudi://lake/flights", ("hudi", "lake.flights")),
        ("/srv/lake/flights/", "hudi://localhost/srv/lake/flights", ("file", "/srv/lake/flights")),
        ("file:///srv/lake/flights", "hudi://localhost/srv/lake/flights", ("file", "/srv/lake/flights")),
        ("/srv/the lake", "hudi://localhost/srv/the%20lake", ("file", "/srv/the lake")),
        ("s3://bucket/lake/flights", "hudi://s3/bucket/lake/flights", ("s3://bucket", "lake/flights")),
    ],
)
def test_a_table_has_one_asset_and_one_dataset(table, uri, dataset):
    asset = table_asset(table)
    assert asset == Asset(uri)
    assert asset.uri == uri
    found = convert_asset_to_openlineage(asset, None)
    assert (found.namespace, found.name) == dataset


@pytest.mark.parametrize("wrong", ["flights", "a.b.c", "", None, 3])
def test_what_is_no_table_is_refused(wrong):
    with pytest.raises(InvalidInputError, match="table"):
        table_asset(wrong)


@pytest.mark.parametrize("wrong", ["hudi://lake", "hudi://lake/", "hudi://lake/flights?x=1", "hudi:/srv"])
def test_a_uri_that_names_no_table_is_refused_by_airflow(wrong):
    with pytest.raises(ValueError, match="names no table"):
        Asset(wrong)


def test_airflow_finds_what_the_provider_says_of_the_scheme():
    [of_scheme] = get_provider_info()["asset-uris"]
    assert of_scheme["schemes"] == ["hudi"]
    for role in ("handler", "factory", "to_openlineage_converter"):
        module, _, name = of_scheme[role].rpartition(".")
        assert callable(getattr(__import__(module, fromlist=[name]), name))
