"""Methods about objects that this metastore does not keep, answered as by a Hive without any of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_provider.exceptions import InvalidInputError, NoSuchObjectError
from airflow_provider.metastore.thrift.protocol import hive

_NO_COMPACTION = "this metastore compacts no Hive ACID tables; Hudi tables are compacted by table services"

# By method, the empty answer.
_EMPTY: dict[str, Any] = {
    "show_compact": hive.ShowCompactResponse(compacts=[]),
    "abort_Compactions": hive.AbortCompactResponse(abortedcompacts={}),
    "find_next_compact": hive.OptionalCompactionInfoStruct(),
    "find_next_compact2": hive.OptionalCompactionInfoStruct(),
    "get_latest_committed_compaction_info": hive.GetLatestCommittedCompactionInfoResponse(compactions=[]),
    # Hive's state of a compaction that it does not do; a client shows the text.
    "compact2": hive.CompactionResponse(
        id=0,
        state="refused",
        accepted=False,
        errormessage=_NO_COMPACTION,
    ),
    "get_materialized_views_for_rewriting": [],
    "get_all_materialized_view_objects_for_rewriting": [],
    "get_runtime_stats": [],
    "get_dataconnectors": [],
    "get_all_stored_procedures": [],
    "get_all_packages": [],
    "scheduled_query_poll": hive.ScheduledQueryPollResponse(),
    "get_replication_metrics": hive.ReplicationMetricList(replicationMetricList=[]),
    "cm_recycle": hive.CmRecycleResponse(),
    "get_all_resource_plans": hive.WMGetAllResourcePlanResponse(resourcePlans=[]),
    "get_active_resource_plan": hive.WMGetActiveResourcePlanResponse(),
    "get_schemas_by_cols": hive.FindSchemasByColsResp(schemaVersions=[]),
    "get_type_all": {},
    "get_all_token_identifiers": [],
    "get_master_keys": [],
}

# Methods that send what this metastore does not need: settings of a Hive, measurements, and the write ids
# that readers still see, for a cleaner of compacted Hive ACID files.
_TAKEN_NOTE_OF = frozenset(
    {
        "setMetaConf",
        "add_runtime_stats",
        "add_replication_metrics",
        "update_transaction_statistics",
        "add_write_ids_to_min_history",
    }
)

# Methods that look up one object, by the object's kind.
_ABSENT = {
    "get_dataconnector_req": "data connector",
    "get_stored_procedure": "stored procedure",
    "find_package": "package",
    "get_scheduled_query": "scheduled query",
    "get_resource_plan": "resource plan",
    "get_triggers_for_resourceplan": "resource plan",
    "get_ischema": "schema registry",
    "get_schema_version": "schema registry",
    "get_schema_latest_version": "schema registry",
    "get_schema_all_versions": "schema registry",
    "get_serde": "named serializer",
    "get_type": "named type",
}

_ROLES = "roles and privileges are not kept: whoever may connect may do everything"
_TOKENS = "delegation tokens are not issued: there is no Kerberos; connect by TLS and a password"
# Methods that would have to store an object, and the reason why they cannot.
_REFUSED = {
    "compact": _NO_COMPACTION,
    "get_delegation_token": _TOKENS,
    "renew_delegation_token": _TOKENS,
    "cancel_delegation_token": _TOKENS,
    "create_role": _ROLES,
    "drop_role": _ROLES,
    "grant_role": _ROLES,
    "revoke_role": _ROLES,
    "grant_revoke_role": _ROLES,
    "grant_privileges": _ROLES,
    "revoke_privileges": _ROLES,
    "grant_revoke_privileges": _ROLES,
    "refresh_privileges": _ROLES,
}


class EmptyAnswers:
    """Methods of ``ThriftHiveMetastore`` by their names in the interface definition; they ignore the request.

    Each is in one of the tables above.
    """

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in _EMPTY:
            return lambda *request: _EMPTY[name]
        if name in _TAKEN_NOTE_OF:
            return lambda *request: None
        if name in _ABSENT:
            return _raises(NoSuchObjectError(f"this metastore has no {_ABSENT[name]}, so none by that name"))
        if name in _REFUSED:
            return _raises(InvalidInputError(_REFUSED[name]))
        raise AttributeError(name)


def _raises(error: Exception) -> Callable[..., Any]:
    def refuse(*request: object) -> Any:
        raise error

    return refuse
