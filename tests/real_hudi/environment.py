"""Downloads the JVM's Hudi and its Spark once, into ``.venv-hudi`` of the checkout.

* From PyPI, by uv: ``pyspark==3.5.8`` (300 MB), in an environment of its own, because the project's has
  another version.
* From Maven Central, by Ivy, which Spark brings: ``org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0`` (80 MB).

``python -m tests.real_hudi.environment`` downloads them before the tests.
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
    """The place of the JVM's Hudi.

    :param python: the interpreter that has Spark.
    :param bundle: Hudi's jar for that Spark.
    """

    python: Path
    bundle: Path


class NotReachedError(Exception):
    """Raised when a file for the JVM's Hudi cannot be downloaded; the message names server and reason."""


def real_hudi(version: str = HUDI) -> RealHudi:
    """The JVM's Hudi on this machine, downloaded unless it is there already.

    :param version: Hudi's version.
    :raises NotReachedError: when PyPI or Maven Central does not send a file.
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
    """The environment of the server, without the project's Spark and ``make``'s settings for other JVMs."""
    left_out = ("SPARK_HOME", "PYTHONPATH", "JAVA_TOOL_OPTIONS", "VIRTUAL_ENV", "SPARK_CONNECT_MODE_ENABLED")
    kept = {name: value for name, value in java_environment().items() if name not in left_out}
    # Spark returns times in the process's time zone.
    return kept | {"TZ": "UTC", "SPARK_LOCAL_IP": "127.0.0.1"}


if __name__ == "__main__":
    found = real_hudi()
    print(f"{found.bundle.name} on Spark {SPARK}, in {FOLDER}")
    assert os.access(found.python, os.X_OK)
