//! SAVIME's language: a front end onto the same tables and plans as SQL's (`terrace-analysis`).
//!
//! ```text
//!   text ─▶ words ─▶ tree ─▶ definitions: containers, arrays, tags          (`tar`, `define`, `dataset`, `subtar`)
//!                        └─▶ queries: data frames over grids ─▶ batches     (`relation`, `query`, `expression`)
//! ```
//!
//! Invariant: there is no catalogue of its own. A TAR made here is a table of SQL, a Zarr group and a container of objects; and any
//! container whose arrays share dimensions is a TAR.

mod dataset;
mod define;
mod elements;
mod expression;
mod files;
mod lexer;
mod query;
mod relation;
mod rows;
mod save;
mod store;
mod subtar;
mod syntax;
mod tar;
mod vectors;
mod vtk;

pub use elements::name_of_arrow;
pub use lexer::{is_complete, split};

use arrow::array::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{FutureExt, StreamExt};
use std::panic::AssertUnwindSafe;
use syntax::{Node, name_of};
use terrace_analysis::front_end::engine_failed;
use terrace_analysis::{Batches, Engine, Error, Queries, Result, stream};
use terrace_client::{Kind, Session};
use vectors::Vectors;

/// In the metadata of a result's fields: whether one is a dimension or an attribute.
pub const ELEMENT: &str = "terrace.element";
pub const DIMENSION: &str = "dimension";
pub const ATTRIBUTE: &str = "attribute";

/// Whether any text is read as a tree or refused; for tests that feed it noise.
pub fn check(text: &str) -> Result<()> {
    syntax::parse(text).map(|_| ())
}

/// Runs the commands of a text, one after the other, and gives what the last one says: a query's rows, or one row that says what
/// was done. At an error it stops; what was done before it stays.
pub async fn run(queries: &Queries, text: &str) -> Result<SendableRecordBatchStream> {
    let commands = split(text);
    let mut last = None;
    for (number, command) in commands.iter().enumerate() {
        let done = AssertUnwindSafe(one(queries, command)).catch_unwind().await;
        let done = done.unwrap_or_else(|_| Err(engine_failed()));
        let done = done.map_err(|error| match commands.len() {
            1 => error,
            _ => Error { message: format!("command {}: {}", number + 1, error.message), ..error },
        });
        last = Some(done?);
    }
    last.ok_or_else(|| Error::invalid("there is no command").hint("show(); scan(tar);"))
}

/// The same for programs that don't wait in an async runtime.
pub fn run_on<'a>(engine: &'a Engine, text: &str) -> Result<Batches<'a>> {
    engine.batches(text, run(engine.queries(), text))
}

async fn one(queries: &Queries, text: &str) -> Result<SendableRecordBatchStream> {
    match syntax::parse(text)? {
        Node::Call(name, arguments) if query::is_query(&name) => {
            rows(query::relation(queries, &Node::Call(name, arguments))?).await
        }
        Node::Call(name, arguments) if name == "show" => match arguments.is_empty() {
            true => Ok(of_batch(define::show(&queries.objects().session)?)),
            false => Err(Error::invalid("`show` takes no arguments")),
        },
        Node::Call(name, arguments) if name == "store" => {
            said(&with_name(&name, store::store(queries, &arguments).await)?)
        }
        Node::Call(name, arguments) if name == "catalyze" => {
            said(&with_name(&name, vtk::catalyze(queries, &arguments).await)?)
        }
        Node::Call(name, arguments) => said(&with_name(&name, define(&queries.objects().session, &name, &arguments))?),
        _ => Err(Error::invalid("a command is a name with arguments in brackets")),
    }
}

fn said(message: &str) -> Result<SendableRecordBatchStream> {
    Ok(of_batch(rows::done(message)?))
}

/// What failed, in words that name the command.
fn with_name<T>(name: &str, done: Result<T>) -> Result<T> {
    done.map_err(|error| match error.message.starts_with('`') {
        true => error,
        false => Error { message: format!("{name}: {}", error.message), ..error },
    })
}

fn only_name<'a>(name: &str, arguments: &'a [Node]) -> Result<&'a str> {
    match arguments {
        [one] => name_of(one),
        _ => Err(Error::invalid(format!("`{name}` takes one name: {} arguments are given", arguments.len()))),
    }
}

fn define(session: &Session, name: &str, arguments: &[Node]) -> Result<String> {
    match name {
        "create_type" => define::create_type(session, arguments),
        "create_tar" | "create_tars" => define::create_tar(session, arguments),
        "create_dataset" => dataset::create(session, arguments),
        "load_subtar" => subtar::load(session, arguments),
        "drop_tar" | "drop_tars" => define::drop_tar(session, only_name(name, arguments)?),
        "drop_type" => define::drop_type(session, only_name(name, arguments)?),
        "drop_dataset" => dataset::drop(session, only_name(name, arguments)?),
        "save" => save::save(session, arguments),
        "batch" => batch(session, arguments),
        "delete" => Err(Error::invalid("`delete` is refused: cells that were loaded stay as they are")
            .hint("store(where(t, condition), \"name\") keeps what is wanted, and drop_tar(\"t\") lets the rest go")),
        _ => Err(Error::new(Kind::NotFound, format!("there is no command `{name}`")).hint(
            "create_type, create_tar, create_dataset, load_subtar, drop_tar, drop_type, drop_dataset, show, batch, save, store, \
             catalyze; select, where, subset, derive, cross, dimjoin, equijoin, aggregate, slice, att2dim, union, translate, split, \
             reorient, scan",
        )),
    }
}

/// `batch(ddl,…)`: one definition after the other, until one fails.
fn batch(session: &Session, arguments: &[Node]) -> Result<String> {
    let mut told = vec![];
    for (number, argument) in arguments.iter().enumerate() {
        let Node::Call(name, inner) = argument else {
            return Err(Error::invalid(format!("`batch` has no command as its argument {}", number + 1)));
        };
        let done = define(session, name, inner).map_err(|error| {
            let stay = if number == 0 { "" } else { "; those before it were done" };
            Error { message: format!("`batch`: its command {}, {name}: {}{stay}", number + 1, error.message), ..error }
        });
        told.push(done?);
    }
    Ok(told.join("; "))
}

fn of_batch(batch: RecordBatch) -> SendableRecordBatchStream {
    Box::pin(RecordBatchStreamAdapter::new(batch.schema(), futures::stream::iter([Ok(batch)])))
}

/// A query's rows, with what is a dimension said in the metadata of fields, and vectors as one column.
async fn rows(relation: relation::Relation) -> Result<SendableRecordBatchStream> {
    let relation = relation.dimensions_first()?;
    let schema = relation.frame.schema().as_arrow().clone();
    let fields: Vec<_> = schema
        .fields()
        .iter()
        .zip(&relation.elements)
        .map(|(field, element)| {
            let kind = if element.is_dimension() { DIMENSION } else { ATTRIBUTE };
            field.as_ref().clone().with_metadata([(ELEMENT.to_owned(), kind.to_owned())].into())
        })
        .collect();
    let vectors = Vectors::of(fields);
    let schema = vectors.schema.clone();
    let stream = stream(relation.frame).await?;
    let block = relation.block.unwrap_or(usize::MAX);
    let batches = stream.flat_map(move |batch| {
        let blocks: Vec<_> = match batch {
            Err(error) => vec![Err(error)],
            Ok(batch) => {
                let starts = (0..batch.num_rows()).step_by(block.min(batch.num_rows().max(1)));
                let slice = |first: usize| batch.slice(first, block.min(batch.num_rows() - first));
                starts.map(slice).map(|block| vectors.batch(&block).map_err(Into::into)).collect()
            }
        };
        futures::stream::iter(blocks)
    });
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
}
