// The part of the Hive Metastore's wire protocol that this package speaks, client and server.
//
// Methods, field ids, types and defaults are those of Hive 4.1's interface; `not in 2.3` marks what
// a Hive 2.3 server, and with it Spark's built-in client, does not know. What is left out of a
// struct is skipped when it is read, as Thrift wants it:
//   Table.creationMetadata (16) and Table.colStats (21), of materialized views and statistics;
//   SkewedInfo.skewedColValueLocationMaps (3), keyed by lists, which are no keys in Python.

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
  3: map<string, string> skewedColValueLocationMaps  // its keys are lists in Hive; always empty here
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
  1001: optional i64 seenEventId                   // not Hive's: no less than this reader has seen
}

struct GetTableResult {
  1: required Table table
  2: optional bool isStatsCompliant                // not in 2.3
  1001: optional i64 eventId                       // not Hive's: how new it is, when the request asked
}

struct Partition {
  1: list<string> values
  2: string dbName
  3: string tableName
  4: i32 createTime
  5: i32 lastAccessTime
  6: StorageDescriptor sd
  7: map<string, string> parameters
  8: optional PrincipalPrivilegeSet privileges
  9: optional string catName                       // not in 2.3
  10: optional i64 writeId = -1                    // not in 2.3
  11: optional bool isStatsCompliant               // not in 2.3
  13: optional FileMetadata fileMetadata           // not in 2.3
}

enum FunctionType { JAVA = 1 }
enum ResourceType { JAR = 1, FILE = 2, ARCHIVE = 3 }

struct ResourceUri {
  1: ResourceType resourceType
  2: string uri
}

struct Function {
  1: string functionName
  2: string dbName
  3: string className
  4: string ownerName
  5: PrincipalType ownerType
  6: i32 createTime
  7: FunctionType functionType
  8: list<ResourceUri> resourceUris
  9: optional string catName                       // not in 2.3
}

struct GetAllFunctionsResponse {
  1: optional list<Function> functions
}

// --- catalog: requests, not in 2.3 where nothing else is said

struct GetDatabaseRequest {
  1: optional string name
  2: optional string catalogName
  3: optional list<string> processorCapabilities
  4: optional string processorIdentifier
}

struct CreateDatabaseRequest {
  1: required string databaseName
  2: optional string description
  3: optional string locationUri
  4: optional map<string, string> parameters
  5: optional PrincipalPrivilegeSet privileges
  6: optional string ownerName
  7: optional PrincipalType ownerType
  8: optional string catalogName
  9: optional i32 createTime
  10: optional string managedLocationUri
  11: optional DatabaseType type
  12: optional string dataConnectorName
  13: optional string remote_dbname
}

struct DropDatabaseRequest {
  1: required string name
  2: optional string catalogName
  3: required bool ignoreUnknownDb
  4: required bool deleteData
  5: required bool cascade
  6: optional bool softDelete = false
  7: optional i64 txnId = 0
  8: optional bool deleteManagedDir = true
}

struct AlterDatabaseRequest {
  1: required string oldDbName
  2: required Database newDb
}

struct CreateTableRequest {
  1: required Table table
  2: optional EnvironmentContext envContext
  3: optional list<SQLPrimaryKey> primaryKeys
  4: optional list<SQLForeignKey> foreignKeys
  5: optional list<SQLUniqueConstraint> uniqueConstraints
  6: optional list<SQLNotNullConstraint> notNullConstraints
  7: optional list<SQLDefaultConstraint> defaultConstraints
  8: optional list<SQLCheckConstraint> checkConstraints
  9: optional list<string> processorCapabilities
  10: optional string processorIdentifier
}

struct GetProjectionsSpec {
  1: list<string> fieldList
  2: string includeParamKeyPattern
  3: string excludeParamKeyPattern
}

struct GetTablesRequest {                          // in 2.3
  1: required string dbName
  2: optional list<string> tblNames
  3: optional ClientCapabilities capabilities
  4: optional string catName                       // not in 2.3
  5: optional list<string> processorCapabilities   // not in 2.3
  6: optional string processorIdentifier           // not in 2.3
  7: optional GetProjectionsSpec projectionSpec    // not in 2.3
  8: optional string tablesPattern                 // not in 2.3
}

struct GetTablesResult {                           // in 2.3
  1: required list<Table> tables
}

struct TableMeta {                                 // in 2.3
  1: required string dbName
  2: required string tableName
  3: required string tableType
  4: optional string comments
  5: optional string catName                       // not in 2.3
  6: optional string ownerName                     // not in 2.3
  7: optional PrincipalType ownerType              // not in 2.3
}

struct DropTableRequest {
  1: optional string catalogName
  2: required string dbName
  3: required string tableName
  4: optional bool deleteData
  5: optional EnvironmentContext envContext
  6: optional bool dropPartitions
}

struct AlterTableRequest {
  1: optional string catName
  2: required string dbName
  3: required string tableName
  4: required Table table
  5: optional EnvironmentContext environmentContext
  6: optional i64 writeId = -1
  7: optional string validWriteIdList
  8: optional list<string> processorCapabilities
  9: optional string processorIdentifier
  10: optional string expectedParameterKey
  11: optional string expectedParameterValue
}

struct AlterTableResponse {
}

struct GetFieldsRequest {
  1: optional string catName
  2: required string dbName
  3: required string tblName
  4: optional EnvironmentContext envContext
  5: optional string validWriteIdList
  6: optional i64 id = -1
}

struct GetFieldsResponse {
  1: required list<FieldSchema> fields
}

struct GetSchemaRequest {
  1: optional string catName
  2: required string dbName
  3: required string tblName
  4: optional EnvironmentContext envContext
  5: optional string validWriteIdList
  6: optional i64 id = -1
}

struct GetSchemaResponse {
  1: required list<FieldSchema> fields
}
