//! Queries of the program that started this one: each a length and a text on the standard input; answered on the standard output
//! by a byte that says how it went, and rows and another such byte, or an error: a length, and message and hint.
//!
//! Bits of the length say more: the highest one that the text is of SAVIME's language; the next one that the rows are wanted as a text with
//! its length before it, as `--format savime` writes them, and the third one with it that the text is what the page shows; the fourth one
//! that they are wanted in chunks: a byte on the standard input asks for some rows, for all or for no more of them; a chunk that is known to be
//! the last says so, and nothing is asked after it. Else they are an Arrow stream.
//!
//! Why a process and not a library: DataFusion in an interpreter would be 60 MB more to load for programs that ask nothing.

use crate::chunks::{Chunks, Wanted};
use crate::language::Language;
use crate::lending::Lender;
use crate::output::{self, Format};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Read, StdinLock, Write};
use terrace_analysis::{Batches, Engine};
use terrace_tool::failure::Failure;

const ROWS: u8 = 0;
const ERROR: u8 = 1;
const CHUNK: u8 = 2;
/// The chunk and that it was the last.
const LAST_CHUNK: u8 = 3;
const ASKS_FOR_SOME: u8 = 0;
const ASKS_FOR_ALL: u8 = 1;
const IS_SAVIME: u32 = 1 << 31;
const AS_TEXT: u32 = 1 << 30;
const FOR_PAGE: u32 = 1 << 29;
const IN_CHUNKS: u32 = 1 << 28;
/// How often it is looked whether a query's end is wanted, while nobody asks for its rows.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
const QUERY_BYTES_MAX: u32 = 16 << 20;

pub fn serve(engine: &Engine, lender: Option<&Lender>) -> Result<(), Failure> {
    let broken = |error: std::io::Error| Failure::new(format!("the program that asks is gone: {error}"));
    let mut input = std::io::stdin().lock();
    loop {
        let mut length = [0; 4];
        match input.read_exact(&mut length) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            read => read.map_err(broken)?,
        }
        let flags = u32::from_le_bytes(length);
        let length = flags & !(IS_SAVIME | AS_TEXT | FOR_PAGE | IN_CHUNKS);
        if length > QUERY_BYTES_MAX {
            return Err(Failure::invalid(format!("a query of {length} bytes: at most {QUERY_BYTES_MAX}")));
        }
        let mut text = vec![0; length as usize];
        input.read_exact(&mut text).map_err(broken)?;
        let text = String::from_utf8_lossy(&text);
        let mut out = std::io::BufWriter::with_capacity(1 << 20, std::io::stdout());
        let language = if flags & IS_SAVIME != 0 { Language::Savime } else { Language::Sql };
        match language.run(engine, &text) {
            Ok(batches) if flags & AS_TEXT != 0 => {
                let mut rows = vec![];
                let format = if flags & FOR_PAGE != 0 { Format::Page } else { Format::Savime };
                match output::write(batches, format, &mut rows) {
                    Ok(()) => {
                        out.write_all(&[ROWS]).map_err(broken)?;
                        out.write_all(&(rows.len() as u64).to_le_bytes()).map_err(broken)?;
                        out.write_all(&rows).map_err(broken)?;
                    }
                    Err(failure) => tell(&mut out, &failure.message, failure.hint.as_deref()).map_err(broken)?,
                }
            }
            Ok(batches) if flags & IN_CHUNKS != 0 => tell_in_chunks(batches, lender, &mut input, &mut out)?,
            Ok(batches) => {
                out.write_all(&[ROWS]).map_err(broken)?;
                // What fails among the rows ends the stream without its end: the error follows it.
                match output::write(batches, Format::Arrow, &mut out) {
                    Ok(()) => out.write_all(&[ROWS]).map_err(broken)?,
                    Err(failure) => {
                        out.write_all(&END_OF_STREAM).map_err(broken)?;
                        tell(&mut out, &failure.message, failure.hint.as_deref()).map_err(broken)?;
                    }
                }
            }
            Err(error) => tell(&mut out, &error.message, error.hint.as_deref()).map_err(broken)?,
        }
        out.flush().map_err(broken)?;
    }
}

/// Or at its end; within a moment. What was asked before was answered, so nothing of it waits in the lock's own buffer.
fn is_readable(input: &StdinLock<'_>) -> bool {
    poll(&mut [PollFd::new(input, PollFlags::IN)], Some(&LOOK)) != Ok(0)
}

/// The query's number and the schema, then chunks as they are asked for. Err: nobody asks any more.
fn tell_in_chunks(
    batches: Batches<'_>,
    lender: Option<&Lender>,
    input: &mut StdinLock<'_>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let broken = |error: std::io::Error| Failure::new(format!("the program that asks is gone: {error}"));
    let id = batches.id().unwrap_or_default().to_owned();
    let mut chunks = Chunks::new(batches, lender);
    let schema = match chunks.schema() {
        Ok(schema) => schema,
        Err(failure) => return tell(out, &failure.message, failure.hint.as_deref()).map_err(broken),
    };
    out.write_all(&[ROWS]).map_err(broken)?;
    for told in [id.as_bytes(), &schema] {
        out.write_all(&(told.len() as u32).to_le_bytes()).map_err(broken)?;
        out.write_all(told).map_err(broken)?;
    }
    loop {
        out.flush().map_err(broken)?;
        // What is to end does not wait until somebody asks.
        while !is_readable(input) {
            chunks.look();
        }
        let mut asked = [0; 1];
        input.read_exact(&mut asked).map_err(broken)?;
        let wanted = match asked[0] {
            ASKS_FOR_SOME => Wanted::Some,
            ASKS_FOR_ALL => Wanted::All,
            _ => return out.write_all(&[ROWS]).map_err(broken),
        };
        let mut told = vec![CHUNK];
        match chunks.tell(wanted, &mut told) {
            Ok(true) => {
                if chunks.is_whole() {
                    told[0] = LAST_CHUNK;
                    return out.write_all(&told).map_err(broken);
                }
                out.write_all(&told).map_err(broken)?;
            }
            Ok(false) => return out.write_all(&[ROWS]).map_err(broken),
            Err(failure) => return tell(out, &failure.message, failure.hint.as_deref()).map_err(broken),
        }
    }
}

/// What ends a stream of Arrow's IPC.
const END_OF_STREAM: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

fn tell(out: &mut impl Write, message: &str, hint: Option<&str>) -> std::io::Result<()> {
    let text = format!("{message}\u{0}{}", hint.unwrap_or_default());
    out.write_all(&[ERROR])?;
    out.write_all(&(text.len() as u32).to_le_bytes())?;
    out.write_all(text.as_bytes())
}
