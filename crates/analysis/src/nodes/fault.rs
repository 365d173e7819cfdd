//! Errors of nodes. Of an error that is not its own the library carries the text alone, so on a node this text has all of it.

use crate::error::Error;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use terrace_client::ObjectError;

/// A session's, where what is read is read for another node.
pub struct ForAnotherNode;

/// Before an error of ours.
const OURS: &str = "terrace:";

/// How an operator's errors leave it: where it runs for another node, to be carried.
pub fn leaving(context: &TaskContext) -> impl Fn(DataFusionError) -> DataFusionError + use<> {
    let is_carried = context.session_config().get_extension::<ForAnotherNode>().is_some();
    move |error| if is_carried { carried(error) } else { error }
}

/// To be carried by its text.
pub fn carried(error: DataFusionError) -> DataFusionError {
    let DataFusionError::External(inner) = error.find_root() else { return error };
    let Some(Error { kind, message, hint }) = inner.downcast_ref() else { return error };
    let told = ObjectError { kind: *kind, message: message.clone(), hint: hint.clone() };
    match serde_json::to_string(&told) {
        Ok(text) => DataFusionError::External(format!("{OURS}{text}").into()),
        Err(_) => error,
    }
}

/// What was carried; `None`: it is no error of ours.
pub fn of_text(text: &str) -> Option<Error> {
    Some(serde_json::from_str::<ObjectError>(text.strip_prefix(OURS)?).ok()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_client::Kind;

    #[test]
    fn an_error_arrives_with_its_kind_and_its_hint() {
        for hint in [None, Some("start its agent")] {
            let error = Error { kind: Kind::Damaged, message: "a chunk\nis short".into(), hint: hint.map(Into::into) };
            let text = carried(DataFusionError::from(error).context("on the way")).to_string();
            let arrived = text.split_once("External error: ").expect("it is not the engine's own").1;
            let found = Error::from(DataFusionError::External(arrived.into()));
            assert_eq!(
                (found.kind, found.message.as_str(), found.hint.as_deref()),
                (Kind::Damaged, "a chunk\nis short", hint)
            );
        }
        let other = carried(DataFusionError::Execution("divided by zero".into()));
        assert!(matches!(other, DataFusionError::Execution(_)), "{other}");
        assert!(of_text("terrace: no such array").is_none());
    }
}
