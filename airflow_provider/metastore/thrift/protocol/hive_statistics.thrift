// --- statistics of columns; as in 2.3 where nothing else is said

struct BooleanColumnStatsData {
  1: required i64 numTrues
  2: required i64 numFalses
  3: required i64 numNulls
  4: optional binary bitVectors                    // in 2.3 a string, here and below
}

struct LongColumnStatsData {
  1: optional i64 lowValue
  2: optional i64 highValue
  3: required i64 numNulls
  4: required i64 numDVs
  5: optional binary bitVectors
}

struct DoubleColumnStatsData {
  1: optional double lowValue
  2: optional double highValue
  3: required i64 numNulls
  4: required i64 numDVs
  5: optional binary bitVectors
}

struct StringColumnStatsData {
  1: required i64 maxColLen
  2: required double avgColLen
  3: required i64 numNulls
  4: required i64 numDVs
  5: optional binary bitVectors
}

struct BinaryColumnStatsData {
  1: required i64 maxColLen
  2: required double avgColLen
  3: required i64 numNulls
  4: optional binary bitVectors
}

struct Decimal {
  1: required binary unscaled
  3: required i16 scale
}

struct DecimalColumnStatsData {
  1: optional Decimal lowValue
  2: optional Decimal highValue
  3: required i64 numNulls
  4: required i64 numDVs
  5: optional binary bitVectors
}

struct Date {
  1: required i64 daysSinceEpoch
}

struct DateColumnStatsData {
  1: optional Date lowValue
  2: optional Date highValue
  3: required i64 numNulls
  4: required i64 numDVs
  5: optional binary bitVectors
}

struct Timestamp {                                 // not in 2.3
  1: required i64 secondsSinceEpoch
}

struct TimestampColumnStatsData {                  // not in 2.3
  1: optional Timestamp lowValue
  2: optional Timestamp highValue
  3: required i64 numNulls
  4: required i64 numDVs
  5: optional binary bitVectors
}

union ColumnStatisticsData {
  1: BooleanColumnStatsData booleanStats
  2: LongColumnStatsData longStats
  3: DoubleColumnStatsData doubleStats
  4: StringColumnStatsData stringStats
  5: BinaryColumnStatsData binaryStats
  6: DecimalColumnStatsData decimalStats
  7: DateColumnStatsData dateStats
  8: TimestampColumnStatsData timestampStats       // not in 2.3
}

struct ColumnStatisticsObj {
  1: required string colName
  2: required string colType
  3: required ColumnStatisticsData statsData
}

struct ColumnStatisticsDesc {
  1: required bool isTblLevel
  2: required string dbName
  3: required string tableName
  4: optional string partName
  5: optional i64 lastAnalyzed
  6: optional string catName                       // not in 2.3
}

struct ColumnStatistics {
  1: required ColumnStatisticsDesc statsDesc
  2: required list<ColumnStatisticsObj> statsObj
  3: optional bool isStatsCompliant                // not in 2.3
  4: optional string engine = "hive"               // not in 2.3
}

struct SetPartitionsStatsRequest {
  1: required list<ColumnStatistics> colStats
  2: optional bool needMerge
  3: optional i64 writeId = -1                     // not in 2.3
  4: optional string validWriteIdList              // not in 2.3
  5: optional string engine = "hive"               // not in 2.3
}

struct SetPartitionsStatsResponse {                // not in 2.3
  1: required bool result
}

struct TableStatsRequest {
  1: required string dbName
  2: required string tblName
  3: required list<string> colNames
  4: optional string catName                       // not in 2.3
  5: optional string validWriteIdList              // not in 2.3
  6: optional string engine = "hive"               // not in 2.3
  7: optional i64 id = -1                          // not in 2.3
}

struct TableStatsResult {
  1: required list<ColumnStatisticsObj> tableStats
  2: optional bool isStatsCompliant                // not in 2.3
}

struct PartitionsStatsRequest {
  1: required string dbName
  2: required string tblName
  3: required list<string> colNames
  4: required list<string> partNames
  5: optional string catName                       // not in 2.3
  6: optional string validWriteIdList              // not in 2.3
  7: optional string engine = "hive"               // not in 2.3
}

struct PartitionsStatsResult {
  1: required map<string, list<ColumnStatisticsObj>> partStats
  2: optional bool isStatsCompliant                // not in 2.3
}

// --- roles and privileges, as in 2.3 but for catName

enum HiveObjectType { GLOBAL = 1, DATABASE = 2, TABLE = 3, PARTITION = 4, COLUMN = 5, DATACONNECTOR = 6 }

struct HiveObjectRef {
  1: HiveObjectType objectType
  2: string dbName
  3: string objectName
  4: list<string> partValues
  5: string columnName
  6: optional string catName                       // not in 2.3
}

struct HiveObjectPrivilege {
  1: HiveObjectRef hiveObject
  2: string principalName
  3: PrincipalType principalType
  4: PrivilegeGrantInfo grantInfo
  5: string authorizer                             // not in 2.3
}

struct Role {
  1: string roleName
  2: i32 createTime
  3: string ownerName
}

struct RolePrincipalGrant {
  1: string roleName
  2: string principalName
  3: PrincipalType principalType
  4: bool grantOption
  5: i32 grantTime
  6: string grantorName
  7: PrincipalType grantorPrincipalType
}

struct GetRoleGrantsForPrincipalRequest {
  1: required string principal_name
  2: required PrincipalType principal_type
}

struct GetRoleGrantsForPrincipalResponse {
  1: required list<RolePrincipalGrant> principalGrants
}

struct GetPrincipalsInRoleRequest {
  1: required string roleName
}

struct GetPrincipalsInRoleResponse {
  1: required list<RolePrincipalGrant> principalGrants
}
