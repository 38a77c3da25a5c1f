"""Calls that add, read, filter, change and drop partitions."""

from __future__ import annotations

from hive_metastore import ttypes

from tests.engines.calls.asking import Asking, partition, table

NULL = "__HIVE_DEFAULT_PARTITION__"

FILTERS = [
    "n = 1",
    "n > 1",
    "n >= 2 and d = 'b'",
    "n != 1",
    "n <> 1",
    "d like 'a%'",
    "d like 'a.*'",
    "d like '_'",
    "d like '.'",
    "not (n = 1)",
    "d = 'a' or d = 'c'",
    "(d) in ('a','b')",
    "d in ('a','b')",
    "n in (1,2)",
    "(n) in (1,2)",
    "n not in (1)",
    "(n) not in (1)",
    "n between 1 and 6",
    "n not between 1 and 6",
    "d between 'a' and 'b'",
    "'a' = d",
    "1 = n",
    "n = '1'",
    "d = 1",
    "n = 01",
    "D = 'a'",
    "id = 1",
    "zzz = 1",
    "",
    "   ",
    "n = 1 and",
    "n = -3",
    'd = "q\'q"',
    "d = 'ab%c'",
    "d > 'a'",
    "d < 'b' and n < 2",
    "d is null",
    "d = null",
    "n = 1 and n = 2",
    "((n = 1))",
    "(struct(d,n)) IN (const struct('a',1),const struct('b',2))",
    "(d,n) IN (('a',1))",
    "n = 1.0",
    "n = 99999999999",
    "d = '__HIVE_DEFAULT_PARTITION__'",
    "d != 'a'",
    "d like '(((('",
    "n like '1.*'",
    "n = 1 or zzz = 2",
    "n == 1",
    "! (n = 1)",
    "d = 'é'",
    "d like '%'",
    "d like 'x%y%'",
]

TYPED_FILTERS = [
    "dt < 2026-01-15",
    "dt = '2026-01-01'",
    "dt = date '2026-01-01'",
    "dt between 2026-01-01 and 2026-01-15",
    "dbl > 8",
    "dbl > 9.5",
    "dc > 9",
    "dc > 9.9",
    "ts > '2026-01-15 00:00:00'",
    "ts > timestamp '2026-01-15 00:00:00'",
    "bi > 9",
    "bi = 10",
    "dt in (2026-01-01)",
    "(dt) in (2026-01-01)",
    "dt = 2026-01-01",
    "dt like '2026.*'",
    "dt > 'bad'",
    "dt != 2026-01-01",
]

BEGINNINGS = (["a"], ["a", ""], ["", "1"], ["", ""], [], ["a", "1", "x"], ["zz", ""], ["A", ""])


def calls(hive: Asking) -> None:
    hive.client.create_table(table("p", (("d", "string"), ("n", "int"))))
    hive.client.create_table(table("plain"))
    _add(hive)
    _asked(hive)
    _filters(hive)
    _typed(hive)
    _alter(hive)
    _drop(hive)
    _exchange(hive)


def _sorted(partitions: list[object]) -> list[str]:
    return sorted("/".join(one.values) for one in partitions)  # type: ignore[attr-defined]


def _add(hive: Asking) -> None:
    ask, told, client = hive.ask, hive.told, hive.client

    def added(name: str, *values: str, **described: object) -> None:
        ask("add_partition", partition("p", *values, **described), name=f"add_partition {name}")  # type: ignore[arg-type]

    added("a/1", "a", "1")
    added("a/1 again", "a", "1")
    added("with one value", "a")
    added("with three values", "a", "1", "x")
    added("with an empty value", "", "2")
    added("a/01", "a", "01")
    added("special characters", "x/y:z= é%", "3")
    told("drop_partition with an empty value", lambda: client.drop_partition("calls", "p", ["", "2"], True))
    added("elsewhere", "else", "1", location=f"{hive.outside}/else")
    ask("add_partition", partition("nope", "a"), name="add_partition nope")
    several = [("b", "1"), ("b", "2"), ("ab%c", "7"), (NULL, "-3"), ("q'q", "20")]
    ask("add_partitions", [partition("p", *one) for one in several], name="add_partitions")
    again = [partition("p", "b", "1"), partition("p", "c", "1")]
    for if_not_exists in (True, False):
        request = ttypes.AddPartitionsRequest("calls", "p", again, if_not_exists)
        told(
            f"add_partitions_req ifNotExists={if_not_exists}",
            lambda request=request: _sorted(client.add_partitions_req(request).partitions),
        )
    some_there = [partition("p", "new", "1"), partition("p", "b", "1")]
    ask("add_partitions", some_there, name="add_partitions one of which is there")
    twice = [partition("p", "twice", "1"), partition("p", "twice", "1")]
    ask("add_partitions", twice, name="add_partitions twice the same")
    told("get_partition_names after all", lambda: sorted(client.get_partition_names("calls", "p", -1)))
    own = partition("p", "own", "1", parameters={"pp": "1"})
    own.sd.inputFormat, own.sd.cols = "x.Y", [ttypes.FieldSchema("only", "int", "c")]
    own.sd.serdeInfo.parameters.update(sp="1")
    ask("add_partition", own, name="add_partition with a descriptor of its own")
    ask("get_partition", "calls", "p", ["own", "1"])
    ask("append_partition", "calls", "p", ["app", "1"])
    ask("append_partition_by_name", "calls", "p", "d=app/n=2")
    ask("append_partition", "calls", "p", ["app", "1"], name="append_partition twice")
    ask("append_partition", "calls", "plain", ["app"])


def _asked(hive: Asking) -> None:
    ask, told, client = hive.ask, hive.told, hive.client
    ask("get_partition", "calls", "p", ["a", "1"])
    for name in ("d=a/n=1", "d=a/n=01", "D=a/N=1", "zz", "d=zz/n=1"):
        ask("get_partition_by_name", "calls", "p", name)
    ask("get_partition", "calls", "p", ["zz", "1"])
    ask("get_partition", "calls", "nope", ["zz", "1"])
    for most in (-1, 2, 0):
        ask("get_partition_names", "calls", "p", most)
        told(
            f"get_partitions {most}",
            lambda most=most: [one.values for one in client.get_partitions("calls", "p", most)],
        )
    ask("get_partition_names", "calls", "plain", -1)
    ask("get_partition_names", "calls", "nope", -1)
    ask("get_partitions", "calls", "plain", -1)
    ask("get_partitions", "calls", "nope", -1)
    names = ["d=a/n=1", "d=zz/n=1", "d=b/n=2"]
    told("get_partitions_by_names", lambda: _sorted(client.get_partitions_by_names("calls", "p", names)))
    by_names = ttypes.GetPartitionsByNamesRequest(db_name="calls", tbl_name="p", names=names)
    told(
        "get_partitions_by_names_req",
        lambda: _sorted(client.get_partitions_by_names_req(by_names).partitions),
    )
    everything = ttypes.PartitionsByExprRequest(dbName="calls", tblName="p", expr=b"")
    told("get_partition_names_req", lambda: sorted(client.get_partition_names_req(everything)))
    as_text = ttypes.PartitionsByExprRequest(dbName="calls", tblName="p", expr=b"n = 1")
    told("get_partitions_by_expr", lambda: _sorted(client.get_partitions_by_expr(as_text).partitions))
    for values in BEGINNINGS:
        told(
            f"get_partition_names_ps {values}",
            lambda values=values: sorted(client.get_partition_names_ps("calls", "p", values, -1)),
        )
        told(
            f"get_partitions_ps {values}",
            lambda values=values: _sorted(client.get_partitions_ps("calls", "p", values, -1)),
        )
    ps = ttypes.GetPartitionNamesPsRequest(dbName="calls", tblName="p", partValues=["a", ""])
    told("get_partition_names_ps_req", lambda: sorted(client.get_partition_names_ps_req(ps).names))
    told(
        "ps_with_auth",
        lambda: _sorted(client.get_partitions_ps_with_auth("calls", "p", ["a", ""], -1, "me", [])),
    )
    told("with_auth", lambda: _sorted(client.get_partitions_with_auth("calls", "p", -1, "me", [])))
    with_auth = ttypes.GetPartitionsPsWithAuthRequest(dbName="calls", tblName="p", partVals=["a", ""])
    told("ps_with_auth_req", lambda: _sorted(client.get_partitions_ps_with_auth_req(with_auth).partitions))
    values = ttypes.PartitionValuesRequest(
        dbName="calls", tblName="p", partitionKeys=[ttypes.FieldSchema("d", "string", "")], applyDistinct=True
    )
    told(
        "get_partition_values",
        lambda: sorted(one.row for one in client.get_partition_values(values).partitionValues),
    )
    ask("partition_name_to_vals", "d=a%2Fb/n=1")
    ask("partition_name_to_spec", "d=a/n=1")
    for texts in (["a/b"], ["a\tb"], []):
        for throws in (False, True):
            ask("partition_name_has_valid_characters", texts, throws)
    told(
        "get_partitions_pspec",
        lambda: sum(
            len((one.sharedSDPartitionSpec or one.partitionList).partitions)
            for one in client.get_partitions_pspec("calls", "p", -1)
        ),
    )
    projected = ttypes.GetPartitionsRequest(
        dbName="calls",
        tblName="p",
        projectionSpec=ttypes.GetProjectionsSpec(fieldList=["values"]),
        filterSpec=ttypes.GetPartitionsFilterSpec(),
    )
    told("get_partitions_with_specs", lambda: len(client.get_partitions_with_specs(projected).partitionSpec))
    request = ttypes.PartitionsRequest(dbName="calls", tblName="p", maxParts=-1)
    told("get_partitions_req", lambda: _sorted(client.get_partitions_req(request).partitions))
    one = ttypes.GetPartitionRequest(dbName="calls", tblName="p", partVals=["a", "1"])
    told("get_partition_req", lambda: client.get_partition_req(one).partition.values)


def _filters(hive: Asking) -> None:
    client = hive.client
    for text in FILTERS:
        hive.told(
            f"filter [{text}]",
            lambda text=text: _sorted(client.get_partitions_by_filter("calls", "p", text, -1)),
        )
    for text in ("n = 1", "d like 'a.*'", "n in (1,2)", "zzz = 1"):
        hive.ask("get_num_partitions_by_filter", "calls", "p", text)
    hive.told("filter at most 1", lambda: len(client.get_partitions_by_filter("calls", "p", "n = 1", 1)))
    hive.told("filter at most 0", lambda: len(client.get_partitions_by_filter("calls", "p", "n = 1", 0)))
    hive.ask("get_partitions_by_filter", "calls", "plain", "a = 1", -1)
    hive.ask("get_partitions_by_filter", "calls", "nope", "a = 1", -1)


def _typed(hive: Asking) -> None:
    client = hive.client
    keys = (("dt", "date"), ("dbl", "double"), ("dc", "decimal(10,2)"), ("ts", "timestamp"), ("bi", "bigint"))
    client.create_table(table("typed", keys))
    first = partition("typed", "2026-01-01", "9", "9.50", "2026-01-01 00:00:00", "9")
    second = partition("typed", "2026-02-01", "10", "10.25", "2026-02-01 10:00:00", "10")
    null = partition("typed", NULL, NULL, NULL, NULL, NULL)
    client.add_partitions([first, second, null])
    for text in TYPED_FILTERS:
        hive.told(
            f"typed filter [{text}]",
            lambda text=text: sorted(
                one.values[0] for one in client.get_partitions_by_filter("calls", "typed", text, -1)
            ),
        )


def _alter(hive: Asking) -> None:
    ask, told, client = hive.ask, hive.told, hive.client

    def alter() -> object:
        found = client.get_partition("calls", "p", ["b", "2"])
        found.parameters.update(z="1")
        found.sd.location = f"{hive.outside}/moved"
        found.sd.serdeInfo.parameters.update(aa="1")
        client.alter_partition("calls", "p", found)
        return client.get_partition("calls", "p", ["b", "2"])

    told("alter_partition", alter)
    ask("alter_partition", "calls", "p", partition("p", "nope", "1"), name="alter_partition nope")
    some = [partition("p", "a", "1", parameters={"at": "1"}), partition("p", "nope", "1")]
    ask("alter_partitions", "calls", "p", some, name="alter_partitions one of which is not there")
    told(
        "alter_partitions is atomic",
        lambda: client.get_partition("calls", "p", ["a", "1"]).parameters.get("at"),
    )
    context = ttypes.EnvironmentContext({})
    known = client.get_partition("calls", "p", ["b", "1"])
    ask(
        "alter_partition_with_environment_context",
        "calls",
        "p",
        known,
        context,
        name="alter_partition with env",
    )

    def renamed(name: str, old: list[str], new: list[str]) -> None:
        def rename() -> object:
            found = client.get_partition("calls", "p", old)
            found.values = new
            client.rename_partition("calls", "p", old, found)
            return client.get_partition("calls", "p", new).values

        told(f"rename_partition {name}", rename)

    renamed("b/2 to b/22", ["b", "2"], ["b", "22"])
    renamed("to one that is there", ["b", "22"], ["b", "1"])
    renamed("nope", ["nope", "1"], ["b", "3"])
    found = client.get_partition("calls", "p", ["b", "22"])
    found.values = ["b", "2"]
    request = ttypes.RenamePartitionRequest(
        catName="hive", dbName="calls", tableName="p", partVals=["b", "22"], newPart=found
    )
    ask("rename_partition_req", request, name="rename_partition_req")
    ask("truncate_table", "calls", "p", ["d=a/n=1"])
    ask("truncate_table", "calls", "p", ["d=nope/n=1"])


def _drop(hive: Asking) -> None:
    ask, told, client = hive.ask, hive.told, hive.client
    ask("drop_partition", "calls", "p", ["c", "1"], True)
    ask("drop_partition", "calls", "p", ["c", "1"], True, name="drop_partition twice")
    ask("drop_partition", "calls", "p", ["c"], True)
    ask("drop_partition_by_name", "calls", "p", "d=q%27q/n=20", True)
    for if_exists in (True, False):
        request = ttypes.DropPartitionsRequest(
            dbName="calls",
            tblName="p",
            parts=ttypes.RequestPartsSpec(names=["d=own/n=1", "d=nope/n=1"]),
            deleteData=True,
            ifExists=if_exists,
        )
        told(
            f"drop_partitions_req ifExists={if_exists}",
            lambda request=request: _sorted(client.drop_partitions_req(request).partitions),
        )
    told("get_partition_names at the end", lambda: sorted(client.get_partition_names("calls", "p", -1)))


def _exchange(hive: Asking) -> None:
    client = hive.client
    for name in ("from", "to"):
        client.create_table(table(name, (("d", "string"),)))
    client.add_partition(partition("from", "1"))
    hive.told(
        "exchange_partition",
        lambda: client.exchange_partition({"d": "1"}, "calls", "from", "calls", "to").values,
    )
    hive.ask("get_partition_names", "calls", "from", -1)
    hive.ask("get_partition", "calls", "to", ["1"])
    hive.ask("exchange_partitions", {"d": "9"}, "calls", "from", "calls", "to")
