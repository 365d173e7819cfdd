//! What the server tells of its SQL (`GetSqlInfo`): all that JDBC and ODBC drivers ask for, as they take what is missing for an error.

use arrow_flight::sql::metadata::{SqlInfoData, SqlInfoDataBuilder};
use arrow_flight::sql::{self as protocol, SqlInfo};
use std::collections::BTreeMap;
use terrace_analysis::datafusion::prelude::SessionContext;
use terrace_tool::failure::Failure;

/// Words that standard SQL does not have.
const KEYWORDS: &[&str] = &["ANTI", "EXCLUDE", "EXPLAIN", "ILIKE", "LIMIT", "OFFSET", "QUALIFY", "SEMI", "SHOW"];

/// As the protocol has it; the crate keeps its name for it to itself.
const ANSI92_ENTRY_SQL: i32 = 0;

fn bits(numbers: &[i32]) -> i32 {
    numbers.iter().fold(0, |bits, number| bits | 1 << number)
}

/// Functions by the part of the engine's manual that tells of them.
fn functions(context: &SessionContext) -> BTreeMap<&'static str, Vec<String>> {
    let mut found: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for (name, function) in context.state().scalar_functions() {
        let part = function.documentation().map_or("", |told| told.doc_section.label);
        let part = match part {
            "Math Functions" => "numeric",
            "String Functions" | "Regular Expression Functions" | "Unicode Functions" => "string",
            "Time and Date Functions" => "time",
            _ => "other",
        };
        found.entry(part).or_default().push(name.clone());
    }
    found.values_mut().for_each(|names| names.sort());
    found
}

pub fn of(context: &SessionContext) -> Result<SqlInfoData, Failure> {
    use SqlInfo::*;
    let mut info = SqlInfoDataBuilder::new();
    let mut names = functions(context);
    for (name, text) in [
        (FlightSqlServerName, "Terrace"),
        (FlightSqlServerVersion, env!("CARGO_PKG_VERSION")),
        (FlightSqlServerArrowVersion, "59"),
        (SqlIdentifierQuoteChar, "\""),
        (SqlSearchStringEscape, "\\"),
        (SqlExtraNameCharacters, ""),
        (SqlSchemaTerm, "schema"),
        (SqlProcedureTerm, "procedure"),
        (SqlCatalogTerm, "catalog"),
    ] {
        info.append(name, text);
    }
    for name in [
        FlightSqlServerReadOnly,
        FlightSqlServerSql,
        FlightSqlServerCancel,
        SqlAllTablesAreSelectable,
        SqlSupportsColumnAliasing,
        SqlNullPlusNullIsNull,
        SqlSupportsTableCorrelationNames,
        SqlSupportsExpressionsInOrderBy,
        SqlSupportsOrderByUnrelated,
        SqlSupportsLikeEscapeClause,
        SqlCatalogAtStart,
        SqlCorrelatedSubqueriesSupported,
    ] {
        info.append(name, true);
    }
    for name in [
        FlightSqlServerSubstrait,
        FlightSqlServerBulkIngestion,
        FlightSqlServerIngestTransactionsSupported,
        SqlDdlCatalog,
        SqlDdlSchema,
        SqlDdlTable,
        SqlSupportsDifferentTableCorrelationNames,
        SqlSupportsNonNullableColumns,
        SqlSupportsIntegrityEnhancementFacility,
        SqlSelectForUpdateSupported,
        SqlStoredProceduresSupported,
        SqlMaxRowSizeIncludesBlobs,
        SqlTransactionsSupported,
        SqlDataDefinitionCausesTransactionCommit,
        SqlDataDefinitionsInTransactionsIgnored,
        SqlBatchUpdatesSupported,
        SqlSavepointsSupported,
        SqlNamedParametersSupported,
        SqlLocatorsUpdateCopy,
        SqlStoredFunctionsUsingCallSyntaxSupported,
    ] {
        info.append(name, false);
    }
    // 0: no limit, or none that is known.
    for name in [
        SqlMaxBinaryLiteralLength,
        SqlMaxCharLiteralLength,
        SqlMaxColumnNameLength,
        SqlMaxColumnsInGroupBy,
        SqlMaxColumnsInIndex,
        SqlMaxColumnsInOrderBy,
        SqlMaxColumnsInSelect,
        SqlMaxColumnsInTable,
        SqlMaxConnections,
        SqlMaxCursorNameLength,
        SqlMaxIndexLength,
        SqlDbSchemaNameLength,
        SqlMaxProcedureNameLength,
        SqlMaxCatalogNameLength,
        SqlMaxRowSize,
        SqlMaxStatementLength,
        SqlMaxStatements,
        SqlMaxTableNameLength,
        SqlMaxTablesInSelect,
        SqlMaxUsernameLength,
    ] {
        info.append(name, 0i64);
    }
    let unions = [protocol::SqlSupportedUnions::SqlUnion as i32, protocol::SqlSupportedUnions::SqlUnionAll as i32];
    let subqueries = [
        protocol::SqlSupportedSubqueries::SqlSubqueriesInComparisons as i32,
        protocol::SqlSupportedSubqueries::SqlSubqueriesInExists as i32,
        protocol::SqlSupportedSubqueries::SqlSubqueriesInIns as i32,
    ];
    let grammar =
        [protocol::SupportedSqlGrammar::SqlMinimumGrammar as i32, protocol::SupportedSqlGrammar::SqlCoreGrammar as i32];
    let types = [protocol::SqlSupportedResultSetType::SqlResultSetTypeForwardOnly as i32];
    let read_only = [protocol::SqlSupportedResultSetConcurrency::SqlResultSetConcurrencyReadOnly as i32];
    for (name, number) in [
        (FlightSqlServerTransaction, protocol::SqlSupportedTransaction::None as i32),
        (FlightSqlServerStatementTimeout, 0),
        (FlightSqlServerTransactionTimeout, 0),
        (SqlIdentifierCase, protocol::SqlSupportedCaseSensitivity::SqlCaseSensitivityLowercase as i32),
        (SqlQuotedIdentifierCase, protocol::SqlSupportedCaseSensitivity::SqlCaseSensitivityUnknown as i32),
        (SqlNullOrdering, protocol::SqlNullOrdering::SqlNullsSortedHigh as i32),
        (SqlSupportedGroupBy, bits(&[protocol::SqlSupportedGroupBy::SqlGroupByUnrelated as i32])),
        (SqlSupportedGrammar, bits(&grammar)),
        (SqlAnsi92SupportedLevel, bits(&[ANSI92_ENTRY_SQL])),
        (SqlOuterJoinsSupportLevel, bits(&[protocol::SqlOuterJoinsSupportLevel::SqlFullOuterJoins as i32])),
        (SqlSchemasSupportedActions, 0),
        (SqlCatalogsSupportedActions, 0),
        (SqlSupportedPositionedCommands, 0),
        (SqlSupportedSubqueries, bits(&subqueries)),
        (SqlSupportedUnions, bits(&unions)),
        (
            SqlSupportedTransactionsIsolationLevels,
            bits(&[protocol::SqlTransactionIsolationLevel::SqlTransactionNone as i32]),
        ),
        (SqlSupportedResultSetTypes, bits(&types)),
        (SqlSupportedConcurrenciesForResultSetUnspecified, 0),
        (SqlSupportedConcurrenciesForResultSetForwardOnly, bits(&read_only)),
        (SqlSupportedConcurrenciesForResultSetScrollSensitive, 0),
        (SqlSupportedConcurrenciesForResultSetScrollInsensitive, 0),
    ] {
        info.append(name, number);
    }
    // Arrow's own servers tell it as a long, and its JDBC driver takes nothing else.
    info.append(SqlDefaultTransactionIsolation, protocol::SqlTransactionIsolationLevel::SqlTransactionNone as i64);
    info.append(SqlKeywords, KEYWORDS);
    for (name, part) in [
        (SqlNumericFunctions, "numeric"),
        (SqlStringFunctions, "string"),
        (SqlDatetimeFunctions, "time"),
        (SqlSystemFunctions, "other"),
    ] {
        info.append(name, names.remove(part).unwrap_or_default());
    }
    // CONVERT is none of our functions: CAST is.
    info.append(SqlSupportsConvert, BTreeMap::<i32, Vec<i32>>::new());
    info.build().map_err(|error| Failure::new(error.to_string()))
}
