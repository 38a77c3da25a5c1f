"""The same calls to a real Hive 4.0.1 and to our service: every difference is listed, with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

import pytest
from hive_metastore import ttypes

from tests.engines.calls import databases, objects, partitions, transactions
from tests.engines.calls.asking import Asking
from tests.engines.calls.compared import Difference, differences
from tests.engines.conftest import Server, new_hive4
from tests.engines.differences import LISTED, reason
from tests.engines.maven_central import ROOT

PARTS = {"databases": databases, "partitions": partitions, "objects": objects, "transactions": transactions}


@pytest.fixture(scope="module")
def hive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Hive without the locks and statistics that other clients leave behind."""
    with new_hive4(tmp_path_factory.mktemp("hive4-of-calls")) as server:
        yield server


@pytest.fixture(scope="module")
def found(hive: Server, ours: Server, tmp_path_factory: pytest.TempPathFactory) -> list[Difference]:
    """The differences in all parts of the protocol."""
    answers: list[dict[str, object]] = []
    for server in (hive, ours):
        told: dict[str, object] = {}
        for name, part in PARTS.items():
            asking = Asking(server.port, tmp_path_factory.mktemp("outside"), server.warehouse)
            if part is not databases:
                asking.client.create_database(ttypes.Database(name="calls"))
            part.calls(asking)
            # By another connection: after a failed exchange_partitions a Hive leaves a transaction open.
            asking.connect()
            asking.client.drop_database("calls", True, True)
            told |= {f"{name}: {question}": answer for question, answer in asking.answers.items()}
            asking.close()
        answers.append(told)
    assert len(answers[0]) > 400
    return differences(*answers)


def test_every_difference_is_listed(found: list[Difference]) -> None:
    unlisted = [str(one) for one in found if reason(one) is None]
    assert not unlisted, "\n".join(unlisted)


def test_what_is_listed_still_differs(found: list[Difference]) -> None:
    places = [place for row in LISTED.values() for place in row]
    idle = [
        place
        for place in places
        if not any(fnmatchcase(one.where, place.replace("[", "[[]")) for one in found)
    ]
    assert not idle


def test_each_reason_is_in_the_docs() -> None:
    page = (ROOT / "docs" / "metastore-methods.md").read_text()
    rows = [line.split(" | ")[0].removeprefix("| ") for line in page.splitlines() if line.startswith("| ")]
    assert set(LISTED) <= set(rows)
