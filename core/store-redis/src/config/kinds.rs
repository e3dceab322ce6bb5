//! The kinds of options: how the values of each are parsed, checked and shown.
//!
//! The range of a number is written once, as readable text: `1ms to 60s`.

use std::path::PathBuf;
use std::time::Duration;

use rustls_pki_types::ServerName;

use crate::config::address_map::AddressMap;
use crate::config::target::{Fingerprint, Secret};
use polylimit_document::source::place::{ConfigurationPlace, is_path};
use polylimit_rules::error::excerpt;
use polylimit_store::duration;
use polylimit_store::option::OptionKind;
use polylimit_store::outage::Outage;
use polylimit_store::share::{Ppm, WHOLE};

pub(crate) trait Kind {
    /// The type that the setter takes.
    type Argument: Into<Self::Value>;
    /// The type that is stored.
    type Value: Clone + PartialEq;
    /// The text form, if `allowed` does not describe it.
    const FORM: &'static str = "";
    /// The type in the public list of options.
    const SHOWN: OptionKind = OptionKind::Text;
    /// Whether a value must not be shown.
    const SECRET: bool = false;

    /// Parses a value, which need not be in range; `None` when the text has another form.
    fn read(text: &str) -> Option<Self::Value>;

    /// Whether the value is allowed by its row.
    fn allows(allowed: &str, value: &Self::Value) -> bool;

    /// Formats the value for a message.
    fn show(value: &Self::Value) -> String;
}

macro_rules! kinds {
    ($(
        $(#[$doc:meta])*
        $name:ident($argument:ty) -> $value:ty {
            $(const $constant:ident: $type:ty = $set:expr;)*
            read: $read:expr,
            allows: $allows:expr,
            show: $show:expr,
        }
    )*) => {$(
        $(#[$doc])*
        pub(crate) enum $name {}

        impl Kind for $name {
            type Argument = $argument;
            type Value = $value;
            $(const $constant: $type = $set;)*

            fn read(text: &str) -> Option<$value> {
                let read: fn(&str) -> Option<$value> = $read;
                read(text)
            }

            fn allows(allowed: &str, value: &$value) -> bool {
                let allows: fn(&str, &$value) -> bool = $allows;
                allows(allowed, value)
            }

            fn show(value: &$value) -> String {
                let show: fn(&$value) -> String = $show;
                show(value)
            }
        }
    )*};
}

kinds! {
    Time(Duration) -> Duration {
        const SHOWN: OptionKind = OptionKind::Duration;
        const FORM: &'static str = ", as a whole number of us, ms, s, m or h";
        read: duration::read,
        allows: |allowed, time| within(allowed, time, duration::read),
        show: |time| duration::write(*time),
    }

    /// A number of items.
    Count(u32) -> u32 {
        const SHOWN: OptionKind = OptionKind::Number;
        // `parse` alone would take a plus sign.
        read: |text| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?,
        allows: |allowed, count| within(allowed, count, Self::read),
        show: u32::to_string,
    }

    /// A number of bytes.
    Size(usize) -> usize {
        const SHOWN: OptionKind = OptionKind::Number;
        const FORM: &'static str = ", as a whole number of bytes, KiB or MiB";
        read: read_size,
        allows: |allowed, size| within(allowed, size, Self::read),
        show: |size| match *size {
            bytes if bytes > 0 && bytes.is_multiple_of(MIB) => format!("{}MiB", bytes / MIB),
            bytes if bytes > 0 && bytes.is_multiple_of(KIB) => format!("{}KiB", bytes / KIB),
            bytes => bytes.to_string(),
        },
    }

    /// A fraction, more than 0 and up to 1.
    Share(f64) -> Ppm {
        const SHOWN: OptionKind = OptionKind::Number;
        read: Ppm::read,
        allows: |_, share| share.is_allowed(),
        show: |Ppm(parts)| {
            let text = format!("{}.{:06}", parts / WHOLE, parts % WHOLE);
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        },
    }

    /// An outage policy.
    Choice(Outage) -> Outage {
        read: Outage::from_name,
        allows: |_, _| true,
        show: |outage| outage.name().to_owned(),
    }

    /// The prefix of all keys.
    Prefix(Box<str>) -> Box<str> {
        read: |text| Some(text.into()),
        allows: |_, text| (1..=64).contains(&text.len()) && text.bytes().all(is_readable),
        show: |text| excerpt(text),
    }

    /// The name of a connection: Redis allows neither spaces nor line ends in it.
    ClientName(Box<str>) -> Box<str> {
        read: |text| Some(text.into()),
        allows: |_, text| (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()),
        show: |text| excerpt(text),
    }

    /// The name in a certificate.
    HostName(Box<str>) -> Box<str> {
        read: |text| Some(text.into()),
        allows: |_, text| ServerName::try_from(&**text).is_ok(),
        show: |text| excerpt(text),
    }

    /// Addresses that servers announce, and the reachable ones.
    Addresses(Box<str>) -> Box<str> {
        read: |text| Some(text.into()),
        allows: |_, text| AddressMap::read(text).is_some(),
        show: |text| excerpt(text),
    }

    /// Where a configuration comes from.
    Source(Box<str>) -> Box<str> {
        read: |text| Some(text.into()),
        allows: |_, text| ConfigurationPlace::read(text).is_some(),
        show: |text| excerpt(text),
    }

    /// The path of a file.
    File(PathBuf) -> PathBuf {
        read: |text| Some(text.into()),
        allows: |_, path| is_path(path),
        show: |path| format!("{:?}", path.to_string_lossy()),
    }

    /// Fingerprints of certificates, with commas between them.
    Fingerprints(Box<str>) -> Box<str> {
        const FORM: &'static str = ", as openssl x509 -fingerprint -sha256 prints one after the =";
        read: |text| Some(text.into()),
        allows: |_, text| read_fingerprints(text).is_some(),
        show: |text| excerpt(text),
    }

    Flag(bool) -> bool {
        read: |text| text.parse().ok(),
        allows: |_, _| true,
        show: bool::to_string,
    }

    /// A program and its arguments.
    Program(Box<str>) -> Box<str> {
        read: |text| Some(text.into()),
        allows: |_, text| (1..=4096).contains(&text.len()) && !text.trim_ascii().is_empty() && !text.contains('\0'),
        show: |text| excerpt(text),
    }

    /// Text that is never shown.
    Hidden(Box<str>) -> Secret {
        const SECRET: bool = true;
        read: |text| Some(Secret::from(Box::from(text))),
        allows: |_, secret| (1..=16_384).contains(&secret.reveal().len()),
        show: |_| "***".to_owned(),
    }
}

/// The fingerprints in a text, each of 32 bytes in hexadecimal digits, with or without colons between the bytes.
pub(crate) fn read_fingerprints(text: &str) -> Option<Box<[Fingerprint]>> {
    let read = |text: &str| {
        let digits = text.replace(':', "");
        let is_hexadecimal = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_grouped = !text.contains(':') || text.split(':').all(|byte| byte.len() == 2);
        let mut bytes = Fingerprint::default();
        for (at, byte) in bytes.iter_mut().enumerate().filter(|_| is_hexadecimal && is_grouped) {
            *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
        }
        (is_hexadecimal && is_grouped).then_some(bytes)
    };
    let all: Option<Box<[_]>> = text.split(',').map(read).collect();
    all.filter(|all| all.len() <= 8)
}

/// Whether a value is in a range such as `1 to 100`, or is 0 where the range says `0 (...), or 1 to 100`.
fn within<T: PartialOrd + Default>(allowed: &str, value: &T, read: fn(&str) -> Option<T>) -> bool {
    let (zero, range) = match allowed.split_once(", or ") {
        Some((_, range)) => (*value == T::default(), range),
        None => (false, allowed),
    };
    let bounds = range.split_once(" to ").and_then(|(least, most)| Some(read(least)?..=read(most)?));
    zero || bounds.is_some_and(|bounds| bounds.contains(value))
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn read_size(text: &str) -> Option<usize> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "" => 1,
        "KiB" => KIB,
        "MiB" => MIB,
        _ => return None,
    };
    number.parse::<usize>().ok()?.checked_mul(unit)
}

/// Whether a byte represents itself in a key: it is printable, and is no brace, `%` or `#`.
pub(crate) const fn is_readable(byte: u8) -> bool {
    READABLE[byte as usize]
}

const READABLE: [bool; 256] = {
    let readable = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~@:/+=,;!$&'()*|";
    let mut table = [false; 256];
    let mut at = 0;
    while at < readable.len() {
        table[readable[at] as usize] = true;
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_its_ends() {
        for (value, held) in [(0, false), (1, true), (7, true), (100, true), (101, false)] {
            assert_eq!(Count::allows("1 to 100", &value), held, "{value}");
        }
        assert!(Count::allows("0 (never), or 5 to 6", &0));
        assert!(!Count::allows("0 (never), or 5 to 6", &1));
        assert!(!Count::allows("any", &1));
    }

    #[test]
    fn fingerprints_are_as_openssl_prints_them() {
        let (plain, colons) = ("0aFF".repeat(16), ["0A:ff"; 16].join(":"));
        let expected: Vec<u8> = [0x0a, 0xff].repeat(16);
        for text in [&plain, &colons, &format!("{plain},{colons}")] {
            assert!(read_fingerprints(text).unwrap().iter().all(|one| one[..] == expected), "{text}");
        }
        assert_eq!(read_fingerprints(&format!("{plain},{colons}")).unwrap().len(), 2);
        let many = [&*plain; 9].join(",");
        for text in [
            "",
            "ab",
            &plain[2..],
            &format!("{plain}00"),
            &format!("{plain},"),
            "+a".repeat(32).as_str(),
            &many,
        ] {
            assert_eq!(read_fingerprints(text), None, "{text}");
        }
        let shifted = format!("0a:{}", &plain[2..]);
        assert_eq!(read_fingerprints(&shifted), None);
    }

    #[test]
    fn counts_are_digits() {
        assert_eq!(Count::read("0016384"), Some(16_384));
        for text in ["", "-1", "+1", "1.0", "1e3", " 1", "1_000", "4294967296", "99999999999999999999", "NaN"]
        {
            assert_eq!(Count::read(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_bytes_or_binary_units() {
        let table =
            [("0", 0, "0"), ("1000", 1000, "1000"), ("2048", 2048, "2KiB"), ("16MiB", 16 * MIB, "16MiB")];
        for (text, bytes, shown) in table {
            assert_eq!(Size::read(text), Some(bytes), "{text}");
            assert_eq!(Size::show(&bytes), shown);
        }
        for text in ["", "MiB", "1MB", "1 KiB", "1kib", "-1", "1.5MiB", "99999999999999999999"] {
            assert_eq!(Size::read(text), None, "{text}");
        }
    }

    #[test]
    fn shares_are_exact_to_a_millionth() {
        let table = [
            ("1", WHOLE, "1"),
            ("0.5", 500_000, "0.5"),
            ("1.0", WHOLE, "1"),
            ("0.333333", 333_333, "0.333333"),
            ("0.000001", 1, "0.000001"),
        ];
        for (text, parts, shown) in table {
            let parts = Ppm(parts);
            assert_eq!(Share::read(text), Some(parts), "{text}");
            assert_eq!(Share::show(&parts), shown);
            assert_eq!(Ppm::from(text.parse::<f64>().unwrap()), parts);
            assert!(Share::allows("", &parts));
        }
        for text in ["", ".", "1.", ".5", "0.0000001", "-0.5", "+0.5", "1e-3", "0,5", "NaN", "inf", "99999"] {
            assert_eq!(Share::read(text), None, "{text}");
        }
        for share in [0.0, -0.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.1, 1e308, 4e-7] {
            assert!(!Share::allows("", &Ppm::from(share)), "{share}");
        }
        assert_eq!(Ppm::from(1.0 / 3.0), Ppm(333_333));
    }
}
