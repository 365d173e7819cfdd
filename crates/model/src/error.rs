//! What can be wrong with a question to the model: always the input, so every kind says which number to change.

use std::fmt;

#[derive(Clone, Debug, PartialEq)]
pub enum ModelError {
    /// A count or a bandwidth that must be above zero is not.
    NotPositive { what: &'static str, value: f64 },
    /// Bytes are to be moved through a tier that the profile names but no bandwidth is known for.
    TierCount { profile: usize, rates: usize },
}

impl fmt::Display for ModelError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelError::NotPositive { what, value } => {
                write!(formatter, "`{what}` is {value}, but the model needs a number above zero")
            }
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
