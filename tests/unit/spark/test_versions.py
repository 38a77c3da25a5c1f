"""A job refuses a PySpark of unequal parts, or of an unfit version, before it does anything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from airflow_provider.exceptions import SparkVersionError
from airflow_provider.spark.versions import check_installed, check_session


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty site-packages, in place of this environment's."""
    ours = [entry for entry in sys.path if "site-packages" not in entry]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *ours])
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return tmp_path


def install(site: Path, *, jars: bool = False, **versions: str) -> None:
    (site / "pyspark").mkdir()
    (site / "pyspark" / "__init__.py").touch()
    if jars:
        (site / "pyspark" / "jars").mkdir()
    for name, version in versions.items():
        info = site / f"{name}-{version}.dist-info"
        info.mkdir()
        text = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        (info / "METADATA").write_text(text)


def test_no_pyspark_at_all(site: Path) -> None:
    with pytest.raises(SparkVersionError, match=r"pip install 'airflow-provider-table-services\[spark\]'"):
        check_installed(with_jvm=False)


def test_two_that_have_overwritten_each_other(site: Path) -> None:
    install(site, jars=True, pyspark="4.3.0", pyspark_client="4.2.0")
    with pytest.raises(SparkVersionError, match=r"pyspark==4\.2\.0 pyspark-client==4\.2\.0"):
        check_installed(with_jvm=False)


@pytest.mark.parametrize("version", ["4.0.2", "4.1.1", "4.2.0"])
def test_a_pair_of_one_version(site: Path, version: str) -> None:
    install(site, jars=True, pyspark=version, pyspark_client=version)
    check_installed(with_jvm=True)


def test_the_client_alone_is_enough_for_a_server_only(site: Path) -> None:
    install(site, pyspark_client="4.1.1")
    check_installed(with_jvm=False)
    with pytest.raises(SparkVersionError, match=r"pip install pyspark==4\.1\.1, or name a connection"):
        check_installed(with_jvm=True)


def test_the_pyspark_of_spark_home_is_its_own(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With spark-submit an installed PySpark does not matter, because Python does not import it."""
    install(site, pyspark="4.3.0", pyspark_client="4.2.0")
    spark_home = tmp_path / "spark"
    spark_home.mkdir()
    install(spark_home)
    monkeypatch.setattr(sys, "path", [str(spark_home), *sys.path])
    monkeypatch.setenv("SPARK_HOME", str(spark_home))
    check_installed(with_jvm=True)


class Classic:
    def __init__(self, version: str) -> None:
        self.version = version


class Remote(Classic):
    __module__ = "pyspark.sql.connect.session"


@pytest.mark.parametrize(
    ("session", "told"),
    [
        (Remote("4.1.1"), r"PySpark 4\.2\.0 does not fit Spark 4\.1\.1, .*'pyspark-client==4\.1\.\*'"),
        (Classic("4.1.1"), r"'pyspark==4\.1\.\*'"),
        (Classic("4.3.0"), r"'pyspark==4\.3\.\*'"),
        (Remote("3.5.8"), r"Spark 3\.5\.8, by PySpark 4\.2\.0, is too old; the jobs need 4\.1 or later"),
    ],
)
def test_a_spark_that_does_not_fit(session: Classic, told: str) -> None:
    with pytest.raises(SparkVersionError, match=told):
        check_session(session)  # type: ignore[arg-type]


@pytest.mark.parametrize("session", [Remote("4.2.1"), Remote("4.3.0"), Classic("4.2.7")])
def test_a_spark_that_fits(session: Classic) -> None:
    check_session(session)  # type: ignore[arg-type]
