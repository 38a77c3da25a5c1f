// The service; see hive_catalog.thrift for what all of these files are.

// --- the service

service ThriftHiveMetastore extends FurtherMethods {
  string get_config_value(1: string name, 2: string defaultValue) throws (1: ConfigValSecurityException o1)
  string getMetaConf(1: string key) throws (1: MetaException o1)
  void flushCache()
  list<string> set_ugi(1: string user_name, 2: list<string> group_names) throws (1: MetaException o1)

  list<string> get_databases(1: string pattern) throws (1: MetaException o1)
  list<string> get_all_databases() throws (1: MetaException o1)
  Database get_database(1: string name) throws (1: NoSuchObjectException o1, 2: MetaException o2)

  // Not in Hive since 4.0.1, and what Spark and pyiceberg still call.
  Table get_table(1: string dbname, 2: string tbl_name)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  GetTableResult get_table_req(1: GetTableRequest req)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)

  Database get_database_req(1: GetDatabaseRequest request)                           // not in 2.3
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  void create_database(1: Database database)
    throws (1: AlreadyExistsException o1, 2: InvalidObjectException o2, 3: MetaException o3)
  void create_database_req(1: CreateDatabaseRequest createDatabaseRequest)           // not in 2.3
    throws (1: AlreadyExistsException o1, 2: InvalidObjectException o2, 3: MetaException o3)
  void drop_database(1: string name, 2: bool deleteData, 3: bool cascade)
    throws (1: NoSuchObjectException o1, 2: InvalidOperationException o2, 3: MetaException o3)
  void drop_database_req(1: DropDatabaseRequest req)                                 // not in 2.3
    throws (1: NoSuchObjectException o1, 2: InvalidOperationException o2, 3: MetaException o3)
  void alter_database(1: string dbname, 2: Database db)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  void alter_database_req(1: AlterDatabaseRequest alterDbReq)                        // not in 2.3
    throws (1: MetaException o1, 2: NoSuchObjectException o2)

  void create_table(1: Table tbl)
    throws (1: AlreadyExistsException o1, 2: InvalidObjectException o2, 3: MetaException o3, 4: NoSuchObjectException o4)
  void create_table_with_environment_context(1: Table tbl, 2: EnvironmentContext environment_context)
    throws (1: AlreadyExistsException o1, 2: InvalidObjectException o2, 3: MetaException o3, 4: NoSuchObjectException o4)
  void create_table_req(1: CreateTableRequest request)                               // not in 2.3
    throws (1: AlreadyExistsException o1, 2: InvalidObjectException o2, 3: MetaException o3, 4: NoSuchObjectException o4)
  void drop_table(1: string dbname, 2: string name, 3: bool deleteData)
    throws (1: NoSuchObjectException o1, 2: MetaException o3)
  void drop_table_with_environment_context(
    1: string dbname, 2: string name, 3: bool deleteData, 4: EnvironmentContext environment_context)
    throws (1: NoSuchObjectException o1, 2: MetaException o3)
  void drop_table_req(1: DropTableRequest dropTableReq)                              // not in 2.3
    throws (1: NoSuchObjectException o1, 2: MetaException o3)
  list<string> get_tables(1: string db_name, 2: string pattern) throws (1: MetaException o1)
  list<string> get_tables_by_type(1: string db_name, 2: string pattern, 3: string tableType)
    throws (1: MetaException o1)
  list<string> get_all_tables(1: string db_name) throws (1: MetaException o1)
  list<TableMeta> get_table_meta(1: string db_patterns, 2: string tbl_patterns, 3: list<string> tbl_types)
    throws (1: MetaException o1)
  // Not in Hive since 4.0.1.
  list<Table> get_table_objects_by_name(1: string dbname, 2: list<string> tbl_names)
  GetTablesResult get_table_objects_by_name_req(1: GetTablesRequest req)
    throws (1: MetaException o1, 2: InvalidOperationException o2, 3: UnknownDBException o3)
  void alter_table(1: string dbname, 2: string tbl_name, 3: Table new_tbl)
    throws (1: InvalidOperationException o1, 2: MetaException o2)
  void alter_table_with_environment_context(
    1: string dbname, 2: string tbl_name, 3: Table new_tbl, 4: EnvironmentContext environment_context)
    throws (1: InvalidOperationException o1, 2: MetaException o2)
  void alter_table_with_cascade(1: string dbname, 2: string tbl_name, 3: Table new_tbl, 4: bool cascade)
    throws (1: InvalidOperationException o1, 2: MetaException o2)
  AlterTableResponse alter_table_req(1: AlterTableRequest req)                       // not in 2.3
    throws (1: InvalidOperationException o1, 2: MetaException o2)
  list<FieldSchema> get_fields(1: string db_name, 2: string table_name)
    throws (1: MetaException o1, 2: UnknownTableException o2, 3: UnknownDBException o3)
  list<FieldSchema> get_schema(1: string db_name, 2: string table_name)
    throws (1: MetaException o1, 2: UnknownTableException o2, 3: UnknownDBException o3)
  GetFieldsResponse get_fields_req(1: GetFieldsRequest req)                          // not in 2.3
    throws (1: MetaException o1, 2: UnknownTableException o2, 3: UnknownDBException o3)
  GetSchemaResponse get_schema_req(1: GetSchemaRequest req)                          // not in 2.3
    throws (1: MetaException o1, 2: UnknownTableException o2, 3: UnknownDBException o3)

  Partition add_partition(1: Partition new_part)
    throws (1: InvalidObjectException o1, 2: AlreadyExistsException o2, 3: MetaException o3)
  Partition add_partition_with_environment_context(
    1: Partition new_part, 2: EnvironmentContext environment_context)
    throws (1: InvalidObjectException o1, 2: AlreadyExistsException o2, 3: MetaException o3)
  i32 add_partitions(1: list<Partition> new_parts)
    throws (1: InvalidObjectException o1, 2: AlreadyExistsException o2, 3: MetaException o3)
  AddPartitionsResult add_partitions_req(1: AddPartitionsRequest request)
    throws (1: InvalidObjectException o1, 2: AlreadyExistsException o2, 3: MetaException o3)
  bool drop_partition(1: string db_name, 2: string tbl_name, 3: list<string> part_vals, 4: bool deleteData)
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  bool drop_partition_with_environment_context(
    1: string db_name, 2: string tbl_name, 3: list<string> part_vals, 4: bool deleteData,
    5: EnvironmentContext environment_context)
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  bool drop_partition_by_name(
    1: string db_name, 2: string tbl_name, 3: string part_name, 4: bool deleteData)
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  DropPartitionsResult drop_partitions_req(1: DropPartitionsRequest req)
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  Partition get_partition(1: string db_name, 2: string tbl_name, 3: list<string> part_vals)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  Partition get_partition_with_auth(
    1: string db_name, 2: string tbl_name, 3: list<string> part_vals, 4: string user_name,
    5: list<string> group_names)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  Partition get_partition_by_name(1: string db_name, 2: string tbl_name, 3: string part_name)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  GetPartitionResponse get_partition_req(1: GetPartitionRequest req)                 // not in 2.3
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  list<Partition> get_partitions(1: string db_name, 2: string tbl_name, 3: i16 max_parts = -1)
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  PartitionsResponse get_partitions_req(1: PartitionsRequest req)                    // not in 2.3
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  list<string> get_partition_names(1: string db_name, 2: string tbl_name, 3: i16 max_parts = -1)
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  list<string> fetch_partition_names_req(1: PartitionsRequest partitionReq)          // not in 2.3
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  list<Partition> get_partitions_ps(
    1: string db_name, 2: string tbl_name, 3: list<string> part_vals, 4: i16 max_parts = -1)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  list<Partition> get_partitions_ps_with_auth(
    1: string db_name, 2: string tbl_name, 3: list<string> part_vals, 4: i16 max_parts = -1,
    5: string user_name, 6: list<string> group_names)
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  GetPartitionsPsWithAuthResponse get_partitions_ps_with_auth_req(                  // not in 2.3
    1: GetPartitionsPsWithAuthRequest req)
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  list<string> get_partition_names_ps(
    1: string db_name, 2: string tbl_name, 3: list<string> part_vals, 4: i16 max_parts = -1)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  GetPartitionNamesPsResponse get_partition_names_ps_req(                           // not in 2.3
    1: GetPartitionNamesPsRequest req)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  list<Partition> get_partitions_by_names(1: string db_name, 2: string tbl_name, 3: list<string> names)
    throws (1: MetaException o1, 2: NoSuchObjectException o2, 3: InvalidObjectException o3)
  GetPartitionsByNamesResult get_partitions_by_names_req(                           // not in 2.3
    1: GetPartitionsByNamesRequest req)
    throws (1: MetaException o1, 2: NoSuchObjectException o2, 3: InvalidObjectException o3)
  list<Partition> get_partitions_by_filter(
    1: string db_name, 2: string tbl_name, 3: string filter, 4: i16 max_parts = -1)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  list<Partition> get_partitions_by_filter_req(1: GetPartitionsByFilterRequest req)  // not in 2.3
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  i32 get_num_partitions_by_filter(1: string db_name, 2: string tbl_name, 3: string filter)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  PartitionsByExprResult get_partitions_by_expr(1: PartitionsByExprRequest req)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  void alter_partition(1: string db_name, 2: string tbl_name, 3: Partition new_part)
    throws (1: InvalidOperationException o1, 2: MetaException o2)
  void alter_partitions(1: string db_name, 2: string tbl_name, 3: list<Partition> new_parts)
    throws (1: InvalidOperationException o1, 2: MetaException o2)
  void alter_partitions_with_environment_context(
    1: string db_name, 2: string tbl_name, 3: list<Partition> new_parts,
    4: EnvironmentContext environment_context)
    throws (1: InvalidOperationException o1, 2: MetaException o2)
  AlterPartitionsResponse alter_partitions_req(1: AlterPartitionsRequest req)        // not in 2.3
    throws (1: InvalidOperationException o1, 2: MetaException o2)
  void rename_partition(1: string db_name, 2: string tbl_name, 3: list<string> part_vals, 4: Partition new_part)
    throws (1: InvalidOperationException o1, 2: MetaException o2)
  RenamePartitionResponse rename_partition_req(1: RenamePartitionRequest req)        // not in 2.3
    throws (1: InvalidOperationException o1, 2: MetaException o2)

  bool update_table_column_statistics(1: ColumnStatistics stats_obj)
    throws (1: NoSuchObjectException o1, 2: InvalidObjectException o2, 3: MetaException o3, 4: InvalidInputException o4)
  bool update_partition_column_statistics(1: ColumnStatistics stats_obj)
    throws (1: NoSuchObjectException o1, 2: InvalidObjectException o2, 3: MetaException o3, 4: InvalidInputException o4)
  SetPartitionsStatsResponse update_table_column_statistics_req(                    // not in 2.3
    1: SetPartitionsStatsRequest req)
    throws (1: NoSuchObjectException o1, 2: InvalidObjectException o2, 3: MetaException o3, 4: InvalidInputException o4)
  SetPartitionsStatsResponse update_partition_column_statistics_req(                // not in 2.3
    1: SetPartitionsStatsRequest req)
    throws (1: NoSuchObjectException o1, 2: InvalidObjectException o2, 3: MetaException o3, 4: InvalidInputException o4)
  bool set_aggr_stats_for(1: SetPartitionsStatsRequest request)
    throws (1: NoSuchObjectException o1, 2: InvalidObjectException o2, 3: MetaException o3, 4: InvalidInputException o4)
  ColumnStatistics get_table_column_statistics(1: string db_name, 2: string tbl_name, 3: string col_name)
    throws (1: NoSuchObjectException o1, 2: MetaException o2, 3: InvalidInputException o3, 4: InvalidObjectException o4)
  ColumnStatistics get_partition_column_statistics(
    1: string db_name, 2: string tbl_name, 3: string part_name, 4: string col_name)
    throws (1: NoSuchObjectException o1, 2: MetaException o2, 3: InvalidInputException o3, 4: InvalidObjectException o4)
  TableStatsResult get_table_statistics_req(1: TableStatsRequest request)
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  PartitionsStatsResult get_partitions_statistics_req(1: PartitionsStatsRequest request)
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  bool delete_table_column_statistics(
    1: string db_name, 2: string tbl_name, 3: string col_name, 4: string engine)     // engine: not in 2.3
    throws (1: NoSuchObjectException o1, 2: MetaException o2, 3: InvalidObjectException o3, 4: InvalidInputException o4)
  bool delete_partition_column_statistics(
    1: string db_name, 2: string tbl_name, 3: string part_name, 4: string col_name, 5: string engine)
    throws (1: NoSuchObjectException o1, 2: MetaException o2, 3: InvalidObjectException o3, 4: InvalidInputException o4)

  list<string> get_role_names() throws (1: MetaException o1)
  list<Role> list_roles(1: string principal_name, 2: PrincipalType principal_type) throws (1: MetaException o1)
  GetRoleGrantsForPrincipalResponse get_role_grants_for_principal(
    1: GetRoleGrantsForPrincipalRequest request) throws (1: MetaException o1)
  GetPrincipalsInRoleResponse get_principals_in_role(1: GetPrincipalsInRoleRequest request)
    throws (1: MetaException o1)
  PrincipalPrivilegeSet get_privilege_set(
    1: HiveObjectRef hiveObject, 2: string user_name, 3: list<string> group_names) throws (1: MetaException o1)
  list<HiveObjectPrivilege> list_privileges(
    1: string principal_name, 2: PrincipalType principal_type, 3: HiveObjectRef hiveObject)
    throws (1: MetaException o1)

  list<string> get_functions(1: string dbName, 2: string pattern) throws (1: MetaException o1)
  Function get_function(1: string dbName, 2: string funcName)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  GetAllFunctionsResponse get_all_functions() throws (1: MetaException o1)
  void create_function(1: Function func)
    throws (1: AlreadyExistsException o1, 2: InvalidObjectException o2, 3: MetaException o3, 4: NoSuchObjectException o4)
  void drop_function(1: string dbName, 2: string funcName)
    throws (1: NoSuchObjectException o1, 2: MetaException o3)

  GetOpenTxnsResponse get_open_txns()
  GetOpenTxnsInfoResponse get_open_txns_info()
  GetOpenTxnsResponse get_open_txns_req(1: GetOpenTxnsRequest getOpenTxnsRequest)     // not in 2.3
  OpenTxnsResponse open_txns(1: OpenTxnRequest rqst)
  void abort_txn(1: AbortTxnRequest rqst) throws (1: NoSuchTxnException o1)
  void abort_txns(1: AbortTxnsRequest rqst) throws (1: NoSuchTxnException o1)
  void commit_txn(1: CommitTxnRequest rqst)
    throws (1: NoSuchTxnException o1, 2: TxnAbortedException o2)
  HeartbeatTxnRangeResponse heartbeat_txn_range(1: HeartbeatTxnRangeRequest txns)
  void add_dynamic_partitions(1: AddDynamicPartitions rqst)
    throws (1: NoSuchTxnException o1, 2: TxnAbortedException o2)

  GetValidWriteIdsResponse get_valid_write_ids(1: GetValidWriteIdsRequest rqst)       // not in 2.3
    throws (1: NoSuchTxnException o1, 2: MetaException o2)
  AllocateTableWriteIdsResponse allocate_table_write_ids(1: AllocateTableWriteIdsRequest rqst)  // not in 2.3
    throws (1: NoSuchTxnException o1, 2: TxnAbortedException o2, 3: MetaException o3)
  MaxAllocatedTableWriteIdResponse get_max_allocated_table_write_id(                  // not in 2.3
    1: MaxAllocatedTableWriteIdRequest rqst) throws (1: MetaException o1)

  void repl_tbl_writeid_state(1: ReplTblWriteIdStateRequest rqst)                     // not in 2.3
  void seed_write_id(1: SeedTableWriteIdsRequest rqst) throws (1: MetaException o1)   // not in 2.3
  void seed_txn_id(1: SeedTxnIdRequest rqst) throws (1: MetaException o1)             // not in 2.3

  LockResponse lock(1: LockRequest rqst) throws (1: NoSuchTxnException o1, 2: TxnAbortedException o2)
  LockResponse check_lock(1: CheckLockRequest rqst)
    throws (1: NoSuchTxnException o1, 2: TxnAbortedException o2, 3: NoSuchLockException o3)
  void unlock(1: UnlockRequest rqst) throws (1: NoSuchLockException o1, 2: TxnOpenException o2)
  ShowLocksResponse show_locks(1: ShowLocksRequest rqst)
  void heartbeat(1: HeartbeatRequest ids)
    throws (1: NoSuchLockException o1, 2: NoSuchTxnException o2, 3: TxnAbortedException o3)

  NotificationEventResponse get_next_notification(1: NotificationEventRequest rqst)
  CurrentNotificationEventId get_current_notificationEventId()
  NotificationEventsCountResponse get_notification_events_count(                      // not in 2.3
    1: NotificationEventsCountRequest rqst)
  FireEventResponse fire_listener_event(1: FireEventRequest rqst)
  WriteNotificationLogResponse add_write_notification_log(                            // not in 2.3
    1: WriteNotificationLogRequest rqst)
  WriteNotificationLogBatchResponse add_write_notification_log_in_batch(              // not in 2.3
    1: WriteNotificationLogBatchRequest rqst)
  list<WriteEventInfo> get_all_write_event_info(1: GetAllWriteEventInfoRequest request)  // not in 2.3
    throws (1: MetaException o1)

  // --- of this package, not Hive's

  // commit_txn, and what becomes visible with it, in one step.
  CommitChangesResponse commit_changes(1: CommitChangesRequest rqst)
    throws (1: NoSuchTxnException o1, 2: TxnAbortedException o2, 3: NoSuchObjectException o3, 4: MetaException o4)
  ReadSnapshot get_read_snapshot(1: ReadSnapshotRequest rqst)
    throws (1: NoSuchTxnException o1, 2: NoSuchObjectException o2)
  ReadPartitionsResponse read_partitions(1: ReadPartitionsRequest rqst)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  // What recovery has to know of a transaction.
  void request_commit(1: i64 txnId) throws (1: NoSuchTxnException o1, 2: TxnAbortedException o2)
  TxnInfo get_txn(1: i64 txnId) throws (1: NoSuchTxnException o1)
  void record_table_write(1: TableWrite rqst)
    throws (1: NoSuchTxnException o1, 2: TxnAbortedException o2, 3: NoSuchObjectException o3, 4: MetaException o4)
  list<TableWrite> get_table_writes(1: i64 txnId)
  list<i64> get_timed_out_txns(1: double timeoutSeconds)
  EndTimedOutTxnResponse end_timed_out_txn(1: EndTimedOutTxnRequest rqst)
  // Who follows the notification log.
  list<LogConsumer> get_log_consumers()
  LogConsumer register_log_consumer(1: RegisterLogConsumerRequest rqst)
    throws (1: AlreadyExistsException o1, 2: MetaException o2)
  LogConsumer advance_log_consumer(1: MoveLogConsumerRequest rqst)
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  LogConsumer restart_log_consumer(1: MoveLogConsumerRequest rqst)
    throws (1: NoSuchObjectException o1, 2: MetaException o2)
  void unregister_log_consumer(1: string name) throws (1: NoSuchObjectException o1)
  // The state of databases right after one event, as zipped JSON.
  binary get_replication_state(1: ReplicationStateRequest rqst)
  // What a replicator asks of its target; arguments and answer are zipped JSON.
  binary serve_replicator(1: ReplicatorRequest rqst)
    throws (1: NoSuchObjectException o1, 2: NoSuchTxnException o2, 3: TxnAbortedException o3, 4: MetaException o4)
  // The last event that retention removed.
  i64 get_purged_event_id()
}
