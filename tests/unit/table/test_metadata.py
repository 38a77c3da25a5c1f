from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.exceptions import CorruptTableError
from airflow_provider.table.timeline.metadata import (
    CommitMetadata,
    WriteStat,
    decode,
    decode_commit_metadata,
    encode,
    encode_commit_metadata,
)
from tests.unit.table.arrow_data import texts
from tests.unit.table.conftest import JvmTables

NOMETA = "rs_cow_v9_txns_simple_nometa"

# Files of Hudi 1.1; older releases lack fields that were added since.
SHAPES = {
    "HoodieCommitMetadata": 100,
    "HoodieReplaceCommitMetadata": 5,
    "HoodieRequestedReplaceMetadata": 5,
    "HoodieRollbackPlan": 1,
    "HoodieRollbackMetadata": 1,
    "HoodieCleanerPlan": 1,
    "HoodieCleanMetadata": 1,
    "HoodieIndexPlan": 2,
    "HoodieIndexCommitMetadata": 2,
}


def _schema_and_body(data: bytes) -> tuple[Any, bytes]:
    reader = fastavro.block_reader(io.BytesIO(data))
    (block,) = list(reader)
    return reader.writer_schema, block.bytes_.getvalue()


def _shape(schema: Any) -> Any:
    """An Avro schema without the parts that do not change the bytes: docs, Java hints, namespaces."""
    if isinstance(schema, list):
        return [_shape(branch) for branch in schema]
    if isinstance(schema, dict):
        if schema["type"] == "record":
            return [(field["name"], _shape(field["type"])) for field in schema["fields"]]
        inner = schema.get("items") or schema.get("values")
        return (schema["type"], _shape(inner)) if inner else schema["type"]
    return schema if "." not in schema else "named"


def _is_part(older: Any, newer: Any) -> bool:
    """Whether a record equals the other one, except for fields that were added since."""
    if isinstance(older, dict):
        return all(key in newer and _is_part(value, newer[key]) for key, value in older.items())
    if isinstance(older, list):
        return len(older) == len(newer) and all(map(_is_part, older, newer))
    return bool(older == newer)


def test_every_record_of_the_jvm_is_written_as_the_jvm_wrote_it(jvm_tables: JvmTables) -> None:
    seen = dict.fromkeys(SHAPES, 0)
    for path, content in jvm_tables.avro_files():
        schema, body = _schema_and_body(content)
        name = schema["name"].rpartition(".")[2]
        if name not in SHAPES:
            continue
        ours = encode(name, decode(content))
        if _shape(_schema_and_body(ours)[0]) != _shape(schema):
            assert "v6" in path.as_posix(), f"{path} has a shape that we do not write"
            assert _is_part(decode(content), decode(ours))
            continue
        assert _schema_and_body(ours)[1] == body, path
        seen[name] += 1
    assert all(seen[name] >= count for name, count in SHAPES.items()), seen


def test_commit_metadata_of_the_jvm_survives(jvm_tables: JvmTables) -> None:
    count = 0
    for path, content in jvm_tables.avro_files():
        name = _schema_and_body(content)[0]["name"].rpartition(".")[2]
        if name not in ("HoodieCommitMetadata", "HoodieReplaceCommitMetadata"):
            continue
        meta = decode_commit_metadata(content)
        action = "replacecommit" if name == "HoodieReplaceCommitMetadata" else "commit"
        assert decode_commit_metadata(encode_commit_metadata(meta, action)) == meta, path
        count += 1
    assert count > 100


def test_an_upsert_of_the_jvm(jvm_tables: JvmTables) -> None:
    timeline = jvm_tables.table(NOMETA) / ".hoodie/timeline"
    meta = decode_commit_metadata((timeline / "20260307135700696_20260307135701669.commit").read_bytes())
    assert meta.operation_type == "UPSERT_PREPPED"
    assert meta.replaced == {}
    assert json.loads(meta.extra_metadata["schema"])["name"] == "v9_txns_cow_simple_nometa_record"
    assert meta.write_stats == (
        WriteStat(
            file_id="742a4f26-7e5c-4b1c-bb9a-d13433f75557-0",
            partition_path="region=us",
            path="region=us/742a4f26-7e5c-4b1c-bb9a-d13433f75557-0_0-10-23_20260307135700696.parquet",
            prev_commit="20260307135657661",
            num_writes=3,
            num_update_writes=1,
            total_write_bytes=438538,
            file_size=438538,
            prev_base_file="742a4f26-7e5c-4b1c-bb9a-d13433f75557-0_1-3-7_20260307135657661.parquet",
        ),
    )


def test_our_upsert_differs_from_the_jvms_only_in_its_run_times(jvm_tables: JvmTables) -> None:
    timeline = jvm_tables.table(NOMETA) / ".hoodie/timeline"
    for path in sorted(timeline.glob("*_*.*commit")):
        theirs = decode(path.read_bytes())
        ours = decode(encode_commit_metadata(decode_commit_metadata(path.read_bytes()), path.suffix[1:]))
        for stats in theirs["partitionToWriteStats"].values():
            for stat in stats:
                stat["runtimeStats"] = None
        assert ours == theirs


def test_a_clustering_of_the_jvm_names_what_it_replaces(jvm_tables: JvmTables) -> None:
    timeline = jvm_tables.table(NOMETA) / ".hoodie/timeline"
    meta = decode_commit_metadata(
        (timeline / "20260307135709297_20260307135709818.replacecommit").read_bytes()
    )
    assert meta.operation_type == "CLUSTER"
    assert {path: len(file_ids) for path, file_ids in meta.replaced.items()} == {
        "region=eu": 1,
        "region=us": 2,
        "region=apac": 2,
    }


def test_a_workload_profile_of_the_jvm(jvm_tables: JvmTables) -> None:
    timeline = jvm_tables.table(NOMETA) / ".hoodie/timeline"
    meta = decode_commit_metadata((timeline / "20260307135700696.inflight").read_bytes())
    assert {(stat.partition_path, stat.file_id, stat.path) for stat in meta.write_stats} == {
        ("region=us", "", ""),
        ("region=us", "742a4f26-7e5c-4b1c-bb9a-d13433f75557-0", ""),
    }


def test_json_of_version_6(jvm_tables: JvmTables) -> None:
    folder = jvm_tables.table("rs_cow_v6_overwritetable") / ".hoodie"
    meta = decode_commit_metadata((folder / "20240707001303088.replacecommit").read_bytes())
    assert meta.operation_type == "INSERT_OVERWRITE_TABLE"
    assert [stat.path for stat in meta.write_stats] == [
        "30/ebcb261d-62d3-4895-90ec-5b3c9622dff4-0_0-111-154_20240707001303088.parquet"
    ]
    assert set(meta.replaced) == {"10", "20", "30"}
    assert meta.write_stats[0].file_size == 441392


counts = st.integers(0, 2**63 - 1)
stats = st.builds(
    WriteStat,
    file_id=texts,
    partition_path=texts,
    path=texts,
    prev_commit=texts,
    num_writes=counts,
    num_inserts=counts,
    num_update_writes=counts,
    num_deletes=counts,
    total_write_bytes=counts,
    file_size=counts,
    prev_base_file=st.none() | texts,
    min_event_time=st.none() | st.integers(-(2**63), 2**63 - 1),
    max_event_time=st.none() | st.integers(-(2**63), 2**63 - 1),
)


@given(
    st.lists(stats, max_size=4),
    st.dictionaries(texts, st.lists(texts, max_size=3).map(tuple), max_size=3),
    st.dictionaries(texts, texts, max_size=3),
)
def test_any_commit_survives(
    written: list[WriteStat], replaced: dict[str, tuple[str, ...]], extra: dict[str, str]
) -> None:
    # Stats come back partition by partition.
    order = {stat.partition_path: position for position, stat in reversed(list(enumerate(written)))}
    written = sorted(written, key=lambda stat: order[stat.partition_path])
    meta = CommitMetadata("UPSERT", tuple(written), replaced, extra)
    assert decode_commit_metadata(encode_commit_metadata(meta, "replacecommit")) == meta
    for stat in written:
        assert WriteStat.from_dict(json.loads(json.dumps(stat.to_dict()))) == stat


def test_a_commit_cannot_replace() -> None:
    meta = CommitMetadata("INSERT_OVERWRITE", replaced={"p": ("a",)})
    with pytest.raises(ValueError, match="a commit cannot replace file groups"):
        encode_commit_metadata(meta, "commit")
    assert decode_commit_metadata(encode_commit_metadata(meta, "clustering")) == meta


def test_defaults_fill_what_is_left_out() -> None:
    plan = decode(
        encode("HoodieRollbackPlan", {"instantToRollback": {"commitTime": "1", "action": "commit"}})
    )
    assert plan == {
        "instantToRollback": {"commitTime": "1", "action": "commit"},
        "RollbackRequests": None,
        "version": 1,
    }


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "neither Avro nor JSON"),
        (b"PAR1", "neither Avro nor JSON"),
        (b"\xff\xfe", "neither Avro nor JSON"),
        (b"[1]", "not commit metadata"),
        (b'{"partitionToWriteStats": [1]}', "not commit metadata"),
        (b'{"partitionToWriteStats": {"p": [1]}}', "not commit metadata"),
        (b"Obj\x01", "not an Avro file"),
        (b"Obj\x01\x02\x16avro.schema\x02x\0" + b"0" * 16, "not an Avro file"),
    ],
)
def test_damaged_files_are_told(data: bytes, message: str) -> None:
    with pytest.raises(CorruptTableError, match=message):
        decode_commit_metadata(data)


def test_a_file_cut_off_anywhere_is_told() -> None:
    whole = encode_commit_metadata(CommitMetadata("UPSERT", (WriteStat("a", "p", "p/a"),)), "commit")
    for length in range(len(whole)):
        with pytest.raises(CorruptTableError):
            decode_commit_metadata(whole[:length])
