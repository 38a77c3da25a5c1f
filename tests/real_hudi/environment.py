"""The real Hudi: what it needs is downloaded once, into ``.venv-hudi`` of the checkout.

* From PyPI, by uv: ``pyspark==3.5.8`` (300 MB), in an environment of its own, because the project's has
  another version.
* From Maven Central, by Ivy, which Spark brings: ``org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0`` (80 MB).

``python -m tests.real_hudi.environment`` does it ahead of the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dags_examples.demo.spark_server import java_environment

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".venv-hudi"

SPARK = "3.5.8"
HUDI = "1.2.0"
MODULE = ("org.apache.hudi", "hudi-spark3.5-bundle_2.12")


@dataclass(frozen=True)
class RealHudi:
    """Where the real Hudi is.

    :param python: the interpreter that has Spark.
    :param bundle: Hudi's jar for that Spark.
    """

    python: Path
    bundle: Path


class NotReachedError(Exception):
    """What the real Hudi needs cannot be downloaded; says from where, and why."""


def real_hudi(version: str = HUDI) -> RealHudi:
    """The real Hudi on this machine; downloaded where it is not there yet.

    :param version: of Hudi.
    :raises NotReachedError: when PyPI or Maven Central does not give what is needed.
    """
    python = FOLDER / "bin" / "python"
    spark = _spark_of(python)
    if spark is None:
        _run("PyPI", _uv(), "venv", "--quiet", "--python", "3.11", "--allow-existing", FOLDER)
        _run("PyPI", _uv(), "pip", "install", "--quiet", "--python", python, f"pyspark=={SPARK}")
        spark = _spark_of(python)
        assert spark is not None, f"uv has put no pyspark into {FOLDER}"
    bundle = FOLDER / "jars" / f"{MODULE[1]}-{version}.jar"
    if not bundle.exists():
        [ivy] = (spark / "jars").glob("ivy-*.jar")
        to = f"{bundle.parent}/[artifact]-[revision].[ext]"
        options = ("-warn", "-notransitive", "-confs", "default", "-cache", FOLDER / "ivy")
        wanted = ("-dependency", *MODULE, version, "-retrieve", to)
        _run("Maven Central", "java", "-jar", ivy, *options, *wanted)
    return RealHudi(python, bundle)


def _spark_of(python: Path) -> Path | None:
    found = list(FOLDER.glob(f"lib/python*/site-packages/pyspark-{SPARK}.dist-info"))
    return found[0].parent / "pyspark" if found and python.exists() else None


def _uv() -> str:
    # `make` brings its own uv where there is none.
    return shutil.which("uv") or str(ROOT / ".tools" / "bin" / "uv")


def _run(place: str, *command: str | Path) -> None:
    done = subprocess.run(
        list(map(str, command)), env=java_environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-3000:]
        raise NotReachedError(
            f"the real Hudi cannot be had from {place}: {' '.join(map(str, command))}\n{said}"
        )


def server_environment() -> dict[str, str]:
    """For a process there: nothing of the project's Spark, and none of ``make``'s settings for other JVMs."""
    left_out = ("SPARK_HOME", "PYTHONPATH", "JAVA_TOOL_OPTIONS", "VIRTUAL_ENV", "SPARK_CONNECT_MODE_ENABLED")
    kept = {name: value for name, value in java_environment().items() if name not in left_out}
    # Spark gives times as the process has them.
    return kept | {"TZ": "UTC", "SPARK_LOCAL_IP": "127.0.0.1"}


if __name__ == "__main__":
    found = real_hudi()
    print(f"{found.bundle.name} on Spark {SPARK}, in {FOLDER}")
    assert os.access(found.python, os.X_OK)
