//! What can be wrong with a question to the model: always the input, so every kind says which number to change.

use std::fmt;

#[derive(Clone, Debug, PartialEq)]
pub enum ModelError {
    /// A count or a bandwidth that must be above zero is not.
    NotPositive { what: &'static str, value: f64 },
    /// A time or a part that can't be below zero is, or is no number.
    Negative { what: &'static str, value: f64 },
    /// A number is above what another allows.
    TooLarge { what: &'static str, value: f64, limit: f64 },
    /// A list that must say something is empty.
    Missing { what: &'static str, why: &'static str },
    /// Bytes are to be moved through a tier that the profile names but no bandwidth is known for.
    TierCount { profile: usize, rates: usize },
}

impl fmt::Display for ModelError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelError::NotPositive { what, value } => {
                write!(formatter, "`{what}` is {value}, but the model needs a number above zero")
            }
            ModelError::Negative { what, value } => {
                write!(formatter, "`{what}` is {value}, but the model needs zero or more")
            }
            ModelError::TooLarge { what, value, limit } => {
                write!(formatter, "`{what}` is {value}, but {limit} is the most that there can be")
            }
            ModelError::Missing { what, why } => write!(formatter, "`{what}` is missing: {why}"),
            ModelError::TierCount { profile, rates } => write!(
                formatter,
                "the run used {profile} tiers, but bandwidths are given for {rates}: give one for each tier, in order"
            ),
        }
    }
}

impl std::error::Error for ModelError {}

/// `Ok` when `value` is above zero (infinite is fine, not-a-number is not).
pub(crate) fn positive(what: &'static str, value: f64) -> Result<f64, ModelError> {
    if value > 0.0 { Ok(value) } else { Err(ModelError::NotPositive { what, value }) }
}
