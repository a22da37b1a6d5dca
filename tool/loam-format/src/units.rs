//! Figures for people: binary prefixes for memory, decimal ones for counts and rates.

use serde::{Deserialize, Serialize};

use crate::plain;

/// The unit of a figure, which determines how it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Events per second.
    PerSecond,
    /// Seconds.
    Seconds,
    /// Nanoseconds.
    Nanoseconds,
    /// Bytes.
    Bytes,
    /// A part of a whole; 0.15 is written 15%.
    Percent,
    /// A plain number.
    Count,
    /// A quotient.
    Ratio,
}

impl Unit {
    /// The figure with its unit.
    pub fn show(self, value: f64) -> String {
        if !value.is_finite() {
            return "-".to_owned();
        }
        match self {
            Unit::PerSecond => format!("{}/s", decimal(value)),
            Unit::Seconds => seconds(value),
            Unit::Nanoseconds => seconds(value * 1e-9),
            Unit::Bytes => bytes(value),
            Unit::Percent => format!("{}%", significant(value * 100.0)),
            Unit::Count => decimal(value),
            Unit::Ratio => ratio(value),
        }
    }
}

/// `1.93x`
pub fn ratio(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}x")
    } else if value >= 10.0 {
        format!("{value:.1}x")
    } else {
        format!("{value:.2}x")
    }
}

/// `21.3 M`
pub fn decimal(value: f64) -> String {
    let (scaled, prefix) = match value.abs() {
        v if v >= 1e12 => (value / 1e12, " T"),
        v if v >= 1e9 => (value / 1e9, " G"),
        v if v >= 1e6 => (value / 1e6, " M"),
        v if v >= 1e4 => (value / 1e3, " k"),
        v if v >= 1e3 || value.fract() == 0.0 => return format!("{value:.0}"),
        _ => (value, ""),
    };
    format!("{}{prefix}", significant(scaled))
}

/// `1,600,000`
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The part of a size that each of so many events has: `1.75 bytes an event`
pub fn bytes_an_event(bytes: u64, events: u64) -> String {
    format!("{:.2} bytes an event", bytes as f64 / events.max(1) as f64)
}

/// An amount with its sign: `+1.20 GiB`
pub fn signed(amount: i64, show: impl Fn(u64) -> String) -> String {
    let sign = if amount < 0 { '-' } else { '+' };
    format!("{sign}{}", show(amount.unsigned_abs()))
}

/// A part in percent.
pub fn percent(part: u64, whole: u64) -> String {
    decimal(100.0 * part as f64 / whole.max(1) as f64)
}

/// `1.20 GiB`
pub fn bytes(value: f64) -> String {
    const STEPS: [(f64, &str); 4] = [
        (1099511627776.0, "TiB"),
        (1073741824.0, "GiB"),
        (1048576.0, "MiB"),
        (1024.0, "KiB"),
    ];
    for (size, name) in STEPS {
        if value.abs() >= size {
            return format!("{} {name}", significant(value / size));
        }
    }
    // Rust's sum of nothing is -0.0.
    format!("{:.0} B", value + 0.0)
}

/// The first of some amounts as shares of all: `a 96 %, b 4 %`.
pub fn shares<'a>(amounts: impl Iterator<Item = (&'a str, f64)>, all: f64, most: usize) -> String {
    let shown = amounts.take(most).map(|(name, amount)| {
        let share = 100.0 * amount / all;
        format!("{} {share:.0} %", plain::line(name))
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// `1.20 s`, `35.0 ms`, `2 min 05 s`
pub fn seconds(value: f64) -> String {
    match value.abs() {
        v if v >= 90.0 => duration(value),
        v if v >= 1.0 => format!("{} s", significant(value)),
        v if v >= 1e-3 => format!("{} ms", significant(value * 1e3)),
        v if v >= 1e-6 => format!("{} us", significant(value * 1e6)),
        v if v > 0.0 => format!("{} ns", significant(value * 1e9)),
        _ => "0 s".to_owned(),
    }
}

/// A span of time in whole seconds: `2 min 05 s`.
pub fn duration(value: f64) -> String {
    let total = value.max(0.0).round() as u64;
    let (hours, minutes, seconds) = (total / 3600, total / 60 % 60, total % 60);
    if hours > 0 {
        format!("{hours} h {minutes:02} min")
    } else if minutes > 0 {
        format!("{minutes} min {seconds:02} s")
    } else {
        format!("{seconds} s")
    }
}

/// Three significant digits, no exponent.
fn significant(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_as_people_write_them() {
        assert_eq!(Unit::PerSecond.show(21_345_678.0), "21.3 M/s");
        assert_eq!(Unit::Bytes.show(1_288_490_189.0), "1.20 GiB");
        assert_eq!(Unit::Bytes.show(512.0), "512 B");
        assert_eq!(Unit::Bytes.show(-0.0), "0 B");
        assert_eq!(Unit::Percent.show(0.1534), "15.3%");
        assert_eq!(Unit::Seconds.show(0.035), "35.0 ms");
        assert_eq!(Unit::Seconds.show(125.4), "2 min 05 s");
        assert_eq!(Unit::Nanoseconds.show(1500.0), "1.50 us");
        assert_eq!(Unit::Count.show(12.0), "12");
        assert_eq!(Unit::Count.show(25_600_000.0), "25.6 M");
        assert_eq!(Unit::Ratio.show(1.934), "1.93x");
        assert_eq!(Unit::Ratio.show(f64::NAN), "-");
        assert_eq!(grouped(1_600_000), "1,600,000");
        assert_eq!((grouped(0), grouped(999)), ("0".into(), "999".into()));
        assert_eq!(signed(-2048, |size| bytes(size as f64)), "-2.00 KiB");
        assert_eq!(
            (signed(1000, grouped), percent(1, 8)),
            ("+1,000".into(), "12.5".into())
        );
    }

    #[test]
    fn rounding_does_not_add_a_digit() {
        assert_eq!(Unit::Percent.show(0.09996), "10.0%");
        assert_eq!(duration(59.7), "1 min 00 s");
    }
}
