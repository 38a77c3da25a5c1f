// The part of the Hive Metastore's wire protocol that this package speaks, client and server.
//
// Methods, field ids, types and defaults are those of Hive 4.1's interface; `not in 2.3` marks what
// a Hive 2.3 server, and with it Spark's built-in client, does not know. What is left out of a
// struct is skipped when it is read, as Thrift wants it:
//   Table.creationMetadata (16) and Table.colStats (21), of materialized views and statistics;
//   SkewedInfo.skewedColValueLocationMaps (3), keyed by lists, which are no keys in Python.

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

// --- errors

exception MetaException { 1: string message }
exception UnknownTableException { 1: string message }
exception UnknownDBException { 1: string message }
exception AlreadyExistsException { 1: string message }
exception InvalidPartitionException { 1: string message }
exception UnknownPartitionException { 1: string message }
exception InvalidObjectException { 1: string message }
exception NoSuchObjectException { 1: string message }
exception InvalidOperationException { 1: string message }
exception ConfigValSecurityException { 1: string message }
exception InvalidInputException { 1: string message }
exception NoSuchTxnException { 1: string message }
exception TxnAbortedException { 1: string message }
exception TxnOpenException { 1: string message }
exception NoSuchLockException { 1: string message }

// --- catalog

enum PrincipalType { USER = 1, ROLE = 2, GROUP = 3 }
enum DatabaseType { NATIVE = 1, REMOTE = 2 }
enum SerdeType { HIVE = 1, SCHEMA_REGISTRY = 2 }
enum ClientCapability { TEST_CAPABILITY = 1, INSERT_ONLY_TABLES = 2 }

struct FieldSchema {
  1: string name
  2: string type
  3: string comment
}

struct EnvironmentContext {
  1: map<string, string> properties
}

struct PrivilegeGrantInfo {
  1: string privilege
  2: i32 createTime
  3: string grantor
  4: PrincipalType grantorType
  5: bool grantOption
}

struct PrincipalPrivilegeSet {
  1: map<string, list<PrivilegeGrantInfo>> userPrivileges
  2: map<string, list<PrivilegeGrantInfo>> groupPrivileges
  3: map<string, list<PrivilegeGrantInfo>> rolePrivileges
}

struct Database {
  1: string name
  2: string description
  3: string locationUri
  4: map<string, string> parameters
  5: optional PrincipalPrivilegeSet privileges
  6: optional string ownerName
  7: optional PrincipalType ownerType
  8: optional string catalogName              // not in 2.3
  9: optional i32 createTime                  // not in 2.3
  10: optional string managedLocationUri      // not in 2.3
  11: optional DatabaseType type              // not in 2.3
  12: optional string connector_name          // not in 2.3
  13: optional string remote_dbname           // not in 2.3
}

struct SerDeInfo {
  1: string name
  2: string serializationLib
  3: map<string, string> parameters
  4: optional string description              // not in 2.3
  5: optional string serializerClass          // not in 2.3
  6: optional string deserializerClass        // not in 2.3
  7: optional SerdeType serdeType             // not in 2.3
}

struct Order {
  1: string col
  2: i32 order
}

struct SkewedInfo {
  1: list<string> skewedColNames
  2: list<list<string>> skewedColValues
}

struct StorageDescriptor {
  1: list<FieldSchema> cols
  2: string location
  3: string inputFormat
  4: string outputFormat
  5: bool compressed
  6: i32 numBuckets
  7: SerDeInfo serdeInfo
  8: list<string> bucketCols
  9: list<Order> sortCols
  10: map<string, string> parameters
  11: optional SkewedInfo skewedInfo
  12: optional bool storedAsSubDirectories
}

struct FileMetadata {
  1: byte type = 1
  2: byte version = 1
  3: list<binary> data
}

struct ObjectDictionary {
  1: required map<string, list<binary>> values
}

struct Table {
  1: string tableName
  2: string dbName
  3: string owner
  4: i32 createTime
  5: i32 lastAccessTime
  6: i32 retention
  7: StorageDescriptor sd
  8: list<FieldSchema> partitionKeys
  9: map<string, string> parameters
  10: string viewOriginalText
  11: string viewExpandedText
  12: string tableType
  13: optional PrincipalPrivilegeSet privileges
  14: optional bool temporary = false
  15: optional bool rewriteEnabled
  17: optional string catName                               // not in 2.3
  18: optional PrincipalType ownerType = PrincipalType.USER // not in 2.3
  19: optional i64 writeId = -1                             // not in 2.3
  20: optional bool isStatsCompliant                        // not in 2.3
  22: optional byte accessType                              // not in 2.3
  23: optional list<string> requiredReadCapabilities        // not in 2.3
  24: optional list<string> requiredWriteCapabilities       // not in 2.3
  25: optional i64 id                                       // not in 2.3
  26: optional FileMetadata fileMetadata                    // not in 2.3
  27: optional ObjectDictionary dictionary                  // not in 2.3
  28: optional i64 txnId                                    // not in 2.3
}

struct ClientCapabilities {
  1: required list<ClientCapability> values
}

struct GetTableRequest {
  1: required string dbName
  2: required string tblName
  3: optional ClientCapabilities capabilities
  4: optional string catName                       // not in 2.3
  6: optional string validWriteIdList              // not in 2.3
  7: optional bool getColumnStats                  // not in 2.3
  8: optional list<string> processorCapabilities   // not in 2.3
  9: optional string processorIdentifier           // not in 2.3
  10: optional string engine = "hive"              // not in 2.3
  11: optional i64 id = -1                         // not in 2.3
}

struct GetTableResult {
  1: required Table table
  2: optional bool isStatsCompliant                // not in 2.3
}

// --- transactions

enum TxnState { COMMITTED = 1, ABORTED = 2, OPEN = 3 }

enum TxnType {
  DEFAULT = 0, REPL_CREATED = 1, READ_ONLY = 2, COMPACTION = 3, MATER_VIEW_REBUILD = 4,
  SOFT_DELETE = 5, REBALANCE_COMPACTION = 6
}

struct TxnInfo {
  1: required i64 id
  2: required TxnState state
  3: required string user
  4: required string hostname
  5: optional string agentInfo = "Unknown"
  6: optional i32 heartbeatCount = 0
  7: optional string metaInfo
  8: optional i64 startedTime
  9: optional i64 lastHeartbeatTime
}

struct GetOpenTxnsInfoResponse {
  1: required i64 txn_high_water_mark
  2: required list<TxnInfo> open_txns
}

// Hive 2.3 sends open_txns as a set: a reader of this struct gets None from it.
struct GetOpenTxnsResponse {
  1: required i64 txn_high_water_mark
  2: required list<i64> open_txns
  3: optional i64 min_open_txn
  4: required binary abortedBits                   // not in 2.3; bit i belongs to open_txns[i]
}

struct GetOpenTxnsRequest {
  1: optional list<TxnType> excludeTxnTypes
}

struct OpenTxnRequest {
  1: required i32 num_txns
  2: required string user
  3: required string hostname
  4: optional string agentInfo = "Unknown"
  5: optional string replPolicy                    // not in 2.3
  6: optional list<i64> replSrcTxnIds              // not in 2.3
  7: optional TxnType txn_type = TxnType.DEFAULT   // not in 2.3
}

struct OpenTxnsResponse {
  1: required list<i64> txn_ids
}

struct AbortTxnRequest {
  1: required i64 txnid
  2: optional string replPolicy                    // not in 2.3
  3: optional TxnType txn_type                     // not in 2.3
  4: optional i64 errorCode                        // not in 2.3
}

struct AbortTxnsRequest {
  1: required list<i64> txn_ids
  2: optional i64 errorCode                        // not in 2.3
}

struct WriteEventInfo {                            // not in 2.3
  1: required i64 writeId
  2: required string database
  3: required string table
  4: required string files
  5: optional string partition
  6: optional string tableObj
  7: optional string partitionObj
}

struct ReplLastIdInfo {                            // not in 2.3
  1: required string database
  2: required i64 lastReplId
  3: optional string table
  4: optional string catalog
  5: optional list<string> partitionList
}

struct CommitTxnKeyValue {                         // not in 2.3
  1: required i64 tableId
  2: required string key
  3: required string value
}

struct CommitTxnRequest {
  1: required i64 txnid
  2: optional string replPolicy                    // not in 2.3
  3: optional list<WriteEventInfo> writeEventInfos // not in 2.3
  4: optional ReplLastIdInfo replLastIdInfo        // not in 2.3
  5: optional CommitTxnKeyValue keyValue           // not in 2.3
  // With true, which is what an absent field means, the server looks for no write conflict.
  6: optional bool exclWriteEnabled = true         // not in 2.3
  7: optional TxnType txn_type                     // not in 2.3
}

// --- write ids, none of them in 2.3

struct GetValidWriteIdsRequest {
  1: required list<string> fullTableNames          // db.table
  2: optional string validTxnList
  3: optional i64 writeId
}

struct TableValidWriteIds {
  1: required string fullTableName
  2: required i64 writeIdHighWaterMark
  3: required list<i64> invalidWriteIds
  4: optional i64 minOpenWriteId
  5: required binary abortedBits                   // bit i belongs to invalidWriteIds[i]
}

struct GetValidWriteIdsResponse {
  1: required list<TableValidWriteIds> tblValidWriteIds
}

struct TxnToWriteId {
  1: required i64 txnId
  2: required i64 writeId
}

struct AllocateTableWriteIdsRequest {
  1: required string dbName
  2: required string tableName
  3: optional list<i64> txnIds
  4: optional string replPolicy
  5: optional list<TxnToWriteId> srcTxnToWriteIdList
  6: optional bool reallocate = false              // not in 2.3
}

struct AllocateTableWriteIdsResponse {
  1: required list<TxnToWriteId> txnToWriteIds
}

struct MaxAllocatedTableWriteIdRequest {           // not in 2.3
  1: required string dbName
  2: required string tableName
}

struct MaxAllocatedTableWriteIdResponse {          // not in 2.3
  1: required i64 maxWriteId
}

// --- locks

enum LockLevel { DB = 1, TABLE = 2, PARTITION = 3 }
enum LockState { ACQUIRED = 1, WAITING = 2, ABORT = 3, NOT_ACQUIRED = 4 }
enum LockType { SHARED_READ = 1, SHARED_WRITE = 2, EXCLUSIVE = 3, EXCL_WRITE = 4 }  // EXCL_WRITE: not in 2.3

enum DataOperationType {
  SELECT = 1, INSERT = 2, UPDATE = 3, DELETE = 4, UNSET = 5, NO_TXN = 6
}

struct LockComponent {
  1: required LockType type
  2: required LockLevel level
  3: required string dbname
  4: optional string tablename
  5: optional string partitionname
  6: optional DataOperationType operationType = DataOperationType.UNSET
  7: optional bool isTransactional = false         // Hive 2.3: isAcid
  8: optional bool isDynamicPartitionWrite = false // not in 2.3
}

struct LockRequest {
  1: required list<LockComponent> component
  2: optional i64 txnid
  3: required string user
  4: required string hostname
  5: optional string agentInfo = "Unknown"
  6: optional bool zeroWaitReadEnabled = false     // not in 2.3
  7: optional bool exclusiveCTAS = false           // not in 2.3
  8: optional bool locklessReadsEnabled = false    // not in 2.3
}

struct LockResponse {
  1: required i64 lockid
  2: required LockState state
  3: optional string errorMessage                  // not in 2.3
}

struct CheckLockRequest {
  1: required i64 lockid
  2: optional i64 txnid
  3: optional i64 elapsed_ms
}

struct UnlockRequest {
  1: required i64 lockid
}

struct ShowLocksRequest {
  1: optional string dbname
  2: optional string tablename
  3: optional string partname
  4: optional bool isExtended = false
  5: optional i64 txnid                            // not in 2.3
}

struct ShowLocksResponseElement {
  1: required i64 lockid
  2: required string dbname
  3: optional string tablename
  4: optional string partname
  5: required LockState state
  6: required LockType type
  7: optional i64 txnid
  8: required i64 lastheartbeat                    // milliseconds since the epoch, 0 with a transaction
  9: optional i64 acquiredat                       // milliseconds since the epoch
  10: required string user
  11: required string hostname
  12: optional i32 heartbeatCount = 0
  13: optional string agentInfo
  14: optional i64 blockedByExtId
  15: optional i64 blockedByIntId
  16: optional i64 lockIdInternal
}

struct ShowLocksResponse {
  1: list<ShowLocksResponseElement> locks
}

struct HeartbeatRequest {
  1: optional i64 lockid
  2: optional i64 txnid
}

struct HeartbeatTxnRangeRequest {
  1: required i64 min
  2: required i64 max
}

struct HeartbeatTxnRangeResponse {
  1: required set<i64> aborted
  2: required set<i64> nosuch
}

// --- notification log

struct NotificationEventRequest {
  1: required i64 lastEvent
  2: optional i32 maxEvents
  3: optional list<string> eventTypeSkipList       // not in 2.3
  4: optional string catName                       // not in 2.3
  5: optional string dbName                        // not in 2.3
  6: optional list<string> tableNames              // not in 2.3
}

struct NotificationEvent {
  1: required i64 eventId
  2: required i32 eventTime
  3: required string eventType
  4: optional string dbName
  5: optional string tableName
  6: required string message
  7: optional string messageFormat
  8: optional string catName                       // not in 2.3
}

struct NotificationEventResponse {
  1: required list<NotificationEvent> events
}

struct CurrentNotificationEventId {
  1: required i64 eventId
}

struct NotificationEventsCountRequest {            // not in 2.3
  1: required i64 fromEventId
  2: required string dbName
  3: optional string catName
  4: optional i64 toEventId                        // not in 2.3
  5: optional i64 limit                            // not in 2.3
  6: optional list<string> tableNames              // not in 2.3
}

struct NotificationEventsCountResponse {           // not in 2.3
  1: required i64 eventsCount
}

// --- the service

service ThriftHiveMetastore extends FacebookService {
  list<string> set_ugi(1: string user_name, 2: list<string> group_names) throws (1: MetaException o1)

  list<string> get_databases(1: string pattern) throws (1: MetaException o1)
  list<string> get_all_databases() throws (1: MetaException o1)
  Database get_database(1: string name) throws (1: NoSuchObjectException o1, 2: MetaException o2)

  // Not in Hive since 4.0.1, and what Spark and pyiceberg still call.
  Table get_table(1: string dbname, 2: string tbl_name)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)
  GetTableResult get_table_req(1: GetTableRequest req)
    throws (1: MetaException o1, 2: NoSuchObjectException o2)

  GetOpenTxnsResponse get_open_txns()
  GetOpenTxnsInfoResponse get_open_txns_info()
  GetOpenTxnsResponse get_open_txns_req(1: GetOpenTxnsRequest getOpenTxnsRequest)     // not in 2.3
  OpenTxnsResponse open_txns(1: OpenTxnRequest rqst)
  void abort_txn(1: AbortTxnRequest rqst) throws (1: NoSuchTxnException o1)
  void abort_txns(1: AbortTxnsRequest rqst) throws (1: NoSuchTxnException o1)
  void commit_txn(1: CommitTxnRequest rqst)
    throws (1: NoSuchTxnException o1, 2: TxnAbortedException o2)
  HeartbeatTxnRangeResponse heartbeat_txn_range(1: HeartbeatTxnRangeRequest txns)

  GetValidWriteIdsResponse get_valid_write_ids(1: GetValidWriteIdsRequest rqst)       // not in 2.3
    throws (1: NoSuchTxnException o1, 2: MetaException o2)
  AllocateTableWriteIdsResponse allocate_table_write_ids(1: AllocateTableWriteIdsRequest rqst)  // not in 2.3
    throws (1: NoSuchTxnException o1, 2: TxnAbortedException o2, 3: MetaException o3)
  MaxAllocatedTableWriteIdResponse get_max_allocated_table_write_id(                  // not in 2.3
    1: MaxAllocatedTableWriteIdRequest rqst) throws (1: MetaException o1)

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
}
