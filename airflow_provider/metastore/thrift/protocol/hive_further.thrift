// Methods beside those that our own client calls: Hive's clients, Spark, Trino and Flink call them.
// ThriftHiveMetastore derives from this service only because one file for all would be too long.

// --- fb303, from which Hive's service derives

enum fb_status {
  DEAD = 0, STARTING = 1, ALIVE = 2, STOPPING = 3, STOPPED = 4, WARNING = 5
}

service FacebookService {
  string getName()
  string getVersion()
  fb_status getStatus()
  i64 aliveSince()
  // Hive's Java client sends it before it closes a connection; it stops nothing.
  oneway void shutdown()
}

// --- partitions

struct AppendPartitionsRequest {                   // not in 2.3
  1: optional string catalogName
  2: required string dbName
  3: required string tableName
  4: optional string name
  5: optional list<string> partVals
  6: optional EnvironmentContext environmentContext
}

struct DropPartitionRequest {                      // not in 2.3
  1: optional string catName
  2: required string dbName
  3: required string tblName
  4: optional string partName
  5: optional list<string> partVals
  6: optional bool deleteData
  7: optional EnvironmentContext environmentContext
}

struct PartitionValuesRequest {
  1: required string dbName
  2: required string tblName
  3: required list<FieldSchema> partitionKeys
  4: optional bool applyDistinct = true
  5: optional string filter
  6: optional list<FieldSchema> partitionOrder
  7: optional bool ascending = true
  8: optional i64 maxParts = -1
  9: optional string catName                       // not in 2.3
  10: optional string validWriteIdList             // not in 2.3
}

struct PartitionValuesRow {
  1: required list<string> row
}

struct PartitionValuesResponse {
  1: required list<PartitionValuesRow> partitionValues
}

struct PartitionWithoutSD {
  1: list<string> values
  2: i32 createTime
  3: i32 lastAccessTime
  4: string relativePath                           // below the location of the storage that they share
  5: map<string, string> parameters
  6: optional PrincipalPrivilegeSet privileges
}

struct PartitionSpecWithSharedSD {
  1: list<PartitionWithoutSD> partitions
  2: StorageDescriptor sd
}

struct PartitionListComposingSpec {
  1: list<Partition> partitions
}

struct PartitionSpec {
  1: string dbName
  2: string tableName
  3: string rootPath
  4: optional PartitionSpecWithSharedSD sharedSDPartitionSpec
  5: optional PartitionListComposingSpec partitionList
  6: optional string catName                       // not in 2.3
  7: optional i64 writeId = -1                     // not in 2.3
  8: optional bool isStatsCompliant                // not in 2.3
}

struct PartitionsSpecByExprResult {                // not in 2.3
  1: required list<PartitionSpec> partitionsSpec
  2: required bool hasUnknownPartitions
}

enum PartitionFilterMode { BY_NAMES, BY_VALUES, BY_EXPR }

struct GetPartitionsFilterSpec {                   // not in 2.3
  7: optional PartitionFilterMode filterMode
  8: optional list<string> filters
}

struct GetPartitionsRequest {                      // not in 2.3
  1: optional string catName
  2: string dbName
  3: string tblName
  4: optional bool withAuth
  5: optional string user
  6: optional list<string> groupNames
  7: GetProjectionsSpec projectionSpec
  8: GetPartitionsFilterSpec filterSpec
  9: optional list<string> processorCapabilities
  10: optional string processorIdentifier
  11: optional string validWriteIdList
}

struct GetPartitionsResponse {                     // not in 2.3
  1: list<PartitionSpec> partitionSpec
}

// --- tables, catalogs, statistics

struct TruncateTableRequest {                      // not in 2.3
  1: required string dbName
  2: required string tableName
  3: optional list<string> partNames
  4: optional i64 writeId = -1
  5: optional string validWriteIdList
  6: optional EnvironmentContext environmentContext
}

struct TruncateTableResponse {
}

struct GetTablesExtRequest {                       // not in 2.3
  1: required string catalog
  2: required string database
  3: required string tableNamePattern
  4: required i32 requestedFields
  5: optional i32 limit
  6: optional list<string> processorCapabilities
  7: optional string processorIdentifier
}

struct ExtendedTableInfo {                         // not in 2.3
  1: required string tblName
  2: optional i32 accessType
  3: optional list<string> requiredReadCapabilities
  4: optional list<string> requiredWriteCapabilities
}

struct Catalog {                                   // not in 2.3
  1: string name
  2: optional string description
  3: string locationUri
  4: optional i32 createTime
}

struct GetCatalogsResponse {
  1: list<string> names
}

struct GetCatalogRequest {
  1: string name
}

struct GetCatalogResponse {
  1: Catalog catalog
}

struct AggrStats {
  1: required list<ColumnStatisticsObj> colStats
  2: required i64 partsFound
  3: optional bool isStatsCompliant                // not in 2.3
}

// --- of what is not kept: requests that are not read, and elements that are never sent, have no fields here

struct Unsent {
}

struct ShowCompactResponse {
  1: required list<Unsent> compacts
}

struct CompactionResponse {
  1: required i64 id
  2: required string state
  3: required bool accepted
  4: optional string errormessage                  // not in 2.3
}

struct OptionalCompactionInfoStruct {
}

struct AbortCompactResponse {
  1: required map<i64, Unsent> abortedcompacts
}

struct GetLatestCommittedCompactionInfoResponse {
  1: required list<Unsent> compactions
}

struct WMGetAllResourcePlanResponse {
  1: optional list<Unsent> resourcePlans
}

struct WMGetActiveResourcePlanResponse {
}

struct FindSchemasByColsResp {
  1: list<Unsent> schemaVersions
}

struct ScheduledQueryPollResponse {
}

struct ReplicationMetricList {
  1: required list<Unsent> replicationMetricList
}

struct CmRecycleResponse {
}

service FurtherMethods extends FacebookService {
  void setMetaConf(1: string key, 2: string value) throws (1: MetaException o1)
  GetCatalogsResponse get_catalogs() throws (1: MetaException o1)                     // not in 2.3
  GetCatalogResponse get_catalog(1: GetCatalogRequest catName)                        // not in 2.3
    throws (1: NoSuchObjectException o1, 2: MetaException o2)

  list<string> get_table_names_by_filter(1: string dbname, 2: string filter, 3: i16 max_tables = -1)
    throws (1: MetaException o1, 2: InvalidOperationException o2, 3: UnknownDBException o3)
  list<ExtendedTableInfo> get_tables_ext(1: GetTablesExtRequest req) throws (1: MetaException o1)  // not in 2.3
  Table translate_table_dryrun(1: CreateTableRequest request)                         // not in 2.3
    throws (1: AlreadyExistsException o1, 2: InvalidObjectException o2, 3: MetaException o3, 4: NoSuchObjectException o4)
  void truncate_table(1: string dbName, 2: string tableName, 3: list<string> partNames)
    throws (1: MetaException o1)
  TruncateTableResponse truncate_table_req(1: TruncateTableRequest req) throws (1: MetaException o1)  // not in 2.3
  list<FieldSchema> get_fields_with_environment_context(
    1: string db_name, 2: string table_name, 3: EnvironmentContext environment_context)
    throws (1: MetaException o1, 2: UnknownTableException o2, 3: UnknownDBException o3)
  list<FieldSchema> get_schema_with_environment_context(
    1: string db_name, 2: string table_name, 3: EnvironmentContext environment_context)
    throws (1: MetaException o1, 2: UnknownTableException o2, 3: UnknownDBException o3)
  void alter_function(1: string dbName, 2: string funcName, 3: Function newFunc)
    throws (1: InvalidOperationException o1, 2: MetaException o2)

  void create_table_with_constraints(
    1: Table tbl, 2: list<SQLPrimaryKey> primaryKeys, 3: list<SQLForeignKey> foreignKeys,
    4: list<SQLUniqueConstraint> uniqueConstraints, 5: list<SQLNotNullConstraint> notNullConstraints,
    6: list<SQLDefaultConstraint> defaultConstraints, 7: list<SQLCheckConstraint> checkConstraints)
    throws (1: AlreadyExistsException o1, 2: InvalidObjectException o2, 3: MetaException o3, 4: NoSuchObjectException o4)
  void drop_constraint(1: DropConstraintRequest req)
    throws (1: NoSuchObjectException o1, 2: MetaException o3)
  void add_primary_key(1: AddPrimaryKeyRequest req)
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  void add_foreign_key(1: AddForeignKeyRequest req)
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  void add_unique_constraint(1: AddUniqueConstraintRequest req)
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  void add_not_null_constraint(1: AddNotNullConstraintRequest req)
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  void add_default_constraint(1: AddDefaultConstraintRequest req)
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  void add_check_constraint(1: AddCheckConstraintRequest req)
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  PrimaryKeysResponse get_primary_keys(1: PrimaryKeysRequest request)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  ForeignKeysResponse get_foreign_keys(1: ForeignKeysRequest request)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  UniqueConstraintsResponse get_unique_constraints(1: UniqueConstraintsRequest request)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  NotNullConstraintsResponse get_not_null_constraints(1: NotNullConstraintsRequest request)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  DefaultConstraintsResponse get_default_constraints(1: DefaultConstraintsRequest request)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  CheckConstraintsResponse get_check_constraints(1: CheckConstraintsRequest request)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  AllTableConstraintsResponse get_all_table_constraints(1: AllTableConstraintsRequest request)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)

  string get_metastore_db_uuid() throws (1: MetaException o1)                         // not in 2.3

  Partition append_partition(1: string db_name, 2: string tbl_name, 3: list<string> part_vals)
    throws (1: InvalidObjectException o1, 2: AlreadyExistsException o2, 3: MetaException o3)
  Partition append_partition_with_environment_context(
    1: string db_name, 2: string tbl_name, 3: list<string> part_vals, 4: EnvironmentContext environment_context)
    throws (1: InvalidObjectException o1, 2: AlreadyExistsException o2, 3: MetaException o3)
  Partition append_partition_req(1: AppendPartitionsRequest appendPartitionsReq)      // not in 2.3
    throws (1: InvalidObjectException o1, 2: AlreadyExistsException o2, 3: MetaException o3)
  Partition append_partition_by_name(1: string db_name, 2: string tbl_name, 3: string part_name)
    throws (1: InvalidObjectException o1, 2: AlreadyExistsException o2, 3: MetaException o3)
  Partition append_partition_by_name_with_environment_context(
    1: string db_name, 2: string tbl_name, 3: string part_name, 4: EnvironmentContext environment_context)
    throws (1: InvalidObjectException o1, 2: AlreadyExistsException o2, 3: MetaException o3)
  i32 add_partitions_pspec(1: list<PartitionSpec> new_parts)
    throws (1: InvalidObjectException o1, 2: AlreadyExistsException o2, 3: MetaException o3)
  bool drop_partition_req(1: DropPartitionRequest dropPartitionReq)                   // not in 2.3
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  bool drop_partition_by_name_with_environment_context(
    1: string db_name, 2: string tbl_name, 3: string part_name, 4: bool deleteData,
    5: EnvironmentContext environment_context)
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  void alter_partition_with_environment_context(
    1: string db_name, 2: string tbl_name, 3: Partition new_part, 4: EnvironmentContext environment_context)
    throws (1: InvalidOperationException o1, 2: MetaException o2)
  Partition exchange_partition(
    1: map<string, string> partitionSpecs, 2: string source_db, 3: string source_table_name,
    4: string dest_db, 5: string dest_table_name)
    throws (1: MetaException o1, 2: NoSuchObjectException o2, 3: InvalidObjectException o3, 4: InvalidInputException o4)
  list<Partition> exchange_partitions(
    1: map<string, string> partitionSpecs, 2: string source_db, 3: string source_table_name,
    4: string dest_db, 5: string dest_table_name)
    throws (1: MetaException o1, 2: NoSuchObjectException o2, 3: InvalidObjectException o3, 4: InvalidInputException o4)

  list<Partition> get_partitions_with_auth(
    1: string db_name, 2: string tbl_name, 3: i16 max_parts = -1, 4: string user_name, 5: list<string> group_names)
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  list<PartitionSpec> get_partitions_pspec(1: string db_name, 2: string tbl_name, 3: i32 max_parts = -1)
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  list<PartitionSpec> get_part_specs_by_filter(
    1: string db_name, 2: string tbl_name, 3: string filter, 4: i32 max_parts = -1)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  PartitionsSpecByExprResult get_partitions_spec_by_expr(1: PartitionsByExprRequest req)  // not in 2.3
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  GetPartitionsResponse get_partitions_with_specs(1: GetPartitionsRequest request)    // not in 2.3
    throws (1: MetaException o1)
  list<string> get_partition_names_req(1: PartitionsByExprRequest req)                // not in 2.3
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  PartitionValuesResponse get_partition_values(1: PartitionValuesRequest request)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  list<string> partition_name_to_vals(1: string part_name) throws (1: MetaException o1)
  map<string, string> partition_name_to_spec(1: string part_name) throws (1: MetaException o1)
  bool partition_name_has_valid_characters(1: list<string> part_vals, 2: bool throw_exception)
    throws (1: MetaException o1)

  AggrStats get_aggr_stats_for(1: PartitionsStatsRequest request)
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  i64 get_latest_txnid_in_conflict(1: i64 txnId) throws (1: MetaException o1)         // not in 2.3
  void add_write_ids_to_min_history(1: i64 txnId, 2: map<string, i64> writeIds)       // not in 2.3
    throws (1: MetaException o2)

  // --- of what is not kept

  CompactionResponse compact2()
  void compact()
  ShowCompactResponse show_compact()
  AbortCompactResponse abort_Compactions()
  OptionalCompactionInfoStruct find_next_compact() throws (1: MetaException o1)
  OptionalCompactionInfoStruct find_next_compact2() throws (1: MetaException o1)
  GetLatestCommittedCompactionInfoResponse get_latest_committed_compaction_info()
  void update_transaction_statistics() throws (1: MetaException o1)

  list<string> get_materialized_views_for_rewriting()
    throws (1: MetaException o1, 2: InvalidOperationException o2, 3: UnknownDBException o3)
  list<Unsent> get_all_materialized_view_objects_for_rewriting() throws (1: MetaException o1)
  list<Unsent> get_runtime_stats() throws (1: MetaException o1)
  void add_runtime_stats() throws (1: MetaException o1)
  list<string> get_dataconnectors() throws (1: MetaException o1)
  Unsent get_dataconnector_req() throws (1: NoSuchObjectException o1, 2: MetaException o2)
  list<string> get_all_stored_procedures() throws (1: MetaException o1)
  Unsent get_stored_procedure() throws (1: MetaException o1, 2: NoSuchObjectException o2)
  list<string> get_all_packages() throws (1: MetaException o1)
  Unsent find_package() throws (1: MetaException o1, 2: NoSuchObjectException o2)
  ScheduledQueryPollResponse scheduled_query_poll() throws (1: MetaException o1)
  Unsent get_scheduled_query() throws (1: MetaException o1, 2: NoSuchObjectException o2)
  ReplicationMetricList get_replication_metrics() throws (1: MetaException o1)
  void add_replication_metrics() throws (1: MetaException o1)
  CmRecycleResponse cm_recycle() throws (1: MetaException o1)

  WMGetAllResourcePlanResponse get_all_resource_plans() throws (1: MetaException o1)
  WMGetActiveResourcePlanResponse get_active_resource_plan() throws (1: MetaException o2)
  Unsent get_resource_plan() throws (1: NoSuchObjectException o1, 2: MetaException o2)
  Unsent get_triggers_for_resourceplan() throws (1: NoSuchObjectException o1, 2: MetaException o2)

  FindSchemasByColsResp get_schemas_by_cols() throws (1: MetaException o1)
  Unsent get_ischema() throws (1: NoSuchObjectException o1, 2: MetaException o2)
  Unsent get_schema_version() throws (1: NoSuchObjectException o1, 2: MetaException o2)
  Unsent get_schema_latest_version() throws (1: NoSuchObjectException o1, 2: MetaException o2)
  list<Unsent> get_schema_all_versions() throws (1: NoSuchObjectException o1, 2: MetaException o2)
  Unsent get_serde() throws (1: NoSuchObjectException o1, 2: MetaException o2)
  map<string, Unsent> get_type_all() throws (1: MetaException o2)
  Unsent get_type() throws (1: MetaException o1, 2: NoSuchObjectException o2)

  list<string> get_all_token_identifiers()
  list<string> get_master_keys()
  string get_delegation_token() throws (1: MetaException o1)
  i64 renew_delegation_token() throws (1: MetaException o1)
  void cancel_delegation_token() throws (1: MetaException o1)
  bool create_role() throws (1: MetaException o1)
  bool drop_role() throws (1: MetaException o1)
  bool grant_role() throws (1: MetaException o1)
  bool revoke_role() throws (1: MetaException o1)
  Unsent grant_revoke_role() throws (1: MetaException o1)
  bool grant_privileges() throws (1: MetaException o1)
  bool revoke_privileges() throws (1: MetaException o1)
  Unsent grant_revoke_privileges() throws (1: MetaException o1)
  Unsent refresh_privileges() throws (1: MetaException o1)
}
