//! Queries of the program that started this one: each a length and a text on the standard input; answered on the standard output
//! by a byte that says how it went, and rows and another such byte, or an error: a length, and message and hint.
//!
//! The highest bit of the length says that the text is of SAVIME's language; the next one that the rows are wanted as a text with
//! its length before it, as `--format savime` writes them, and the third one with it that the text is what the page shows. Else they
//! are an Arrow stream.
//!
//! Why a process and not a library: DataFusion in an interpreter would be 60 MB more to load for programs that ask nothing.

use crate::language::Language;
use crate::output::{self, Format};
use std::io::{ErrorKind, Read, Write};
use terrace_analysis::Engine;
use terrace_tool::failure::Failure;

const ROWS: u8 = 0;
const ERROR: u8 = 1;
const IS_SAVIME: u32 = 1 << 31;
const AS_TEXT: u32 = 1 << 30;
const FOR_PAGE: u32 = 1 << 29;
const QUERY_BYTES_MAX: u32 = 16 << 20;

pub fn serve(engine: &Engine) -> Result<(), Failure> {
    let broken = |error: std::io::Error| Failure::new(format!("the program that asks is gone: {error}"));
    let mut input = std::io::stdin().lock();
    loop {
        let mut length = [0; 4];
        match input.read_exact(&mut length) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            read => read.map_err(broken)?,
        }
        let flags = u32::from_le_bytes(length);
        let length = flags & !(IS_SAVIME | AS_TEXT | FOR_PAGE);
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

/// What ends a stream of Arrow's IPC.
const END_OF_STREAM: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

fn tell(out: &mut impl Write, message: &str, hint: Option<&str>) -> std::io::Result<()> {
    let text = format!("{message}\u{0}{}", hint.unwrap_or_default());
    out.write_all(&[ERROR])?;
    out.write_all(&(text.len() as u32).to_le_bytes())?;
    out.write_all(text.as_bytes())
}
