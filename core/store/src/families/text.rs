//! Families as text: the format of Prometheus and that of `OpenMetrics`, which differ in few places.

use std::fmt::{self, Write as _};

use crate::families::{Family, FamilyKind, SampleValue, TextFormat};

impl TextFormat {
    /// Writes families; those without samples are left out.
    pub fn write(self, families: &[Family]) -> String {
        let mut text = String::new();
        for family in families.iter().filter(|family| !family.samples.is_empty()) {
            // Writing into a text does not fail.
            let _ = self.write_family(family, &mut text);
        }
        if self == Self::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }

    fn write_family(self, family: &Family, text: &mut String) -> fmt::Result {
        let Family { name, help, kind, samples } = family;
        // In `OpenMetrics` the samples of a counter have a name that its family has not.
        let family_name = match (self, kind) {
            (Self::OpenMetrics, FamilyKind::Counter) => name.strip_suffix("_total").unwrap_or(name),
            _ => name,
        };
        write!(text, "# HELP {family_name} ")?;
        self.write_help(help, text);
        writeln!(text, "\n# TYPE {family_name} {}", kind.name())?;
        for sample in samples {
            match &sample.value {
                SampleValue::Count(count) => {
                    write_name(name, &sample.labels, None, text)?;
                    writeln!(text, "{count}")?;
                }
                SampleValue::Number(number) => {
                    write_name(name, &sample.labels, None, text)?;
                    writeln!(text, "{}", Float(*number))?;
                }
                SampleValue::Histogram { buckets, sum, count } => {
                    let infinite = (f64::INFINITY, *count);
                    for (bound, count) in buckets.iter().chain([&infinite]) {
                        let bound = Float(*bound).to_string();
                        write_name(&format!("{name}_bucket"), &sample.labels, Some(&bound), text)?;
                        writeln!(text, "{count}")?;
                    }
                    write_name(&format!("{name}_sum"), &sample.labels, None, text)?;
                    writeln!(text, "{}", Float(*sum))?;
                    write_name(&format!("{name}_count"), &sample.labels, None, text)?;
                    writeln!(text, "{count}")?;
                }
            }
        }
        Ok(())
    }

    fn write_help(self, help: &str, text: &mut String) {
        for letter in help.chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '"' if self == Self::OpenMetrics => text.push_str("\\\""),
                letter => text.push(letter),
            }
        }
    }
}

/// Writes a sample's name and labels, and the bound of a bucket, up to its value.
fn write_name(
    name: &str,
    labels: &[(&'static str, Box<str>)],
    bound: Option<&str>,
    text: &mut String,
) -> fmt::Result {
    text.push_str(name);
    let labels =
        labels.iter().map(|(label, value)| (*label, &**value)).chain(bound.map(|bound| ("le", bound)));
    let mut before = '{';
    for (label, value) in labels {
        write!(text, "{before}{label}=\"")?;
        for letter in value.chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                letter => text.push(letter),
            }
        }
        text.push('"');
        before = ',';
    }
    text.push_str(if before == ',' { "} " } else { " " });
    Ok(())
}

/// A number as both formats write it: whole numbers with `.0`, as `OpenMetrics` wants the bounds of buckets.
struct Float(f64);

impl fmt::Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_infinite() {
            return f.write_str(if self.0 > 0.0 { "+Inf" } else { "-Inf" });
        }
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_escape_labels_and_name_counters_as_they_want() {
        let mut counter = Family::new("a_total", FamilyKind::Counter, "A \"count\" \\ of\nlines.");
        counter.add([("policy", "a\"b\\c\nd"), ("result", "allowed")], SampleValue::Count(7));
        let mut gauge = Family::new("b_units", FamilyKind::Gauge, "Units.");
        gauge.add([], SampleValue::Number(1.0));
        let empty = Family::new("c_total", FamilyKind::Counter, "Nothing.");
        let families = [counter, gauge, empty];
        assert_eq!(
            TextFormat::Prometheus.write(&families),
            "# HELP a_total A \"count\" \\\\ of\\nlines.\n# TYPE a_total counter\n\
             a_total{policy=\"a\\\"b\\\\c\\nd\",result=\"allowed\"} 7\n\
             # HELP b_units Units.\n# TYPE b_units gauge\nb_units 1.0\n"
        );
        assert_eq!(
            TextFormat::OpenMetrics.write(&families),
            "# HELP a A \\\"count\\\" \\\\ of\\nlines.\n# TYPE a counter\n\
             a_total{policy=\"a\\\"b\\\\c\\nd\",result=\"allowed\"} 7\n\
             # HELP b_units Units.\n# TYPE b_units gauge\nb_units 1.0\n# EOF\n"
        );
    }

    #[test]
    fn a_histogram_ends_with_the_bucket_of_everything() {
        let mut family = Family::new("d_seconds", FamilyKind::Histogram, "Times.");
        let buckets = vec![(0.001, 1), (1.0, 3)];
        family.add([("a", "b")], SampleValue::Histogram { buckets, sum: 2.5, count: 4 });
        let lines = TextFormat::Prometheus.write(&[family]);
        let samples: Vec<_> = lines.lines().skip(2).collect();
        let expected = [
            "d_seconds_bucket{a=\"b\",le=\"0.001\"} 1",
            "d_seconds_bucket{a=\"b\",le=\"1.0\"} 3",
            "d_seconds_bucket{a=\"b\",le=\"+Inf\"} 4",
            "d_seconds_sum{a=\"b\"} 2.5",
            "d_seconds_count{a=\"b\"} 4",
        ];
        assert_eq!(samples, expected);
    }
}
