// --- constraints of tables; catName, and all but primary and foreign keys, are not in 2.3

struct SQLPrimaryKey {
  1: string table_db
  2: string table_name
  3: string column_name
  4: i32 key_seq
  5: string pk_name
  6: bool enable_cstr
  7: bool validate_cstr
  8: bool rely_cstr
  9: string catName
}

struct SQLForeignKey {
  1: string pktable_db
  2: string pktable_name
  3: string pkcolumn_name
  4: string fktable_db
  5: string fktable_name
  6: string fkcolumn_name
  7: i32 key_seq
  8: i32 update_rule
  9: i32 delete_rule
  10: string fk_name
  11: string pk_name
  12: bool enable_cstr
  13: bool validate_cstr
  14: bool rely_cstr
  15: string catName
}

struct SQLUniqueConstraint {
  1: string catName
  2: string table_db
  3: string table_name
  4: string column_name
  5: i32 key_seq
  6: string uk_name
  7: bool enable_cstr
  8: bool validate_cstr
  9: bool rely_cstr
}

struct SQLNotNullConstraint {
  1: string catName
  2: string table_db
  3: string table_name
  4: string column_name
  5: string nn_name
  6: bool enable_cstr
  7: bool validate_cstr
  8: bool rely_cstr
}

struct SQLDefaultConstraint {
  1: string catName
  2: string table_db
  3: string table_name
  4: string column_name
  5: string default_value
  6: string dc_name
  7: bool enable_cstr
  8: bool validate_cstr
  9: bool rely_cstr
}

struct SQLCheckConstraint {
  1: string catName
  2: string table_db
  3: string table_name
  4: string column_name
  5: string check_expression
  6: string dc_name
  7: bool enable_cstr
  8: bool validate_cstr
  9: bool rely_cstr
}

struct DropConstraintRequest {
  1: required string dbname
  2: required string tablename
  3: required string constraintname
  4: optional string catName
}

struct AddPrimaryKeyRequest {
  1: required list<SQLPrimaryKey> primaryKeyCols
}

struct AddForeignKeyRequest {
  1: required list<SQLForeignKey> foreignKeyCols
}

struct AddUniqueConstraintRequest {
  1: required list<SQLUniqueConstraint> uniqueConstraintCols
}

struct AddNotNullConstraintRequest {
  1: required list<SQLNotNullConstraint> notNullConstraintCols
}

struct AddDefaultConstraintRequest {
  1: required list<SQLDefaultConstraint> defaultConstraintCols
}

struct AddCheckConstraintRequest {
  1: required list<SQLCheckConstraint> checkConstraintCols
}

struct PrimaryKeysRequest {
  1: required string db_name
  2: required string tbl_name
  3: optional string catName
  4: optional string validWriteIdList
  5: optional i64 tableId = -1
}

struct PrimaryKeysResponse {
  1: required list<SQLPrimaryKey> primaryKeys
}

struct ForeignKeysRequest {
  1: optional string parent_db_name
  2: optional string parent_tbl_name
  3: optional string foreign_db_name
  4: optional string foreign_tbl_name
  5: optional string catName
  6: optional string validWriteIdList
  7: optional i64 tableId = -1
}

struct ForeignKeysResponse {
  1: required list<SQLForeignKey> foreignKeys
}

struct UniqueConstraintsRequest {
  1: required string catName
  2: required string db_name
  3: required string tbl_name
  4: optional string validWriteIdList
  5: optional i64 tableId = -1
}

struct UniqueConstraintsResponse {
  1: required list<SQLUniqueConstraint> uniqueConstraints
}

struct NotNullConstraintsRequest {
  1: required string catName
  2: required string db_name
  3: required string tbl_name
  4: optional string validWriteIdList
  5: optional i64 tableId = -1
}

struct NotNullConstraintsResponse {
  1: required list<SQLNotNullConstraint> notNullConstraints
}

struct DefaultConstraintsRequest {
  1: required string catName
  2: required string db_name
  3: required string tbl_name
  4: optional string validWriteIdList
  5: optional i64 tableId = -1
}

struct DefaultConstraintsResponse {
  1: required list<SQLDefaultConstraint> defaultConstraints
}

struct CheckConstraintsRequest {
  1: required string catName
  2: required string db_name
  3: required string tbl_name
  4: optional string validWriteIdList
  5: optional i64 tableId = -1
}

struct CheckConstraintsResponse {
  1: required list<SQLCheckConstraint> checkConstraints
}

struct AllTableConstraintsRequest {
  1: required string dbName
  2: required string tblName
  3: required string catName
  4: optional string validWriteIdList
  5: optional i64 tableId = -1
}

struct SQLAllTableConstraints {
  1: list<SQLPrimaryKey> primaryKeys
  2: list<SQLForeignKey> foreignKeys
  3: list<SQLUniqueConstraint> uniqueConstraints
  4: list<SQLNotNullConstraint> notNullConstraints
  5: list<SQLDefaultConstraint> defaultConstraints
  6: list<SQLCheckConstraint> checkConstraints
}

struct AllTableConstraintsResponse {
  1: required SQLAllTableConstraints allTableConstraints
}
