"""The description of the provider that Airflow reads."""

import importlib
import json
import subprocess
import sys
from importlib.resources import files

import jsonschema
import pytest

from airflow_provider import operators
from airflow_provider.get_provider_info import get_provider_info
from airflow_provider.hooks.connection_form import form_fields
from airflow_provider.locks import LOCK_PROVIDERS, lock_options


def test_the_description_is_valid_by_airflows_own_schema():
    schema = json.loads(files("airflow").joinpath("provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_the_connection_forms_are_valid_by_the_schema_of_upstream_providers():
    # provider_info.schema.json does not check conn-fields; this schema does.
    schema = json.loads(files("airflow").joinpath("provider.yaml.schema.json").read_text())
    forms = schema["properties"]["connection-types"]
    jsonschema.validate(
        get_provider_info()["connection-types"], {**forms, "definitions": schema.get("definitions", {})}
    )


def test_the_description_imports_neither_airflow_nor_pyspark():
    program = (
        "import sys; from airflow_provider.get_provider_info import get_provider_info; get_provider_info();"
        "assert not {'airflow', 'pyspark', 'pyarrow'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("kind", ["hooks", "operators", "sensors", "triggers"])
def test_every_listed_module_is_there_and_holds_what_the_package_exports(kind):
    [listed] = get_provider_info()[kind]
    package = importlib.import_module(f"airflow_provider.{kind}")
    defined = {name for module in listed["python-modules"] for name in vars(importlib.import_module(module))}
    assert package.__all__
    for name in package.__all__:
        assert getattr(package, name).__name__ == name
        assert name in defined
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        package.Nothing  # noqa: B018


@pytest.mark.parametrize("name", operators.__all__)
def test_at_most_three_of_our_classes_lie_above_each_other_under_an_operator(name):
    def levels(cls: type) -> int:
        ours = [base for base in cls.__bases__ if base.__module__.startswith("airflow_provider.")]
        return max((1 + levels(base) for base in ours), default=0)

    assert levels(getattr(operators, name)) <= 3


def test_connection_types_name_hooks_that_have_them():
    for described in get_provider_info()["connection-types"]:
        module, _, name = described["hook-class-name"].rpartition(".")
        hook = getattr(importlib.import_module(module), name)
        assert hook.conn_type == described["connection-type"]
        assert hook.hook_name == described["hook-name"]
        # Airflow builds the hook with this argument when a person tests a connection.
        assert hook(**{hook.conn_name_attr: "some_id"})


def test_the_lock_form_offers_exactly_what_works():
    fields = form_fields("table_lock")
    assert set(fields["provider"]["enum"]) == set(LOCK_PROVIDERS)
    # The last three providers use fields of every connection: host and port, login, password.
    elsewhere = {"owner", "hosts", "username", "password"}
    options = {name for provider in LOCK_PROVIDERS for name in lock_options(provider)} - elsewhere
    assert set(fields) == {"provider", "test_location"} | options


def test_airflow_lists_the_provider_and_its_connection_types():
    def airflow(*arguments: str) -> str:
        command = [sys.executable, "-m", "airflow", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout

    listed = json.loads(airflow("providers", "list", "--output", "json"))
    assert [p for p in listed if p["package_name"] == "airflow-provider-table-services"]
    described = airflow("providers", "get", "airflow-provider-table-services", "--full", "--output", "json")
    assert "table_metastore" in described
    hooks = json.loads(airflow("providers", "hooks", "--output", "json"))
    ours = {
        hook["connection_type"]: hook
        for hook in hooks
        if hook["package_name"] == get_provider_info()["package-name"]
    }
    assert {name: hook["conn_id_attribute_name"] for name, hook in ours.items()} == {
        "table_lock": "lock_conn_id",
        "table_metastore": "metastore_conn_id",
    }
