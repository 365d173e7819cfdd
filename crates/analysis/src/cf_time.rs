//! `cf_time(t, 'days since 2000-01-01', 'standard')`: times as the climate and forecast conventions (CF) write them, numbers since a
//! moment, as timestamps of microseconds, in UTC.
//!
//! Calendars: `standard` (`gregorian`), which begins on 1582-10-15 here, and `proleptic_gregorian`. In others a day may not exist that a
//! timestamp can say, so they are refused, as are months and years, which have no fixed length.

use crate::error::{Error, Result};
use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, TimeUnit, TimestampMicrosecondType};
use datafusion::common::ScalarValue;
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use std::sync::Arc;

pub fn cf_time() -> ScalarUDF {
    ScalarUDF::new_from_impl(CfTime { signature: Signature::user_defined(Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CfTime {
    signature: Signature,
}

const SECOND_US: i64 = 1_000_000;
const DAY_US: i64 = 86_400 * SECOND_US;

/// What numbers are counted in, and from when.
#[derive(Debug, PartialEq)]
struct Units {
    step_us: i64,
    since_us: i64,
    /// Nothing is before it.
    first_us: i64,
}

impl Units {
    fn parse(text: &str, calendar: &str) -> Result<Units> {
        let wrong = |why: &str| {
            Error::invalid(format!("cf_time: the units `{}` can't be used: {why}", text.escape_debug()))
                .hint("days since 2000-01-01; hours since 1970-01-01 00:00:00")
        };
        let (step, since) = text.trim().split_once(" since ").ok_or_else(|| wrong("there is no `since`"))?;
        let step_us = match step.trim().to_ascii_lowercase().as_str() {
            "week" | "weeks" => 7 * DAY_US,
            "day" | "days" | "d" => DAY_US,
            "hour" | "hours" | "hr" | "hrs" | "h" => 3600 * SECOND_US,
            "minute" | "minutes" | "min" | "mins" => 60 * SECOND_US,
            "second" | "seconds" | "sec" | "secs" | "s" => SECOND_US,
            "millisecond" | "milliseconds" | "millisec" | "msec" | "ms" => 1000,
            "microsecond" | "microseconds" | "microsec" | "us" => 1,
            "month" | "months" | "year" | "years" => return Err(wrong("months and years have no fixed length")),
            other => return Err(wrong(&format!("`{other}` is no unit of time"))),
        };
        let first_us = match calendar.to_ascii_lowercase().as_str() {
            // Before it, days of this calendar are those of Julius Caesar.
            "standard" | "gregorian" => days(1582, 10, 15) * DAY_US,
            "proleptic_gregorian" => i64::MIN,
            other => {
                return Err(Error::invalid(format!("cf_time: the calendar `{other}` has days that no timestamp has"))
                    .hint("standard, gregorian and proleptic_gregorian are known"));
            }
        };
        let since_us = moment(since.trim()).ok_or_else(|| wrong("what follows `since` is no date"))?;
        if since_us < first_us {
            return Err(wrong("it begins before 1582-10-15, where the standard calendar is another"));
        }
        Ok(Units { step_us, since_us, first_us })
    }

    fn whole(&self, number: i64) -> Result<i64> {
        let time = number.checked_mul(self.step_us).and_then(|passed| passed.checked_add(self.since_us));
        time.filter(|&time| time >= self.first_us).ok_or_else(|| self.beyond(number))
    }

    fn real(&self, number: f64) -> Result<i64> {
        // The whole steps and the rest apart, so that no digit is lost of what is said exactly.
        let (steps, rest) = (number.trunc(), number.fract());
        if steps.abs() >= i64::MAX as f64 {
            return Err(self.beyond(number));
        }
        let time = self.whole(steps as i64)?.checked_add((rest * self.step_us as f64).round() as i64);
        time.filter(|&time| time >= self.first_us).ok_or_else(|| self.beyond(number))
    }

    fn beyond(&self, number: impl std::fmt::Display) -> Error {
        Error::invalid(format!("cf_time: {number} is a time that can't be said"))
            .hint("the standard calendar begins on 1582-10-15 here; proleptic_gregorian reaches further back")
    }
}

/// `2000-1-1`, with `T` or a space and `h:m:s.f` behind it, in UTC, in microseconds since 1970.
fn moment(text: &str) -> Option<i64> {
    let text = text.trim_end_matches("UTC").trim_end_matches('Z').trim_end();
    let text = text.strip_suffix("+00:00").unwrap_or(text).trim_end();
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "0"));
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let is_digits = |part: &str| !part.is_empty() && part.len() <= 4 && part.bytes().all(|byte| byte.is_ascii_digit());
    if parts.next().is_some() || ![year, month, day].into_iter().all(is_digits) {
        return None;
    }
    let (year, month, day): (i64, i64, i64) = (year.parse().ok()?, month.parse().ok()?, day.parse().ok()?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 => 28 + is_leap as i64,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=last).contains(&day) {
        return None;
    }
    let parts: Vec<&str> = time.trim().split(':').collect();
    let (whole, seconds) = match parts[..] {
        [hour] => ([hour, "0"], "0"),
        [hour, minute] => ([hour, minute], "0"),
        [hour, minute, second] => ([hour, minute], second),
        _ => return None,
    };
    let (second, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    if ![whole[0], whole[1], second].into_iter().all(is_digits) || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (hour, minute, second): (i64, i64, i64) =
        (whole[0].parse().ok()?, whole[1].parse().ok()?, second.parse().ok()?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let micros = (format!("0.{fraction}").parse::<f64>().ok()? * SECOND_US as f64).round() as i64;
    Some(days(year, month, day) * DAY_US + (hour * 3600 + minute * 60 + second) * SECOND_US + micros)
}

/// Days from 1970-01-01 to a day of the Gregorian calendar. A year begins in March, so that a leap day is its last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn text(value: Option<&ColumnarValue>) -> Result<&str> {
    match value {
        Some(ColumnarValue::Scalar(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)))) => Ok(text),
        _ => Err(Error::invalid("cf_time: units and calendar are texts, the same for all rows")
            .hint("cf_time(time, 'days since 2000-01-01', 'standard')")),
    }
}

impl ScalarUDFImpl for CfTime {
    fn name(&self) -> &str {
        "cf_time"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        let is_text = |data_type: &DataType| matches!(data_type, DataType::Utf8 | DataType::Utf8View);
        let number = match types {
            [number, texts @ ..] if matches!(texts.len(), 1 | 2) && texts.iter().all(is_text) => number,
            _ => {
                return Err(Error::invalid(
                    "cf_time() takes a number, its units and, if it is not standard, its calendar",
                )
                .hint("cf_time(time, 'days since 2000-01-01', 'standard')")
                .into());
            }
        };
        let number = match number {
            DataType::Null => DataType::Int64,
            DataType::UInt64 => return Err(Error::invalid("cf_time() is not of 64-bit unsigned integers").into()),
            whole if whole.is_integer() => DataType::Int64,
            real if real.is_numeric() => DataType::Float64,
            other => return Err(Error::invalid(format!("cf_time() is of numbers, not of {other}")).into()),
        };
        Ok([number].into_iter().chain(types[1..].iter().cloned()).collect())
    }
    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Timestamp(TimeUnit::Microsecond, None))
    }
    fn invoke_with_args(&self, called: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let calendar = if called.args.len() > 2 { text(called.args.get(2))? } else { "standard" };
        let units = Units::parse(text(called.args.get(1))?, calendar)?;
        let is_constant = matches!(called.args[0], ColumnarValue::Scalar(_));
        let numbers = called.args[0].to_array(if is_constant { 1 } else { called.number_rows })?;
        let times = times(&units, &numbers)?;
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&times, 0)?),
            false => ColumnarValue::Array(times),
        })
    }
}

/// What is missing, or no number, is no time.
fn times(units: &Units, numbers: &ArrayRef) -> Result<ArrayRef> {
    let times: Vec<Option<i64>> = match numbers.data_type() {
        DataType::Int64 => {
            let numbers = numbers.as_primitive::<Int64Type>();
            numbers.iter().map(|number| number.map(|number| units.whole(number)).transpose()).collect::<Result<_>>()?
        }
        _ => {
            let numbers = cast(numbers, &DataType::Float64)?;
            let numbers = numbers.as_primitive::<Float64Type>().iter();
            let numbers = numbers.map(|number| number.filter(|number| !number.is_nan()));
            numbers.map(|number| number.map(|number| units.real(number)).transpose()).collect::<Result<_>>()?
        }
    };
    Ok(Arc::new(PrimitiveArray::<TimestampMicrosecondType>::from(times)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_say_what_is_counted_and_from_when() {
        let of = |text: &str| Units::parse(text, "standard").map(|units| (units.step_us, units.since_us)).unwrap();
        assert_eq!(of("days since 1970-01-01"), (DAY_US, 0));
        assert_eq!(of("Days since 2000-3-1 00:00:00"), (DAY_US, 11_017 * DAY_US));
        assert_eq!(of("hours since 1900-01-01T12:30Z"), (3600 * SECOND_US, -25_567 * DAY_US + 45_000 * SECOND_US));
        assert_eq!(of("seconds since 1970-01-01 0:0:1.25 UTC"), (SECOND_US, 1_250_000));
        for (text, calendar) in [
            ("days", "standard"),
            ("days since yesterday", "standard"),
            ("days since 2001-02-29", "standard"),
            ("days since 2001-13-01", "standard"),
            ("days since 2001-01-01 24:00", "standard"),
            ("days since 2001-01-01 00:00 +02:00", "standard"),
            ("months since 2001-01-01", "standard"),
            ("days since 0001-01-01", "standard"),
            ("days since 2001-01-01", "noleap"),
        ] {
            assert!(Units::parse(text, calendar).is_err(), "{text}, {calendar}");
        }
        let early = Units::parse("days since 0001-01-01", "proleptic_gregorian").unwrap();
        assert_eq!(early.whole(719_162).unwrap(), 0);
    }

    #[test]
    fn times_are_exact_or_an_error() {
        let units = Units::parse("days since 2000-01-01", "standard").unwrap();
        assert_eq!(units.real(0.25).unwrap(), 10_957 * DAY_US + DAY_US / 4);
        assert_eq!(units.real(-1.5).unwrap(), 10_957 * DAY_US - DAY_US * 3 / 2);
        assert!(units.whole(i64::MAX).is_err() && units.real(1e300).is_err() && units.whole(-200_000).is_err());
    }
}
