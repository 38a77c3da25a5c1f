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
  // Not Hive's, and only in the answer to get_txn.
  1001: optional bool commitOnRecovery
  1002: optional i64 eventId
  1003: optional TxnType txnType
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
  // Not Hive's, where nothing is ever committed by recovery.
  1001: optional bool commitOnRecovery
  1002: optional double timeoutSeconds
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

struct ReplTblWriteIdStateRequest {                // not in 2.3
  1: required string validWriteIdlist
  2: required string user
  3: required string hostName
  4: required string dbName
  5: required string tableName
  6: optional list<string> partNames
}

struct SeedTableWriteIdsRequest {                  // not in 2.3
  1: required string dbName
  2: required string tableName
  3: required i64 seedWriteId
}

struct SeedTxnIdRequest {                          // not in 2.3
  1: required i64 seedTxnId
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

// The event type that a Hive writes; HCatConstants and MessageBuilder have it.
const string ALLOC_WRITE_ID_EVENT = "ALLOC_WRITE_ID_EVENT"

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

struct InsertEventRequestData {
  1: optional bool replace                         // not in 2.3, where 1 is filesAdded
  2: required list<string> filesAdded
  3: optional list<string> filesAddedChecksum
  4: optional list<string> subDirectoryList        // not in 2.3
  5: optional list<string> partitionVal            // not in 2.3
}

union FireEventRequestData {
  1: optional InsertEventRequestData insertData
  2: optional list<InsertEventRequestData> insertDatas  // not in 2.3
  3: optional bool refreshEvent                         // not in 2.3
}

struct FireEventRequest {
  1: required bool successful
  2: required FireEventRequestData data
  3: optional string dbName
  4: optional string tableName
  5: optional list<string> partitionVals
  6: optional string catName                       // not in 2.3
  7: optional map<string, string> tblParams        // not in 2.3
  1001: optional i64 txnId                         // not Hive's
}

struct FireEventResponse {
  1: list<i64> eventIds                            // not in 2.3
}

struct WriteNotificationLogRequest {               // not in 2.3
  1: required i64 txnId
  2: required i64 writeId
  3: required string db
  4: required string table
  5: required InsertEventRequestData fileInfo
  6: optional list<string> partitionVals
}

struct WriteNotificationLogResponse {              // not in 2.3
}

struct WriteNotificationLogBatchRequest {          // not in 2.3
  1: required string catalog
  2: required string db
  3: required string table
  4: required list<WriteNotificationLogRequest> requestList
}

struct WriteNotificationLogBatchResponse {         // not in 2.3
}

struct GetAllWriteEventInfoRequest {               // not in 2.3
  1: required i64 txnId
  2: optional string dbName
  3: optional string tableName
}

// --- of this package, not Hive's

struct TableWrite {
  1: required i64 txnId
  2: required string dbName
  3: required string tableName
  4: optional string location
  5: optional i64 writeId
  6: optional string instant
}

struct TableChanges {
  1: required string dbName
  2: required string tableName
  3: optional list<Partition> newPartitions        // of their storage only the location
  4: optional list<InsertEventRequestData> insertions
}

struct CommitChangesRequest {
  1: required i64 txnId
  2: required list<TableChanges> tables
}

struct CommitChangesResponse {
  1: required i64 eventId
}

struct ReadSnapshotRequest {
  1: required list<string> fullTableNames          // db.table
  2: optional i64 txnId
  3: optional string validTxnList
}

struct TableSnapshot {
  1: required string fullTableName
  2: required i64 tableId
  3: required string validWriteIdList
}

struct ReadSnapshot {
  1: required string validTxnList
  2: required list<TableSnapshot> tables
  3: required i64 catalogEventId
}

struct ReadPartitionsRequest {
  1: required string dbName
  2: required string tblName
  3: optional list<string> values                  // of the one that is wanted
  4: optional string filter                        // of those that are wanted
  5: optional string validWriteIdList
  6: optional i64 id = -1
  7: optional i64 seenEventId                      // no less than this reader has seen
}

struct ReadPartitionsResponse {
  1: required list<Partition> partitions
  2: optional i64 eventId                          // how new they are
}

struct EndTimedOutTxnRequest {
  1: required i64 txnId
  2: required double timeoutSeconds
  3: required bool commit
}

struct EndTimedOutTxnResponse {
  1: optional i64 eventId
}

struct AddDynamicPartitions {
  1: required i64 txnid
  2: required i64 writeid                          // not in 2.3, where the others are one further up
  3: required string dbname
  4: required string tablename
  5: required list<string> partitionnames
  6: optional DataOperationType operationType = DataOperationType.UNSET
}

// --- of this package: who follows the notification log

struct LogConsumer {
  1: required string name
  2: required i64 eventId                          // the last event that it has applied
  3: required double updatedAt                     // seconds since the epoch
  4: optional double expirySeconds
  5: required bool isLive
  6: required double silentSeconds
  7: optional i64 hits                             // of a replica, as of its last report
  8: optional i64 misses
}

struct RegisterLogConsumerRequest {
  1: required string name
  2: optional i64 eventId                          // none: the log's end
  3: optional double expirySeconds                 // none: never
  4: optional bool ifNotExists = false
}

struct ReplicationStateRequest {
  1: required list<string> dbNames
  2: required list<i64> txnIds
}

struct ReplicatorRequest {
  1: required string operation                     // a method of ReplicationTarget
  2: required binary arguments
}

struct MoveLogConsumerRequest {
  1: required string name
  2: optional i64 eventId                          // none: the log's end
}
