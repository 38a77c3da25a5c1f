"""Downloads the engines of these tests once from Maven Central, into ``.engines``, by the Ivy in pyspark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from dags_examples.demo.spark_server import java_environment
from tests.processes.servers import JARS

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".engines"

# Dependencies of Hadoop and Hive that their shaded clients or log4j 2 contain already.
LEFT_OUT = (
    "org.apache.hadoop:*",
    "log4j:*",
    "ch.qos.reload4j:*",
    "ch.qos.logback:*",
    "org.slf4j:slf4j-reload4j",
    "org.slf4j:slf4j-log4j12",
    "jdk.tools:*",
    "org.pentaho:*",
    "com.sun.jersey:*",
)


class NotReachedError(Exception):
    """Raised when a file of an engine cannot be downloaded; the message names the file and the reason."""


@dataclass(frozen=True)
class Artifact:
    """One artifact of Maven Central.

    :param name: ``group:artifact:version``.
    :param transitive: whether to download its dependencies, too.
    :param kind: the ending of its file's name.
    :param classifier: Maven's classifier.
    :param left_out: dependencies to leave out, as ``group:artifact``; ``*`` is any artifact.
    """

    name: str
    transitive: bool = False
    kind: str = "jar"
    classifier: str = ""
    left_out: tuple[str, ...] = ()

    def as_ivy(self) -> str:
        group, artifact, version = map(quoteattr, self.name.split(":"))
        named = self.kind != "jar" or self.classifier
        configurations = "master,compile,runtime" if self.transitive else "*" if named else "master"
        lines = [
            f"<dependency org={group} name={artifact} rev={version} "
            f'transitive="{str(self.transitive).lower()}" conf="default->{configurations}">'
        ]
        if named:
            classifier = f" m:classifier={quoteattr(self.classifier)}" if self.classifier else ""
            kind = quoteattr(self.kind)
            lines += [f"<artifact name={artifact} type={kind} ext={kind}{classifier}/>"]
        for name in self.left_out:
            group, artifact = map(quoteattr, name.split(":"))
            lines += [f"<exclude org={group} module={artifact}/>"]
        return "".join([*lines, "</dependency>"])


def resolve(engine: str, artifacts: Iterable[Artifact]) -> Path:
    """The folder with an engine's files, downloaded unless they are there already.

    :param engine: names the folder.
    :param artifacts: the engine's artifacts. An archive (``tar.gz``) is unpacked, without its outermost
        folder.
    :raises NotReachedError: when Maven Central does not send a file.
    """
    folder = FOLDER / engine
    wanted = "".join(artifact.as_ivy() for artifact in artifacts)
    ready = folder / "ready.xml"
    if ready.exists() and ready.read_text() == wanted:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    module = folder / "ivy.xml"
    module.write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        f'<info organisation="tests" module={quoteattr(engine)}/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{wanted}</dependencies></ivy-module>"
    )
    [ivy] = JARS.glob("ivy-*.jar")
    to = f"{folder}/[artifact]-[revision](-[classifier]).[ext]"
    command = ["java", "-jar", ivy, "-warn", "-ivy", module, "-cache", FOLDER / "ivy", "-retrieve", to]
    print(f"downloading {engine} from Maven Central into {folder}", file=sys.stderr)
    _run(engine, *command)
    for archive in folder.glob("*.tar.gz"):
        with tarfile.open(archive) as packed:
            packed.extractall(folder, members=_inside(packed), filter="tar")
        archive.unlink()
    shutil.rmtree(FOLDER / "ivy")  # every file would be here twice
    ready.write_text(wanted)
    return folder


def compile_java(engine: str, sources: Iterable[Path], classpath: str, to: Path) -> None:
    """Compile by this machine's JDK.

    :param engine: the engine's name, for messages.
    :param to: the folder for the classes.
    :raises NotReachedError: when there is only a JRE, or the compiler refuses.
    """
    unfinished = to.with_name(f"{to.name}.unfinished")
    unfinished.mkdir(parents=True, exist_ok=True)
    options = ("-nowarn", "-proc:none", "-implicit:none", "-encoding", "UTF-8")
    _run(engine, "javac", *options, "-cp", classpath, "-d", unfinished, *sources)
    unfinished.rename(to)


def compiled(engine: str, source: Path, classpath: str) -> Path:
    """The folder with the classes of one source. The function compiles the source again when it has changed.

    :param engine: the engine's name, and the folder's.
    :raises NotReachedError: see :func:`compile_java`.
    """
    classes = FOLDER / engine
    made_of = classes / source.name
    if not made_of.exists() or made_of.read_bytes() != source.read_bytes():
        shutil.rmtree(classes, ignore_errors=True)
        compile_java(engine, [source], classpath, classes)
        made_of.write_bytes(source.read_bytes())
    return classes


def _inside(packed: tarfile.TarFile) -> Iterable[tarfile.TarInfo]:
    for member in packed:
        _, _, member.name = member.name.partition("/")
        if member.name:
            if member.islnk():
                _, _, member.linkname = member.linkname.partition("/")
            yield member


def _run(engine: str, *command: str | Path) -> None:
    environment = java_environment() | {"JAVA_TOOL_OPTIONS": ""}
    try:
        done = subprocess.run(
            list(map(str, command)), env=environment, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise NotReachedError(f"{engine} cannot be had: there is no {error.filename} here") from error
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-3000:]
        raise NotReachedError(f"{engine} cannot be had: {' '.join(map(str, command))}\n{said}")


def jdk(least: int) -> Path:
    """A JDK of at least a version: ``JAVA_HOME``, or one of ``/usr/lib/jvm``.

    :raises NotReachedError: when there is none.
    """
    homes = [Path(os.environ["JAVA_HOME"])] if "JAVA_HOME" in os.environ else []
    homes += sorted(Path("/usr/lib/jvm").glob("*"))
    for home in homes:
        release = home / "release"
        if release.exists():
            lines = dict(line.split("=", 1) for line in release.read_text().splitlines() if "=" in line)
            if int(lines.get("JAVA_VERSION", "0").strip('"').split(".")[0]) >= least:
                return home
    raise NotReachedError(f"needs a JDK of version {least} or later in JAVA_HOME or /usr/lib/jvm")
