// --- partitions: requests, not in 2.3 where nothing else is said

struct AddPartitionsRequest {                      // in 2.3
  1: required string dbName
  2: required string tblName
  3: required list<Partition> parts
  4: required bool ifNotExists
  5: optional bool needResult = true
  6: optional string catName                       // not in 2.3
  7: optional string validWriteIdList              // not in 2.3
  8: optional bool skipColumnSchemaForPartition    // not in 2.3
  9: optional list<FieldSchema> partitionColSchema // not in 2.3
  10: optional EnvironmentContext environmentContext  // not in 2.3
}

struct AddPartitionsResult {                       // in 2.3
  1: optional list<Partition> partitions
  2: optional bool isStatsCompliant                // not in 2.3
  3: optional list<FieldSchema> partitionColSchema // not in 2.3
}

struct DropPartitionsExpr {                        // in 2.3
  1: required binary expr
  2: optional i32 partArchiveLevel
}

union RequestPartsSpec {                           // in 2.3
  1: list<string> names
  2: list<DropPartitionsExpr> exprs
}

struct DropPartitionsRequest {                     // in 2.3
  1: required string dbName
  2: required string tblName
  3: required RequestPartsSpec parts
  4: optional bool deleteData
  5: optional bool ifExists = true
  6: optional bool ignoreProtection
  7: optional EnvironmentContext environmentContext
  8: optional bool needResult = true
  9: optional string catName                       // not in 2.3
  10: optional bool skipColumnSchemaForPartition   // not in 2.3
}

struct DropPartitionsResult {                      // in 2.3
  1: optional list<Partition> partitions
}

struct GetPartitionRequest {
  1: optional string catName
  2: required string dbName
  3: required string tblName
  4: required list<string> partVals
  5: optional string validWriteIdList
  6: optional i64 id = -1
}

struct GetPartitionResponse {
  1: required Partition partition
}

struct PartitionsRequest {
  1: optional string catName
  2: required string dbName
  3: required string tblName
  4: optional i16 maxParts = -1
  5: optional string validWriteIdList
  6: optional i64 id = -1
  7: optional bool skipColumnSchemaForPartition
  8: optional string includeParamKeyPattern
  9: optional string excludeParamKeyPattern
}

struct PartitionsResponse {
  1: required list<Partition> partitions
}

struct GetPartitionNamesPsRequest {
  1: optional string catName
  2: required string dbName
  3: required string tblName
  4: optional list<string> partValues
  5: optional i16 maxParts = -1
  6: optional string validWriteIdList
  7: optional i64 id = -1
}

struct GetPartitionNamesPsResponse {
  1: required list<string> names
}

struct GetPartitionsPsWithAuthRequest {
  1: optional string catName
  2: required string dbName
  3: required string tblName
  4: optional list<string> partVals
  5: optional i16 maxParts = -1
  6: optional string userName
  7: optional list<string> groupNames
  8: optional string validWriteIdList
  9: optional i64 id = -1
  10: optional bool skipColumnSchemaForPartition
  11: optional string includeParamKeyPattern
  12: optional string excludeParamKeyPattern
  13: optional list<string> partNames
}

struct GetPartitionsPsWithAuthResponse {
  1: required list<Partition> partitions
}

struct GetPartitionsByNamesRequest {
  1: required string db_name
  2: required string tbl_name
  3: optional list<string> names
  4: optional bool get_col_stats
  5: optional list<string> processorCapabilities
  6: optional string processorIdentifier
  7: optional string engine = "hive"
  8: optional string validWriteIdList
  9: optional bool getFileMetadata
  10: optional i64 id = -1
  11: optional bool skipColumnSchemaForPartition
  12: optional string includeParamKeyPattern
  13: optional string excludeParamKeyPattern
}

struct GetPartitionsByNamesResult {
  1: required list<Partition> partitions
  2: optional ObjectDictionary dictionary
}

struct GetPartitionsByFilterRequest {
  1: optional string catName
  2: string dbName
  3: string tblName
  4: string filter
  5: optional i16 maxParts = -1
  6: optional bool skipColumnSchemaForPartition
  7: optional string includeParamKeyPattern
  8: optional string excludeParamKeyPattern
}

struct PartitionsByExprRequest {                   // in 2.3
  1: required string dbName
  2: required string tblName
  3: required binary expr
  4: optional string defaultPartitionName
  5: optional i16 maxParts = -1
  6: optional string catName                       // not in 2.3
  7: optional string order                         // not in 2.3
  8: optional string validWriteIdList              // not in 2.3
  9: optional i64 id = -1                          // not in 2.3
  10: optional bool skipColumnSchemaForPartition   // not in 2.3
  11: optional string includeParamKeyPattern       // not in 2.3
  12: optional string excludeParamKeyPattern       // not in 2.3
}

struct PartitionsByExprResult {                    // in 2.3
  1: required list<Partition> partitions
  2: required bool hasUnknownPartitions
}

struct AlterPartitionsRequest {
  1: optional string catName
  2: required string dbName
  3: required string tableName
  4: required list<Partition> partitions
  5: optional EnvironmentContext environmentContext
  6: optional i64 writeId = -1
  7: optional string validWriteIdList
  8: optional bool skipColumnSchemaForPartition
  9: optional list<FieldSchema> partitionColSchema
}

struct AlterPartitionsResponse {
}

struct RenamePartitionRequest {
  1: optional string catName
  2: required string dbName
  3: required string tableName
  4: required list<string> partVals
  5: required Partition newPart
  6: optional string validWriteIdList
  7: optional i64 txnId
  8: optional bool clonePart
}

struct RenamePartitionResponse {
}
