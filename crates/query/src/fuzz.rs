//! Texts and messages that nobody would write: each is answered or refused, and the service goes on.

use crate::flight::Service;
use crate::threads::Threads;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::*;
use arrow_flight::{Action, FlightDescriptor, Ticket};
use futures::StreamExt;
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use terrace_analysis::arrow::buffer::Buffer;
use terrace_analysis::datafusion::prelude::SessionContext;
use terrace_analysis::{
    Axis, Column, Dimension, Grid, GridTable, Limits, MemoryArray, Options, Register, Source, context, plan, stream,
};
use terrace_client::{DataType, Region};
use tonic::Request;

const TIME: Duration = Duration::from_secs(4);
/// What is still being answered then is given up: it was a question of many rows.
const PATIENCE: Duration = Duration::from_secs(2);

fn tables() -> SessionContext {
    let options = Options { memory_bytes_max: Some(32 << 20), threads: Some(2), ..Options::default() };
    let context = context(&options).unwrap();
    let array = |seed: i64| -> Arc<dyn Source> {
        let mut array = MemoryArray::new(DataType::Float64, &[4, 3]);
        let bytes: Vec<u8> = (0..12i64).flat_map(|i| ((i * seed % 7) as f64).to_le_bytes()).collect();
        array.put(Region::whole(&[4, 3]).unwrap(), Buffer::from_slice_ref(bytes.as_slice())).unwrap();
        Arc::new(array)
    };
    let dimension = |name: &str, extent| Dimension { name: name.into(), extent, axis: Axis::INDEX };
    let columns =
        vec![Column::new("v", array(3), vec![(0, 0), (1, 0)]), Column::new("w", array(5), vec![(0, 0), (1, 0)])];
    let grid = Grid::new("g", vec![dimension("x", 4), dimension("y", 3)], columns, false).unwrap();
    let schema = Arc::new(terrace_analysis::datafusion::catalog::MemorySchemaProvider::new());
    let catalog = terrace_analysis::datafusion::catalog::MemoryCatalogProvider::new();
    use terrace_analysis::datafusion::catalog::CatalogProvider;
    catalog.register_schema("root", schema).unwrap();
    context.register_catalog("terrace", Arc::new(catalog));
    context.register_table("g", Arc::new(GridTable(Arc::new(grid)))).unwrap();
    context
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

const QUERIES: [&str; 8] = [
    "SELECT x , y , v FROM g WHERE v > 3 AND x BETWEEN 1 AND 2 ORDER BY y LIMIT 5",
    "SELECT x , avg( v ) AS m , count( * ) FROM g WHERE w <= 4 GROUP BY x HAVING avg( v ) > 1 ORDER BY m DESC",
    "SELECT a.x , a.v - b.w FROM g a JOIN g b ON a.x = b.x AND a.y = b.y WHERE a.v <> 2",
    "SELECT q.x , y , v FROM g JOIN ( SELECT x , max( v ) AS m FROM g GROUP BY x ) q ON g.x = q.x AND g.v = q.m",
    "WITH q AS ( SELECT x , sum( v * w + y ) AS s FROM g GROUP BY x ) SELECT * FROM q , g WHERE q.x = g.x AND s IN ( 1 , 2 , NULL )",
    "SELECT x , sum( v ) OVER ( PARTITION BY y ORDER BY x ) FROM g UNION ALL SELECT y , CAST( w AS BIGINT ) / ( x - 1 ) FROM g",
    "SELECT CASE WHEN v > 2 THEN 'a' ELSE 'b' END AS c , count( DISTINCT y ) FROM g GROUP BY c",
    "EXPLAIN SELECT min( x ) , max( y ) FROM g WHERE EXISTS ( SELECT 1 FROM g h WHERE h.x = g.y ) AND v IS NOT NULL",
];

const WORDS: [&str; 44] = [
    "(",
    ")",
    ",",
    "*",
    "x",
    "y",
    "v",
    "w",
    "g",
    "a",
    "NULL",
    "1",
    "-1",
    "0",
    "1e308",
    "9223372036854775807",
    "'text'",
    "''",
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "ORDER BY",
    "LIMIT",
    "JOIN",
    "LEFT JOIN",
    "ON",
    "USING ( x )",
    "AND",
    "OR",
    "NOT",
    "IN",
    "avg(",
    "sum(",
    "stddev(",
    "median(",
    "CAST(",
    "AS",
    "OVER (",
    "UNION",
    "$1",
    "\"",
    ";",
    "INTERVAL '1' DAY",
];

/// A query with some of its words changed, left out or said twice.
fn text(which: u8, changes: &[(u8, u8)]) -> String {
    let mut words: Vec<&str> = QUERIES[which as usize % QUERIES.len()].split(' ').collect();
    for &(place, change) in changes.iter().take(4) {
        let place = place as usize % words.len();
        match change as usize {
            0..=9 if words.len() > 1 => drop(words.remove(place)),
            10..=19 => words.insert(place, words[place]),
            change => words[place] = WORDS[change % WORDS.len()],
        }
    }
    words.join(" ")
}

async fn asked(context: &SessionContext, text: &str) {
    if let Ok(frame) = plan(context, text).await
        && let Ok(mut rows) = stream(frame).await
    {
        let read = async { while let Some(Ok(_)) = rows.next().await {} };
        let _ = tokio::time::timeout(PATIENCE, read).await;
    }
}

#[test]
fn any_text_is_answered_or_refused() {
    let (context, runtime) = (std::panic::AssertUnwindSafe(tables()), std::panic::AssertUnwindSafe(runtime()));
    QUERIES.iter().for_each(|query| {
        runtime.block_on(async { plan(&context, query).await.unwrap().collect().await }).unwrap_or_else(|error| {
            // One of them divides by zero.
            assert!(error.to_string().contains("ivide by zero"), "{query}: {error}");
            vec![]
        });
    });
    bolero::check!()
        .with_test_time(TIME)
        .with_iterations(usize::MAX)
        .with_type::<(u8, Vec<(u8, u8)>, String)>()
        .for_each(|(which, changes, noise)| {
            runtime.block_on(async {
                asked(&context, &text(*which, changes)).await;
                asked(&context, noise).await;
            });
        });
}

/// What clients say, as it comes by the wire.
fn messages() -> Vec<Vec<u8>> {
    let query = || QUERIES[0].to_string();
    let handle = || query().into_bytes().into();
    let tables = CommandGetTables { include_schema: true, table_types: vec!["TABLE".into()], ..Default::default() };
    let prepared = CommandPreparedStatementQuery { prepared_statement_handle: handle() };
    let create = ActionCreatePreparedStatementRequest { query: query(), transaction_id: None };
    vec![
        CommandStatementQuery { query: query(), transaction_id: None }.as_any().encode_to_vec(),
        TicketStatementQuery { statement_handle: handle() }.as_any().encode_to_vec(),
        prepared.as_any().encode_to_vec(),
        create.as_any().encode_to_vec(),
        ActionClosePreparedStatementRequest { prepared_statement_handle: handle() }.as_any().encode_to_vec(),
        CommandGetCatalogs {}.as_any().encode_to_vec(),
        CommandGetDbSchemas { catalog: None, db_schema_filter_pattern: Some("%".into()) }.as_any().encode_to_vec(),
        tables.as_any().encode_to_vec(),
        CommandGetTableTypes {}.as_any().encode_to_vec(),
        CommandGetSqlInfo { info: vec![0, 1, 2] }.as_any().encode_to_vec(),
        CommandGetXdbcTypeInfo { data_type: None }.as_any().encode_to_vec(),
    ]
}

async fn said(service: &Service, way: u8, message: Vec<u8>) -> bool {
    match way % 3 {
        0 => service.get_flight_info(Request::new(FlightDescriptor::new_cmd(message))).await.is_ok(),
        1 => match service.do_get(Request::new(Ticket::new(message))).await {
            Ok(answer) => {
                let mut rows = answer.into_inner();
                let read = async { while let Some(Ok(_)) = rows.next().await {} };
                tokio::time::timeout(PATIENCE, read).await.is_ok()
            }
            Err(_) => false,
        },
        _ => {
            let types = ["CreatePreparedStatement", "ClosePreparedStatement", "BeginTransaction", "CancelQuery", ""];
            let kind = types[way as usize / 3 % types.len()];
            service.do_action(Request::new(Action::new(kind, message))).await.is_ok()
        }
    }
}

#[test]
fn any_message_of_flight_is_answered_or_refused() {
    let runtime = std::panic::AssertUnwindSafe(runtime());
    let service =
        Service::new(tables(), Register::new(None, Limits::default()), Threads::new(Some(2)), "0123456789abcdef")
            .unwrap_or_else(|_| panic!("a service"));
    let service = std::panic::AssertUnwindSafe(service);
    let messages = messages();
    let answered = (0..6)
        .map(|way| messages.iter().filter(|message| runtime.block_on(said(&service, way, message.to_vec()))).count());
    assert!(answered.sum::<usize>() > messages.len(), "whole messages are answered");
    bolero::check!()
        .with_test_time(TIME)
        .with_iterations(usize::MAX)
        .with_type::<(u8, u8, Vec<(u16, u8)>, Vec<u8>)>()
        .for_each(|(which, way, damages, noise)| {
            let mut message = messages[*which as usize % messages.len()].clone();
            for (place, byte) in damages.iter().take(4) {
                let place = *place as usize % message.len();
                message[place] ^= byte;
            }
            runtime.block_on(async {
                said(&service, *way, message).await;
                said(&service, *way, noise.clone()).await;
            });
        });
}

/// Commands of SAVIME's language, whole and damaged; and noise.
#[test]
fn any_text_is_read_as_a_command_of_savimes_language_or_refused() {
    const COMMANDS: [&str; 5] = [
        "aggregate ( where ( cross ( io , aggregate ( io , max , a , m , x ) ) , left_a = right_m ) , max , left_y , y , left_x ) ;",
        "derive ( subset ( io , x , 1 , 2.5e3 ) , c , sin ( a ) ^ 2 + - b * ( 3 - x ) % 4 )",
        "where ( t , not a <> 1 and b like 'x%' or v:2 >= .5 )",
        "create_tar ( 'a' , \"T\" , 'implicit,x,int,0,*,1' , 'v,double' ) ; load_subtar ( 'a' , 'total,x,0,1,d' , 'v,d' )",
        "batch ( create_dataset ( 'd:int' , literal ( 1 , -2 ) ) , show ( ) )",
    ];
    COMMANDS.iter().for_each(|commands| {
        terrace_savime::split(commands)
            .into_iter()
            .for_each(|command| terrace_savime::check(command).unwrap_or_else(|error| panic!("{command}: {error}")));
    });
    bolero::check!()
        .with_test_time(TIME)
        .with_iterations(usize::MAX)
        .with_type::<(u8, Vec<(u8, u8)>, u16, String)>()
        .for_each(|(which, changes, depth, noise)| {
            let mut words: Vec<&str> = COMMANDS[*which as usize % COMMANDS.len()].split(' ').collect();
            for &(place, change) in changes.iter().take(6) {
                let place = place as usize % words.len();
                words.insert(place, words[change as usize % words.len()]);
                words.remove((place + change as usize) % words.len());
            }
            let nested = format!("scan({}{}", "f(".repeat(*depth as usize), noise);
            for text in [words.join(" "), noise.clone(), nested] {
                for command in terrace_savime::split(&text) {
                    let _ = terrace_savime::check(command);
                }
                terrace_savime::is_complete(&text);
            }
        });
}
