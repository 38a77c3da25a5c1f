"""The methods about roles and privileges, answered as by a Hive without any grant.

Like Hive's default authorization, this metastore checks nothing: an authenticated user may do everything.
Trino still asks for roles and privileges, and shows the answers.
"""

from __future__ import annotations

from typing import Any

from airflow_provider.metastore.thrift.protocol import hive

# Every Hive has these two, and every user is in the second (HiveMetaStore.createDefaultRoles).
_ADMIN, _PUBLIC = "admin", "public"


class PrivilegeHandler:
    """Methods of ``ThriftHiveMetastore`` by their names in the interface definition.

    It has no methods to grant and revoke: a client that calls one gets an error.
    """

    def get_role_names(self) -> list[str]:
        return [_ADMIN, _PUBLIC]

    def list_roles(self, principal: str, kind: Any) -> list[Any]:
        return [hive.Role(_PUBLIC, 0, _PUBLIC)] if kind == hive.PrincipalType.USER else []

    def get_role_grants_for_principal(self, request: Any) -> Any:
        granted = []
        if request.principal_type == hive.PrincipalType.USER:
            user = hive.PrincipalType.USER
            granted = [hive.RolePrincipalGrant(_PUBLIC, request.principal_name, user, False, 0)]
        return hive.GetRoleGrantsForPrincipalResponse(principalGrants=granted)

    def get_principals_in_role(self, request: Any) -> Any:
        return hive.GetPrincipalsInRoleResponse(principalGrants=[])

    def get_privilege_set(self, place: Any, user: str, groups: list[str] | None) -> Any:
        if place.objectType == hive.HiveObjectType.GLOBAL:
            return hive.PrincipalPrivilegeSet(groupPrivileges={})
        return hive.PrincipalPrivilegeSet(
            userPrivileges={user: []},
            groupPrivileges={group: [] for group in groups or []},
            rolePrivileges={_PUBLIC: []},
        )

    def list_privileges(self, principal: str | None, kind: Any, place: Any) -> list[Any]:
        return []
