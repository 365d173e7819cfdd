//! Histograms of latencies: recorded by workers, sent as text, merged exactly.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use std::fmt::Write;

/// Nanoseconds up to an hour, three digits. All have these bounds, so merging adds bucket to bucket and loses nothing.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("the bounds are valid")
}

/// HdrHistogram's V2 format in hexadecimal.
pub fn encode(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(histogram, &mut bytes).expect("memory can be written");
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub fn decode(text: &str) -> Option<Histogram<u64>> {
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let bytes: Vec<u8> = (0..text.len()).step_by(2).map(byte).collect::<Option<_>>()?;
    Deserializer::new().deserialize(&mut bytes.as_slice()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_histograms_have_every_value_of_their_parts() {
        let (mut one, mut two, mut both) = (histogram(), histogram(), histogram());
        for value in 1..5000_u64 {
            let part = if value % 3 == 0 { &mut one } else { &mut two };
            part.record(value * value).unwrap();
            both.record(value * value).unwrap();
        }
        let mut merged = decode(&encode(&one)).unwrap();
        merged.add(decode(&encode(&two)).unwrap()).unwrap();
        assert_eq!(merged, both);
        assert!(decode("zz").is_none());
    }
}
