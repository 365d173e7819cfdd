//! Arrow Flight SQL: queries from ADBC, JDBC and ODBC clients as they are.
//!
//!   GetFlightInfo(query) ─▶ schema, and a ticket that is the query ─▶ DoGet(ticket) ─▶ batches as they come
//!
//! Invariant: no call is answered without the token; addresses that others reach are served with TLS alone. Nothing is kept between
//! calls: a ticket and a prepared statement are the text of their query, with the values of its parameters. Each query is computed on threads of its own, and clients
//! served on others: no query keeps anybody from being heard. A client that goes away ends its query.

use crate::listening;
use crate::prepared;
use crate::sql_info;
use crate::threads::{Lent, Threads};
use crate::tickets::{Tickets, parted};
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::sql::metadata::SqlInfoData;
use arrow_flight::sql::server::{FlightSqlService, PeekableFlightDataStream};
use arrow_flight::sql::*;
use arrow_flight::{
    Action, ActionType, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightDescriptor,
    FlightEndpoint, FlightInfo, HandshakeRequest, HandshakeResponse, IpcMessage, SchemaAsIpc, Ticket,
};
use futures::{Stream, StreamExt, TryStreamExt};
use prost::Message;
use std::pin::Pin;
use std::sync::Arc;
use terrace_analysis::arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use terrace_analysis::arrow::datatypes::{DataType, Schema, SchemaRef};
use terrace_analysis::datafusion::prelude::{DataFrame, SessionContext};
use terrace_analysis::{
    Control, End, Engine, Error, Register, answer, asked, numbered, on_behalf, parameters, plan, plan_with, stream,
};
use terrace_tool::failure::Failure;
use terrace_tool::server_args::ServerArgs;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Response, Status, Streaming};

const SERVING_THREADS: usize = 2;
/// Batches that are made before they are sent.
const BATCHES_AHEAD: usize = 2;
/// As the protocol has it; the crate keeps its name for it to itself.
const CANCELLED: i32 = 1;
const CANCEL_FLIGHT_INFO: &str = "CancelFlightInfo";

pub fn serve(engine: &Engine, listening: &ServerArgs) -> Result<(), Failure> {
    let (context, register) = (engine.queries().context().clone(), engine.queries().objects().queries.clone());
    listening::serve(listening, SERVING_THREADS, |server, guard| {
        let service = Service::new(context, register, Threads::new(engine.threads()), guard.token())?;
        Ok(server.add_service(InterceptedService::new(FlightServiceServer::new(service), guard)))
    })?;
    engine.queries().remove_spilled();
    // What is still computed changes nothing, and is not waited for.
    std::process::exit(0)
}

#[derive(Clone)]
pub struct Service {
    context: SessionContext,
    register: Arc<Register>,
    /// Where queries are computed.
    threads: Arc<Threads>,
    tickets: Arc<Tickets>,
    info: Arc<SqlInfoData>,
    bearer: String,
}

type Sent = Response<<Service as FlightService>::DoGetStream>;

fn status(error: Error) -> Status {
    use terrace_client::Kind;
    let text = match error.hint {
        Some(hint) => format!("{}\nhint: {hint}", error.message),
        None => error.message,
    };
    match error.kind {
        Kind::NotFound => Status::not_found(text),
        Kind::NoSpace => Status::resource_exhausted(text),
        Kind::NoAgent => Status::unavailable(text),
        Kind::System | Kind::Damaged | Kind::Protocol => Status::internal(text),
        Kind::Denied => Status::permission_denied(text),
        _ => Status::invalid_argument(text),
    }
}

/// What a query's own end is told as, and other errors.
fn status_of(control: &Control, error: Error) -> Status {
    match control.wanted_end() {
        // Whatever else computes for a query that has failed is let go of.
        None | Some(End::Left) => status(error),
        Some(End::TimedOut) => Status::deadline_exceeded(status(error).message()),
        Some(End::Cancelled) => Status::cancelled(error.message),
    }
}

/// For the list of queries.
fn asker<T>(request: &Request<T>) -> String {
    match request.remote_addr() {
        Some(address) => format!("flight {address}"),
        None => "flight".into(),
    }
}

fn broken(error: impl std::fmt::Display) -> Status {
    Status::internal(error.to_string())
}

impl Service {
    pub fn new(
        context: SessionContext,
        register: Arc<Register>,
        threads: Arc<Threads>,
        token: &str,
    ) -> Result<Service, Failure> {
        let info = sql_info::of(&context)?;
        let bearer = format!("Bearer {token}");
        Ok(Service { context, register, threads, tickets: Arc::default(), info: Arc::new(info), bearer })
    }

    /// On a thread of its own.
    async fn planned(&self, text: &str) -> Result<DataFrame, Status> {
        plan(&self.context, text).await.map_err(status)
    }

    /// With the values of its parameters.
    async fn planned_with(&self, handle: &[u8]) -> Result<DataFrame, Status> {
        let (text, values) = prepared::opened(handle)?;
        plan_with(&self.context, text, values).await.map_err(status)
    }

    async fn schema_of(&self, text: &str) -> Result<SchemaRef, Status> {
        Ok(told(&self.planned(text).await?))
    }

    fn info(
        &self,
        schema: &Schema,
        ticket: &impl ProstMessageExt,
        asked: FlightDescriptor,
    ) -> Result<Response<FlightInfo>, Status> {
        let ticket = Ticket { ticket: ticket.as_any().encode_to_vec().into() };
        let info = FlightInfo::new()
            .try_with_schema(schema)
            .map_err(broken)?
            .with_endpoint(FlightEndpoint::new().with_ticket(ticket))
            .with_descriptor(asked);
        Ok(Response::new(info))
    }

    fn send(
        &self,
        schema: SchemaRef,
        batches: impl Stream<Item = Result<RecordBatch, FlightError>> + Send + 'static,
    ) -> Sent {
        let encoded = FlightDataEncoderBuilder::new().with_schema(schema).build(batches);
        Response::new(Box::pin(encoded.map_err(Into::into)))
    }

    /// Of what there is none.
    fn send_none(&self, schema: Schema) -> Sent {
        let schema = Arc::new(schema);
        self.send_one(Ok(RecordBatch::new_empty(schema.clone())), schema)
    }

    fn send_one(&self, batch: Result<RecordBatch, arrow_flight::error::FlightError>, schema: SchemaRef) -> Sent {
        self.send(schema, futures::stream::iter([batch]))
    }

    async fn answer<T>(&self, handle: &[u8], request: &Request<T>) -> Result<Sent, Status> {
        let (mark, handle) = parted(handle);
        let (text, values) = prepared::opened(handle)?;
        let query = self.register.begin(text, &asker(request));
        let control = query.control().clone();
        self.tickets.redeemed(mark, &control);
        let lent = self.threads.lend(&control).map_err(|error| {
            query.failed("no threads");
            Status::resource_exhausted(format!("no threads can be started for a query: {error}"))
        })?;
        let threads = lent.handle();
        let begun = asked(&query, async {
            let frame = plan_with(&self.context, text, values).await?;
            all_are_bound(&frame)?;
            let schema = told(&frame);
            let rows = threads.spawn(on_behalf(control.clone(), stream(frame)));
            Ok((schema, rows.await.map_err(|_| terrace_analysis::front_end::engine_failed())??))
        });
        let (schema, rows) = begun.await.map_err(|error| status_of(&control, error))?;
        let mut rows = answer(query, rows);
        let (sender, receiver) = tokio::sync::mpsc::channel(BATCHES_AHEAD);
        let promised = schema.clone();
        threads.spawn(async move {
            while let Some(batch) = rows.next().await {
                let batch = batch.map_err(Error::from).and_then(|batch| as_told(&batch, &promised));
                let batch = batch.map_err(|error| FlightError::Tonic(Box::new(status_of(&control, error))));
                if sender.send(batch).await.is_err() {
                    return;
                }
            }
        });
        // Let go of when the client is gone, and with it the threads: that is the query's end.
        let batches = futures::stream::unfold((receiver, lent), |(mut receiver, lent): (_, Lent)| async {
            let batch = tokio::sync::mpsc::Receiver::recv(&mut receiver).await?;
            Some((batch, (receiver, lent)))
        });
        Ok(self.send(schema, batches))
    }

    fn cancelled(&self, info: &FlightInfo) -> Result<(), Status> {
        match self.tickets.cancel(info) {
            true => Ok(()),
            false => Err(Status::not_found("no query runs that was asked by this ticket")),
        }
    }

    /// Schemas and names of all tables.
    async fn tables(&self) -> Result<Vec<(String, String)>, Status> {
        let query =
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema <> 'information_schema'";
        let frame = self.planned(query).await?;
        let mut found = vec![];
        let rows = stream(frame).await.map_err(status)?;
        let batches: Vec<RecordBatch> = rows.try_collect().await.map_err(|error| status(error.into()))?;
        for batch in batches {
            let texts =
                |column: &ArrayRef| terrace_analysis::arrow::compute::cast(column, &DataType::Utf8).map_err(broken);
            let (schemas, names) = (texts(batch.column(0))?, texts(batch.column(1))?);
            let (schemas, names) = (schemas.as_string::<i32>(), names.as_string::<i32>());
            found.extend((0..batch.num_rows()).map(|row| (schemas.value(row).to_owned(), names.value(row).to_owned())));
        }
        Ok(found)
    }
}

/// A query's schema, as it is told before the query is asked. When it is asked more may be known of its columns, as that one has
/// no nulls; clients refuse rows of another schema than they were told.
fn told(frame: &DataFrame) -> SchemaRef {
    Arc::new(frame.schema().as_arrow().clone())
}

fn as_told(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Error> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| terrace_analysis::arrow::compute::cast(column, field.data_type()));
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns.collect::<Result<_, _>>()?, &options)?)
}

/// A statement whose parameters have no values can be described, and not be answered.
fn all_are_bound(frame: &DataFrame) -> Result<(), Error> {
    let unbound = parameters(frame)?;
    match unbound.first() {
        None => Ok(()),
        Some(first) => Err(Error::invalid(format!("the parameter {} has no value", first.name()))
            .hint("prepare the statement, and give a value for each of its parameters")),
    }
}

const CATALOG: &str = "terrace";

#[tonic::async_trait]
impl FlightSqlService for Service {
    type FlightService = Service;

    async fn do_handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Pin<Box<dyn Stream<Item = Result<HandshakeResponse, Status>> + Send>>>, Status> {
        // Whoever comes here has shown the token.
        let answer = HandshakeResponse { protocol_version: 0, payload: Default::default() };
        let mut response: Response<Pin<Box<dyn Stream<Item = _> + Send>>> =
            Response::new(Box::pin(futures::stream::iter([Ok(answer)])));
        response.metadata_mut().insert("authorization", self.bearer.parse().map_err(broken)?);
        Ok(response)
    }

    async fn get_flight_info_statement(
        &self,
        query: CommandStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let schema = self.schema_of(&query.query).await?;
        let ticket = TicketStatementQuery { statement_handle: self.tickets.marked(query.query.as_bytes()).into() };
        self.info(&schema, &ticket, request.into_inner())
    }

    async fn do_get_statement(&self, ticket: TicketStatementQuery, request: Request<Ticket>) -> Result<Sent, Status> {
        self.answer(&ticket.statement_handle, &request).await
    }

    async fn do_action_create_prepared_statement(
        &self,
        query: ActionCreatePreparedStatementRequest,
        _: Request<Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let text = numbered(&query.query);
        let frame = self.planned(&text).await?;
        let ipc = |schema: &Schema| -> Result<_, Status> {
            let IpcMessage(bytes) = SchemaAsIpc::new(schema, &Default::default())
                .try_into()
                .map_err(|error: arrow::error::ArrowError| broken(error))?;
            Ok(bytes)
        };
        let parameters = parameters(&frame).map_err(status)?;
        let parameter_schema = match parameters.is_empty() {
            true => Default::default(),
            false => ipc(&Schema::new(parameters))?,
        };
        Ok(ActionCreatePreparedStatementResult {
            dataset_schema: ipc(&told(&frame))?,
            prepared_statement_handle: text.into_bytes().into(),
            parameter_schema,
        })
    }

    /// The handle with the values takes the place of the one without them.
    async fn do_put_prepared_statement_query(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<DoPutPreparedStatementResult, Status> {
        let row = prepared::values(request.into_inner()).await?;
        let handle = prepared::bound(&query.prepared_statement_handle, &row)?;
        Ok(DoPutPreparedStatementResult { prepared_statement_handle: Some(handle.into()) })
    }

    async fn do_action_close_prepared_statement(
        &self,
        _: ActionClosePreparedStatementRequest,
        _: Request<Action>,
    ) -> Result<(), Status> {
        Ok(())
    }

    async fn get_flight_info_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let schema = told(&self.planned_with(&query.prepared_statement_handle).await?);
        let marked = self.tickets.marked(&query.prepared_statement_handle).into();
        let ticket = CommandPreparedStatementQuery { prepared_statement_handle: marked };
        self.info(&schema, &ticket, request.into_inner())
    }

    async fn do_get_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<Ticket>,
    ) -> Result<Sent, Status> {
        self.answer(&query.prepared_statement_handle, &request).await
    }

    /// As Flight SQL had it before Flight itself could: the answer is wrapped otherwise.
    async fn do_action_cancel_query(
        &self,
        query: ActionCancelQueryRequest,
        _: Request<Action>,
    ) -> Result<ActionCancelQueryResult, Status> {
        let info = FlightInfo::decode(query.info).map_err(|_| Status::invalid_argument("it names no query"))?;
        self.cancelled(&info)?;
        Ok(ActionCancelQueryResult { result: CANCELLED })
    }

    async fn list_custom_actions(&self) -> Option<Vec<Result<ActionType, Status>>> {
        let description =
            "Cancels a query\nRequest Message: CancelFlightInfoRequest\nResponse Message: CancelFlightInfoResult";
        Some(vec![Ok(ActionType { r#type: CANCEL_FLIGHT_INFO.into(), description: description.into() })])
    }

    async fn do_action_fallback(
        &self,
        request: Request<Action>,
    ) -> Result<Response<<Self as FlightService>::DoActionStream>, Status> {
        let action = request.into_inner();
        if action.r#type != CANCEL_FLIGHT_INFO {
            return Err(Status::invalid_argument(format!("there is no action `{}`", action.r#type)));
        }
        let asked = CancelFlightInfoRequest::decode(action.body).ok().and_then(|request| request.info);
        self.cancelled(&asked.ok_or_else(|| Status::invalid_argument("it names no query"))?)?;
        let body = CancelFlightInfoResult { status: CancelStatus::Cancelled as i32 }.encode_to_vec().into();
        Ok(Response::new(Box::pin(futures::stream::iter([Ok(arrow_flight::Result { body })]))))
    }

    async fn do_put_statement_update(
        &self,
        _: CommandStatementUpdate,
        _: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        Err(Status::invalid_argument("SQL changes nothing here: it asks"))
    }

    async fn get_flight_info_catalogs(
        &self,
        query: CommandGetCatalogs,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.info(&query.into_builder().schema(), &query, request.into_inner())
    }
    async fn do_get_catalogs(&self, query: CommandGetCatalogs, _: Request<Ticket>) -> Result<Sent, Status> {
        let mut rows = query.into_builder();
        let schema = rows.schema();
        rows.append(CATALOG);
        Ok(self.send_one(rows.build(), schema))
    }

    async fn get_flight_info_schemas(
        &self,
        query: CommandGetDbSchemas,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.info(&query.clone().into_builder().schema(), &query, request.into_inner())
    }
    async fn do_get_schemas(&self, query: CommandGetDbSchemas, _: Request<Ticket>) -> Result<Sent, Status> {
        let mut rows = query.into_builder();
        let schema = rows.schema();
        let mut schemas: Vec<String> = self.tables().await?.into_iter().map(|(schema, _)| schema).collect();
        schemas.sort();
        schemas.dedup();
        schemas.iter().for_each(|schema| rows.append(CATALOG, schema));
        Ok(self.send_one(rows.build(), schema))
    }

    async fn get_flight_info_tables(
        &self,
        query: CommandGetTables,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.info(&query.clone().into_builder().schema(), &query, request.into_inner())
    }
    async fn do_get_tables(&self, query: CommandGetTables, _: Request<Ticket>) -> Result<Sent, Status> {
        let with_schemas = query.include_schema;
        let mut rows = query.into_builder();
        let schema = rows.schema();
        for (container, name) in self.tables().await? {
            let mut columns = Schema::empty();
            if with_schemas {
                let reference = format!("{}.{}", quoted(&container), quoted(&name));
                columns = self.schema_of(&format!("SELECT * FROM {reference}")).await?.as_ref().clone();
            }
            rows.append(CATALOG, container, name, "TABLE", &columns).map_err(broken)?;
        }
        Ok(self.send_one(rows.build(), schema))
    }

    async fn get_flight_info_table_types(
        &self,
        query: CommandGetTableTypes,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.info(&query.into_builder().schema(), &query, request.into_inner())
    }
    async fn do_get_table_types(&self, query: CommandGetTableTypes, _: Request<Ticket>) -> Result<Sent, Status> {
        let mut rows = query.into_builder();
        let schema = rows.schema();
        rows.append("TABLE");
        Ok(self.send_one(rows.build(), schema))
    }

    async fn get_flight_info_primary_keys(
        &self,
        query: CommandGetPrimaryKeys,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.info(&keys::primary(), &query, request.into_inner())
    }
    async fn do_get_primary_keys(&self, _: CommandGetPrimaryKeys, _: Request<Ticket>) -> Result<Sent, Status> {
        Ok(self.send_none(keys::primary()))
    }

    async fn get_flight_info_exported_keys(
        &self,
        query: CommandGetExportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.info(&keys::foreign(), &query, request.into_inner())
    }
    async fn do_get_exported_keys(&self, _: CommandGetExportedKeys, _: Request<Ticket>) -> Result<Sent, Status> {
        Ok(self.send_none(keys::foreign()))
    }

    async fn get_flight_info_imported_keys(
        &self,
        query: CommandGetImportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.info(&keys::foreign(), &query, request.into_inner())
    }
    async fn do_get_imported_keys(&self, _: CommandGetImportedKeys, _: Request<Ticket>) -> Result<Sent, Status> {
        Ok(self.send_none(keys::foreign()))
    }

    async fn get_flight_info_cross_reference(
        &self,
        query: CommandGetCrossReference,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.info(&keys::foreign(), &query, request.into_inner())
    }
    async fn do_get_cross_reference(&self, _: CommandGetCrossReference, _: Request<Ticket>) -> Result<Sent, Status> {
        Ok(self.send_none(keys::foreign()))
    }

    async fn get_flight_info_sql_info(
        &self,
        query: CommandGetSqlInfo,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.info(&query.clone().into_builder(&self.info).schema(), &query, request.into_inner())
    }
    async fn do_get_sql_info(&self, query: CommandGetSqlInfo, _: Request<Ticket>) -> Result<Sent, Status> {
        let rows = query.into_builder(&self.info);
        let schema = rows.schema();
        Ok(self.send_one(rows.build(), schema))
    }

    async fn register_sql_info(&self, _: i32, _: &SqlInfo) {}
}

/// Keys of tables, of which there are none: the columns that would tell of them.
mod keys {
    use terrace_analysis::arrow::datatypes::{DataType, Field, Schema};

    fn of(columns: &[(&str, DataType, bool)]) -> Schema {
        let fields =
            columns.iter().map(|(name, data_type, may_be_null)| Field::new(*name, data_type.clone(), *may_be_null));
        Schema::new(fields.collect::<Vec<Field>>())
    }

    pub fn primary() -> Schema {
        of(&[
            ("catalog_name", DataType::Utf8, true),
            ("db_schema_name", DataType::Utf8, true),
            ("table_name", DataType::Utf8, false),
            ("column_name", DataType::Utf8, false),
            ("key_name", DataType::Utf8, true),
            ("key_sequence", DataType::Int32, false),
        ])
    }

    pub fn foreign() -> Schema {
        of(&[
            ("pk_catalog_name", DataType::Utf8, true),
            ("pk_db_schema_name", DataType::Utf8, true),
            ("pk_table_name", DataType::Utf8, false),
            ("pk_column_name", DataType::Utf8, false),
            ("fk_catalog_name", DataType::Utf8, true),
            ("fk_db_schema_name", DataType::Utf8, true),
            ("fk_table_name", DataType::Utf8, false),
            ("fk_column_name", DataType::Utf8, false),
            ("key_sequence", DataType::Int32, false),
            ("fk_key_name", DataType::Utf8, true),
            ("pk_key_name", DataType::Utf8, true),
            ("update_rule", DataType::UInt8, false),
            ("delete_rule", DataType::UInt8, false),
        ])
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
