//! As of when data says it is: times as sources print them.
//!
//! What is found here is shown and measured, never part of a proof: it is the source's clock, not ours. A time that
//! can't be read is unknown. It is never taken to be now, which is what a missing one looks like when it is guessed.

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, TimeZone, Utc};
use serde_json::Value;

/// The time in a value's field: as of when all of the value is.
///
/// `field` names a field of an object, or of each row of a list (also of the list called `rows` in an object); one that
/// starts with `/` is a JSON pointer. Of several rows the oldest time counts, because the answer is only as fresh as its
/// oldest part. It is `None` if there are no rows, or if any of them has no time that can be read.
///
/// ```
/// use coeval::reading::as_of;
/// use serde_json::json;
///
/// let rows = json!({"rows": [{"loaded_at": "2026-01-02 03:04:05+02"}, {"loaded_at": 1767315845}]});
/// assert_eq!(as_of::field(&rows, "loaded_at").unwrap().to_rfc3339(), "2026-01-02T01:04:05+00:00");
/// assert_eq!(as_of::field(&json!({"loaded_at": "last night"}), "loaded_at"), None);
/// ```
pub fn field(value: &Value, field: &str) -> Option<DateTime<Utc>> {
    if field.starts_with('/') {
        return time(value.pointer(field)?);
    }
    match value {
        Value::Object(object) => match (object.get(field), object.get("rows")) {
            (Some(value), _) => time(value),
            (None, Some(Value::Array(rows))) => oldest(rows, field),
            (None, _) => None,
        },
        Value::Array(rows) => oldest(rows, field),
        _ => None,
    }
}

fn oldest(rows: &[Value], field: &str) -> Option<DateTime<Utc>> {
    let times = rows.iter().map(|row| time(row.get(field)?));
    times.reduce(|a, b| Some(a?.min(b?))).flatten()
}

/// A time as a source prints it.
///
/// - RFC 3339 with any offset, also with a space for the `T`; the same without a zone, which is read as UTC; with `UTC`
///   or `GMT` for the offset, or an offset of hours alone. Any other zone's name is ambiguous, hence unknown.
/// - A date alone, as its first instant in UTC.
/// - An HTTP date.
/// - Time since 1970, a number or its text: in seconds, milliseconds, microseconds or nanoseconds, by its size. Whatever
///   would lie before 1973 or after 2200 isn't one (`20260102` is a date in disguise).
pub fn time(value: &Value) -> Option<DateTime<Utc>> {
    match value {
        Value::Number(number) => match number.as_i64() {
            Some(whole) => epoch(i128::from(whole) * NANOS),
            None => fraction(number.as_f64()?),
        },
        Value::String(text) => written(text.trim()),
        _ => None,
    }
}

fn written(text: &str) -> Option<DateTime<Utc>> {
    if let Ok(whole) = text.parse::<i64>() {
        return epoch(i128::from(whole) * NANOS);
    }
    if let Ok(number) = text.parse::<f64>() {
        return fraction(number);
    }
    if let Ok(time) = DateTime::parse_from_rfc3339(text).or_else(|_| DateTime::parse_from_rfc2822(text)) {
        return Some(time.to_utc());
    }
    if let Ok(date) = text.parse::<NaiveDate>() {
        return Some(Utc.from_utc_datetime(&date.and_time(NaiveTime::MIN)));
    }
    let (local, offset) = zone(text)?;
    let local = FORMATS
        .iter()
        .find_map(|format| NaiveDateTime::parse_from_str(local, format).ok())?;
    local
        .checked_sub_signed(offset)
        .map(|utc| Utc.from_utc_datetime(&utc))
}

const FORMATS: [&str; 4] = [
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%dT%H:%M",
];

/// Splits a timestamp into its local part and its offset from UTC.
fn zone(text: &str) -> Option<(&str, chrono::TimeDelta)> {
    for name in ["UTC", "GMT", "Z"] {
        let end = text.len().checked_sub(name.len())?;
        if let Some((local, last)) = text.split_at_checked(end)
            && last.eq_ignore_ascii_case(name)
        {
            return Some((local.trim_end(), chrono::TimeDelta::zero()));
        }
    }
    // The date has hyphens too; an offset's sign comes after the hour.
    let time = text.find(':')?;
    let Some(sign) = text[time..].find(['+', '-']).map(|sign| sign + time) else {
        return Some((text, chrono::TimeDelta::zero()));
    };
    let (local, offset) = text.split_at(sign);
    let digits: String = offset[1..].chars().filter(|digit| *digit != ':').collect();
    if !matches!(digits.len(), 2 | 4) || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let (hours, minutes) = (
        digits[..2].parse::<i64>().ok()?,
        digits[2..].parse::<i64>().unwrap_or(0),
    );
    if hours > 23 || minutes > 59 {
        return None;
    }
    let offset_minutes = (hours * 60 + minutes) * if offset.starts_with('-') { -1 } else { 1 };
    Some((local.trim_end(), chrono::TimeDelta::minutes(offset_minutes)))
}

const NANOS: i128 = 1_000_000_000;

/// Where the plausible seconds begin and end: 1973 and 2200.
const SECONDS: std::ops::Range<i128> = 100_000_000..7_258_118_400;

/// Time since 1970, given as a billion times the number, whatever unit the number has: at most one fits.
fn epoch(scaled: i128) -> Option<DateTime<Utc>> {
    [1, 1_000, 1_000_000, 1_000_000_000]
        .into_iter()
        .find_map(|per_second| {
            let nanos = scaled / per_second;
            if !SECONDS.contains(&(nanos / NANOS)) {
                return None;
            }
            i64::try_from(nanos).ok().map(DateTime::from_timestamp_nanos)
        })
}

/// As [`epoch`], of a number with a fraction. It has microseconds at best.
fn fraction(number: f64) -> Option<DateTime<Utc>> {
    // Nanoseconds of the year 2200 are 7.3e18; a scaled number of them stays far within the integer's range.
    let fits = number.is_finite() && number.abs() < 1e19;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the size was just checked, and the rest is rounded on purpose"
    )]
    let micros = fits.then(|| (number * 1e6).round() as i128)?;
    epoch(micros * 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn utc(text: &str) -> Option<DateTime<Utc>> {
        Some(text.parse().unwrap())
    }

    /// One instant, as eighteen sources might print it.
    #[test]
    fn the_same_instant_in_different_formats_is_the_same_instant() {
        let instant = utc("2026-01-02T03:04:05.123Z");
        for value in [
            json!("2026-01-02T03:04:05.123Z"),
            json!("2026-01-02t03:04:05.123z"),
            json!("2026-01-02T05:04:05.123+02:00"),
            json!("2026-01-01T22:04:05.123-05:00"),
            json!("2026-01-02T03:04:05.123000-00:00"),
            json!("2026-01-02T03:04:05.123"),
            json!("2026-01-02 03:04:05.123"),
            json!("  2026-01-02 03:04:05.123 "),
            json!("2026-01-02 03:04:05.123 UTC"),
            json!("2026-01-02 03:04:05.123Z"),
            json!("2026-01-02 03:04:05.123+00"),
            json!("2026-01-02 08:34:05.123+0530"),
            json!("2026-01-02 08:34:05.123 +05:30"),
            json!(1_767_323_045.123),
            json!("1767323045.123"),
            json!(1_767_323_045_123_i64),
            json!("1767323045123"),
            json!(1_767_323_045_123_000_i64),
            json!(1_767_323_045_123_000_000_i64),
        ] {
            assert_eq!(time(&value), instant, "{value}");
        }
        assert_eq!(time(&json!(1_767_323_045)), utc("2026-01-02T03:04:05Z"));
        assert_eq!(
            time(&json!("Fri, 02 Jan 2026 03:04:05 GMT")),
            utc("2026-01-02T03:04:05Z")
        );
        assert_eq!(time(&json!("2026-01-02 03:04")), utc("2026-01-02T03:04:00Z"));
        assert_eq!(time(&json!("2026-01-02")), utc("2026-01-02T00:00:00Z"));
    }

    /// AT-22: unknown stays unknown.
    #[test]
    fn what_cannot_be_read_is_unknown() {
        for value in [
            json!(null),
            json!(true),
            json!(""),
            json!("now"),
            json!("0000-00-00"),
            json!("0000-00-00 00:00:00"),
            json!("2026-02-30 00:00:00"),
            json!("2026-01-02 03:04:05 CET"),
            json!("2026-01-02 03:04:05 America/New_York"),
            json!("2026-01-02 03:04:05+2"),
            json!("2026-01-02 03:04:05+99:00"),
            json!("03:04:05"),
            json!("02/01/2026"),
            json!(0),
            json!(-1),
            json!(20_260_102),
            json!("20260102"),
            json!(20_260_102_030_405_i64),
            json!(u64::MAX),
            json!("NaN"),
            json!("inf"),
            json!("1e300"),
            json!({"time": 1}),
            json!(["2026-01-02"]),
            json!("é"),
            json!("12:é+"),
        ] {
            assert_eq!(time(&value), None, "{value}");
        }
    }

    #[test]
    fn a_field_of_rows_is_as_old_as_the_oldest_row() {
        let rows = json!([{"at": "2026-01-02 03:00:00"}, {"at": "2026-01-01 03:00:00"}]);
        let oldest = utc("2026-01-01T03:00:00Z");
        assert_eq!(field(&rows, "at"), oldest);
        assert_eq!(field(&json!({"columns": [], "rows": rows}), "at"), oldest);
        assert_eq!(
            field(&json!({"meta": {"at": "2026-01-01T03:00:00Z"}}), "/meta/at"),
            oldest
        );
        assert_eq!(
            field(&json!({"at": "2026-01-01", "rows": rows}), "at"),
            utc("2026-01-01T00:00:00Z")
        );
    }

    #[test]
    fn rows_without_a_readable_time_make_the_whole_unknown() {
        for value in [
            json!([]),
            json!({"rows": []}),
            json!([{"at": "2026-01-02"}, {"at": null}]),
            json!([{"at": null}, {"at": "2026-01-02"}]),
            json!([{"at": "2026-01-02"}, {}]),
            json!([{"at": "2026-01-02"}, 7]),
            json!({}),
            json!("2026-01-02"),
        ] {
            assert_eq!(field(&value, "at"), None, "{value}");
        }
    }
}
