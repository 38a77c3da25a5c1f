"""Databases, catalogs, tables, views."""

from __future__ import annotations

from contextlib import suppress

from hive_metastore import ttypes

from tests.engines.calls.asking import Asking, storage, table


def calls(hive: Asking) -> None:
    _databases(hive)
    _tables(hive)
    _names(hive)
    _several(hive)
    _alter(hive)
    _drop(hive)


def _databases(hive: Asking) -> None:
    ask, client = hive.ask, hive.client
    user, role = ttypes.PrincipalType.USER, ttypes.PrincipalType.ROLE
    described = ttypes.Database(
        name="calls", description="d", parameters={"a": "b"}, ownerName="me", ownerType=user
    )
    ask("create_database", described, name="create_database")
    ask("get_database", "calls")
    ask(
        "get_database_req",
        ttypes.GetDatabaseRequest(name="CALLS", catalogName="hive"),
        name="get_database_req upper case",
    )
    ask("create_database", ttypes.Database(name="CALLS"), name="create_database twice")
    ask("create_database", ttypes.Database(name="a-b c"), name="create_database bad name")
    ask("get_database", "nope")
    for pattern in ("cal*", "cal.*", "CALLS|x", "x|calls", "cal?s", "nope", ""):
        ask("get_databases", pattern)
    altered = ttypes.Database(name="calls", description="e", parameters={"z": "1"}, ownerName="you")
    altered.ownerType, altered.locationUri = role, client.get_database("calls").locationUri
    ask("alter_database", "calls", altered, name="alter_database")
    ask(
        "get_database_req",
        ttypes.GetDatabaseRequest(name="calls", catalogName="hive"),
        name="get_database_req altered",
    )
    with suppress(ttypes.NoSuchObjectException):
        client.drop_database("a-b c", True, True)
    ask("drop_database", "nope", True, False)
    ask("get_catalogs")
    ask("get_catalog", ttypes.GetCatalogRequest(name="hive"), name="get_catalog")
    ask("get_catalog", ttypes.GetCatalogRequest(name="nope"), name="get_catalog nope")


def _tables(hive: Asking) -> None:
    ask, told, client = hive.ask, hive.told, hive.client

    def made(name: str, *arguments: object, **described: object) -> None:
        told(f"create_table {name}", lambda: client.create_table(table(name, *arguments, **described)))  # type: ignore[arg-type]

    made("t")
    told("get_table_req t", lambda: hive.table("t"))
    told("get_table_req T", lambda: hive.table("T").tableName)
    made("T")
    told("get_table_req nope", lambda: hive.table("nope"))
    told("get_table_req nope.t", lambda: hive.table("t", "nope"))
    made("q", database="nope")
    for name in ("a b", "a.b", "é", "_t", "1t"):
        made(name)
    made("empty_column", columns=(("", "int"),))
    made("bad_type", columns=(("a", "nosuch"),))
    made("two_alike", columns=(("a", "int"), ("A", "int")))
    made("no_columns", columns=())
    made("key_is_a_column", (("id", "int"),))
    hive.forget("a b", "a.b", "empty_column", "key_is_a_column")
    made("e", external=True, location=f"{hive.outside}/e")
    told("get_table_req e", lambda: hive.table("e"))
    made("e2", external=True)
    told("get_table_req e2", lambda: hive.table("e2").sd.location)
    made("insert_only", parameters={"transactional": "true", "transactional_properties": "insert_only"})
    told("get_table_req insert_only", lambda: hive.table("insert_only"))
    view = table("a_view")
    view.tableType, view.viewOriginalText, view.viewExpandedText = "VIRTUAL_VIEW", "select 1", "select 1"
    ask("create_table", view, name="create_table a_view")
    told("get_table_req a_view", lambda: hive.table("a_view"))
    skewed, bucketed = table("skewed"), table("bucketed")
    skewed.sd.skewedInfo = ttypes.SkewedInfo(["v"], [["a"]], {})
    ask("create_table", skewed, name="create_table skewed")
    told("get_table_req skewed", lambda: hive.table("skewed").sd)
    bucketed.sd.numBuckets, bucketed.sd.bucketCols = 4, ["id"]
    bucketed.sd.sortCols = [ttypes.Order("v", 1)]
    ask("create_table", bucketed, name="create_table bucketed")
    told("get_table_req bucketed", lambda: hive.table("bucketed").sd)
    ask("create_table_with_constraints", table("wc"), [], [], [], [], [], [], name="create_with_constraints")
    ask("create_table_req", ttypes.CreateTableRequest(table=table("rq")), name="create_table_req")
    ask(
        "translate_table_dryrun", ttypes.CreateTableRequest(table=table("dry")), name="translate_table_dryrun"
    )
    ask("get_fields", "calls", "t")
    ask("get_schema", "calls", "t")
    ask("get_schema_req", ttypes.GetSchemaRequest(dbName="calls", tblName="t"), name="get_schema_req")
    context = ttypes.EnvironmentContext({})
    ask("get_fields_with_environment_context", "calls", "t", context, name="get_fields_with_env")
    ask("get_schema_with_environment_context", "calls", "t", context, name="get_schema_with_env")
    for name in ("t", "nope"):
        told(
            f"get_table_req {name} with statistics",
            lambda name=name: hive.table(name, getColumnStats=True, engine="hive").colStats,
        )


def _names(hive: Asking) -> None:
    ask, told, client = hive.ask, hive.told, hive.client
    for pattern in (
        "*",
        ".*",
        "t*",
        "T*",
        "t|e",
        "t.",
        "[te]",
        "e?",
        "e%",
        "e_",
        "",
        "t||e",
        "(t|e)",
        "n.*|b*",
    ):
        told(f"get_tables {pattern!r}", lambda pattern=pattern: sorted(client.get_tables("calls", pattern)))
    for pattern, kind in (
        ("*", "VIRTUAL_VIEW"),
        (".*", "MANAGED_TABLE"),
        ("e.*", "EXTERNAL_TABLE"),
        ("*", "NOPE"),
        ("*", ""),
    ):
        told(
            f"get_tables_by_type {pattern} {kind}",
            lambda pattern=pattern, kind=kind: sorted(client.get_tables_by_type("calls", pattern, kind)),
        )
    ask("get_all_tables", "nope")
    ask("get_tables", "nope", "*")
    told(
        "get_table_meta",
        lambda: sorted(client.get_table_meta("calls", "*", []), key=lambda one: one.tableName),
    )
    told("get_table_meta views", lambda: client.get_table_meta("c*s", "*", ["VIRTUAL_VIEW"]))
    for text in (
        'hive_filter_field_owner__ = "me"',
        'hive_filter_field_params__EXTERNAL = "TRUE"',
        'hive_filter_field_params__EXTERNAL like "TR.*"',
        'hive_filter_field_params__EXTERNAL like "TR%"',
        'hive_filter_field_params__table_type = "ICEBERG"',
        "hive_filter_field_last_access__ = 0",
        'hive_filter_field_owner__ = "me" and hive_filter_field_params__EXTERNAL <> "TRUE"',
        "garbage",
    ):
        told(
            f"get_table_names_by_filter {text}",
            lambda text=text: sorted(client.get_table_names_by_filter("calls", text, -1)),
        )
    extended = ttypes.GetTablesExtRequest(
        catalog="hive", database="calls", tableNamePattern="e.*", requestedFields=1
    )
    told("get_tables_ext", lambda: sorted(client.get_tables_ext(extended), key=lambda one: one.tblName))


def _several(hive: Asking) -> None:
    def asked(name: str, **request: object) -> None:
        full = ttypes.GetTablesRequest(dbName="calls", **request)
        hive.told(
            f"get_table_objects_by_name_req {name}",
            lambda: sorted(
                (one.tableName for one in hive.client.get_table_objects_by_name_req(full).tables), key=str
            ),
        )

    asked("e, T, nope, e", tblNames=["e", "T", "nope", "e"])
    asked("without names")
    asked("no names", tblNames=[])
    asked("pattern", tablesPattern="e*")
    asked("pattern and names", tablesPattern="e*", tblNames=["t", "e"])
    projected = ttypes.GetTablesRequest(
        dbName="calls",
        tblNames=["t"],
        projectionSpec=ttypes.GetProjectionsSpec(fieldList=["tableName", "sd.location"]),
    )
    hive.ask("get_table_objects_by_name_req", projected, name="get_table_objects_by_name_req projection")
    nowhere = ttypes.GetTablesRequest(dbName="nope", tblNames=["t"])
    hive.ask("get_table_objects_by_name_req", nowhere, name="get_table_objects_by_name_req nope")


def _alter(hive: Asking) -> None:
    told, client = hive.told, hive.client

    def altered(name: str, change: object, new_name: str = "t", old_name: str = "t") -> None:
        def alter() -> object:
            found = hive.table(old_name)
            change(found)  # type: ignore[operator]
            client.alter_table("calls", old_name, found)
            return hive.table(new_name)

        told(f"alter_table {name}", alter)

    altered("parameters", lambda found: found.parameters.update(k="v"))
    altered("rename", lambda found: setattr(found, "tableName", "t9"), "t9")
    altered("rename back", lambda found: setattr(found, "tableName", "t"), "t", "t9")
    altered("keys", lambda found: found.partitionKeys.append(ttypes.FieldSchema("z", "int", "")))
    altered("unknown type", lambda found: found.sd.cols.append(ttypes.FieldSchema("z", "badtype", "")))
    altered("incompatible type", lambda found: setattr(found.sd.cols[1], "type", "int"), "rq", "rq")
    altered("wider type", lambda found: setattr(found.sd.cols[0], "type", "string"))
    altered("rename to a table that exists", lambda found: setattr(found, "tableName", "e"))
    altered("location", lambda found: setattr(found.sd, "location", f"{hive.outside}/elsewhere"))
    altered("owner", lambda found: setattr(found, "owner", "you"))
    altered("serde", lambda found: found.sd.serdeInfo.parameters.update({"field.delim": ","}))
    altered("to external", lambda found: found.parameters.update(EXTERNAL="TRUE"))
    altered("to managed", lambda found: found.parameters.update(EXTERNAL="FALSE"))
    told("alter_table nope", lambda: client.alter_table("calls", "nope", table("nope")))
    for name, expected in (("wrong", "WRONG"), ("right", "v")):
        context = ttypes.EnvironmentContext(
            {"expected_parameter_key": "k", "expected_parameter_value": expected}
        )
        told(
            f"alter_table expected {name}",
            lambda context=context: client.alter_table_with_environment_context(
                "calls", "t", hive.table("t"), context
            ),
        )
    hive.ask("truncate_table", "calls", "t", [])
    hive.ask("truncate_table", "calls", "nope", [])
    whole = ttypes.TruncateTableRequest(dbName="calls", tableName="t")
    hive.ask("truncate_table_req", whole, name="truncate_table_req")


def _drop(hive: Asking) -> None:
    hive.told("create_table gone", lambda: hive.client.create_table(table("gone")))
    hive.ask("drop_table", "calls", "gone", True)
    hive.ask("drop_table", "calls", "gone", True, name="drop_table twice")
    hive.ask("drop_database", "calls", True, False)
    hive.told(
        "create_table of a descriptor without a serde",
        lambda: hive.client.create_table(
            ttypes.Table(
                tableName="bare",
                dbName="calls",
                sd=ttypes.StorageDescriptor(cols=storage().cols),
                tableType="MANAGED_TABLE",
            )
        ),
    )
    hive.told("get_table_req bare", lambda: hive.table("bare"))
