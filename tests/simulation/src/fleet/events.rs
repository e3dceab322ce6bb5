//! What happens to the fleet, as text: `redis down 60s..90s; 10% partitioned 120s..130s; redis +20ms 180s..240s`.

use std::time::Duration;

use polylimit::raw::parse_duration;

/// Something that lasts for a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// What happens.
    pub what: What,
    /// When it begins, since the start.
    pub from: Duration,
    /// When it ends.
    pub to: Duration,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// The server does not run; it keeps its data.
    Down,
    /// This part of the processes hears nothing and reaches nothing.
    Partitioned(f64),
    /// Every reply takes this much longer.
    Slower(Duration),
}

impl What {
    /// Whether processes are without the server.
    pub fn is_outage(self) -> bool {
        !matches!(self, Self::Slower(_))
    }
}

/// Reads events.
///
/// # Errors
/// Says what was read and what is allowed.
pub fn parse_events(text: &str) -> Result<Vec<Event>, String> {
    text.split(';').map(str::trim).filter(|part| !part.is_empty()).map(parse_event).collect()
}

fn parse_event(text: &str) -> Result<Event, String> {
    let refuse = |reason: &str| {
        format!(
            "event {text:?}: {reason}; allowed are 'redis down FROM..TO', 'PERCENT% partitioned FROM..TO' and 'redis +TIME FROM..TO'"
        )
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    let [first, second, span] = words.as_slice() else { return Err(refuse("it has not three words")) };
    let time = |text: &str| parse_duration(text).map_err(|error| refuse(&error.to_string()));
    let what = match (*first, *second) {
        ("redis", "down") => What::Down,
        ("redis", slower) if slower.starts_with('+') => What::Slower(time(&slower[1..])?),
        (percent, "partitioned") => {
            let number = percent.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
            let part = number.filter(|number| *number > 0.0 && *number <= 100.0);
            What::Partitioned(part.ok_or_else(|| refuse("the part is more than 0% and up to 100%"))? / 100.0)
        }
        _ => return Err(refuse("nothing else can happen")),
    };
    let (from, to) = span.split_once("..").ok_or_else(|| refuse("the time is FROM..TO"))?;
    // A duration is more than nothing; an event may begin with the simulation.
    let from = if from == "0s" { Duration::ZERO } else { time(from)? };
    let to = time(to)?;
    if to <= from {
        return Err(refuse("it ends before it begins"));
    }
    Ok(Event { what, from, to })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read() {
        let seconds = Duration::from_secs;
        let read =
            parse_events("redis down 60s..90s; 10% partitioned 120s..130s; redis +20ms 0s..4m;").unwrap();
        assert_eq!(
            read,
            [
                Event { what: What::Down, from: seconds(60), to: seconds(90) },
                Event { what: What::Partitioned(0.1), from: seconds(120), to: seconds(130) },
                Event { what: What::Slower(Duration::from_millis(20)), from: seconds(0), to: seconds(240) },
            ]
        );
        assert_eq!(parse_events("").unwrap(), []);
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for wrong in [
            "redis down",
            "redis up 1s..2s",
            "redis down 2s..1s",
            "redis down 1s",
            "redis +x 1s..2s",
            "0% partitioned 1s..2s",
            "101% partitioned 1s..2s",
            "x partitioned 1s..2s",
        ] {
            assert!(parse_events(wrong).unwrap_err().contains("allowed are"), "{wrong}");
        }
    }
}
