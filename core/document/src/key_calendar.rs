//! The calendar of a key: the time zone and the start of its windows, from an override or from the attributes of a request; and the
//! group of a request.

use std::sync::Arc;

use jiff::civil::Weekday;

use crate::attribute::Attribute;
use crate::attributes::{AttributeTable, Attributes, Reference};
use crate::key_template::single_placeholder;
use crate::model::CalendarAttributes;
use crate::tree::{Node, Refusal};
use polylimit_rules::error::{Error, excerpt};
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::Quota;
use polylimit_rules::quota::calendar::{CalendarStart, KeyOptions};
use polylimit_rules::zone::Zone;

/// The calendar in the table of an override.
pub(crate) fn read(node: &Node<'_>) -> Result<KeyOptions, Refusal> {
    Ok(KeyOptions {
        zone: node.get("zone").map(|zone| zone.read(Zone::parse)).transpose()?,
        from: node.get("from").map(|from| from.read(parse_start)).transpose()?,
        group: None,
    })
}

fn parse_start(text: &str) -> Result<CalendarStart, Error> {
    CalendarStart::parse(text).ok_or_else(|| {
        Error::invalid_argument(format!("from is {}: allowed are {}", excerpt(text), CalendarStart::ALLOWED))
    })
}

/// The attributes in the table of a policy.
pub(crate) fn read_attributes(policy: &Node<'_>) -> Result<CalendarAttributes, Refusal> {
    let attribute = |name| {
        let parse = |text: &str| parse_attribute(name, text);
        policy.get(name).map(|node: &Node<'_>| node.read(parse)).transpose()
    };
    Ok(CalendarAttributes { zone: attribute("zone")?, from: attribute("from")?, group: attribute("group")? })
}

/// Reads `{attribute}`. A policy has no path, so there are no captures.
fn parse_attribute(field: &str, text: &str) -> Result<Attribute, Error> {
    let attribute = single_placeholder(text).map(Attribute::parse).transpose()?;
    attribute.filter(|attribute| matches!(attribute, Attribute::Header(_) | Attribute::Provided(_))).ok_or_else(
        || {
            let otherwise = if field == "group" {
                String::new()
            } else {
                format!("; what is the same for all keys belongs to the quotas, such as 10_000/month {field}=...")
            };
            Error::invalid_argument(format!(
                "{field} is {}: allowed is one attribute that the application provides, such as \"{{{field}}}\", or a header{otherwise}",
                excerpt(text)
            ))
        },
    )
}

/// Refuses the calendar of an override that concerns none of its quotas, or with which two of them would be the same, also together with
/// what requests may hold.
///
/// # Errors
/// The field of the override, and invalid argument.
pub(crate) fn check_override(
    numbers: &Policy,
    own: &KeyOptions,
    attributes: &CalendarAttributes,
) -> Result<(), (&'static str, Error)> {
    let allowed = if own.zone.is_some() && !has_calendar(numbers) {
        ("zone", "zone concerns windows by the calendar, such as 10_000/month")
    } else if own.from.is_some_and(|from| !can_start(numbers, from)) {
        (
            "from",
            "from is a day such as 15 for months, a date such as 04-01 for years, and a weekday for weeks",
        )
    } else {
        let all = attributes.samples().into_iter().map(|sample| own.or(&sample));
        let field = if own.zone.is_some() { "zone" } else { "from" };
        return if own.is_empty() {
            Ok(())
        } else {
            check_differ(numbers, all).map_err(|error| (field, error))
        };
    };
    let (field, about) = allowed;
    Err((
        field,
        Error::invalid_argument(format!("{about}, and {numbers} has none that it applies to: leave it out")),
    ))
}

/// Refuses attributes that concern none of a policy's sets of quotas, or with which two quotas of a set would be the same.
///
/// # Errors
/// The field of the policy, and invalid argument.
pub(crate) fn check_attributes(
    sets: &[Policy],
    attributes: &CalendarAttributes,
) -> Result<(), (&'static str, Error)> {
    let refuse = |field: &'static str, about: &str| {
        let message = format!(
            "{field} concerns windows by the calendar {about}, and the policy has none: leave it out"
        );
        Err((field, Error::invalid_argument(message)))
    };
    if attributes.group.is_some() && sets.iter().any(|set| set.groups().is_none()) {
        let message = "group names one of the groups that share the policy, and it has no groups: add groups, or leave it out";
        return Err(("group", Error::invalid_argument(message)));
    }
    if attributes.zone.is_some() && !sets.iter().any(has_calendar) {
        return refuse("zone", "such as 10_000/month");
    }
    let starts = |set: &Policy| ANY_START.iter().any(|from| can_start(set, *from));
    if attributes.from.is_some() && !sets.iter().any(starts) {
        return refuse("from", "of weeks, months or years, such as 10_000/month");
    }
    let field = if attributes.zone.is_some() { "zone" } else { "from" };
    let mut checked = sets.iter().map(|set| check_differ(set, attributes.samples().into_iter()));
    checked.try_for_each(|checked| checked.map_err(|error| (field, error)))
}

fn has_calendar(numbers: &Policy) -> bool {
    numbers.quotas().iter().any(|quota| quota.calendar().is_some())
}

fn can_start(numbers: &Policy, from: CalendarStart) -> bool {
    numbers.quotas().iter().filter_map(Quota::calendar).any(|calendar| calendar.can_start(from))
}

/// Refuses quotas of which two are the same with one of these calendars.
fn check_differ(numbers: &Policy, mut calendars: impl Iterator<Item = KeyOptions>) -> Result<(), Error> {
    calendars
        .try_for_each(|own| numbers.of_key(&own).map(|_| ()))
        .map_err(|error| Error::invalid_argument(format!("with zone and from of a key, {}", error.message())))
}

/// One start of each kind.
const ANY_START: [CalendarStart; 3] =
    [CalendarStart::Day(1), CalendarStart::Date(1, 1), CalendarStart::Weekday(Weekday::Monday)];

/// Divides the plan of a request into its name and what may follow it: a calendar, as in `gold from=15 zone=Asia/Tokyo`, or a group, as
/// in `group=search`.
pub fn split_plan(plan: &[u8]) -> (&[u8], Option<&[u8]>) {
    if is_setting(plan) {
        return (b"", Some(plan));
    }
    match plan.iter().position(|byte| *byte == b' ') {
        Some(at) if is_setting(&plan[at + 1..]) => (&plan[..at], Some(&plan[at + 1..])),
        _ => (plan, None),
    }
}

fn is_setting(text: &[u8]) -> bool {
    [&b"zone="[..], b"from=", b"group="].iter().any(|name| text.starts_with(name))
}

/// Reads what follows a plan, such as `from=15 zone=Asia/Tokyo` or `group=search`.
///
/// # Errors
/// Invalid argument: it is none.
pub(crate) fn parse(settings: &[u8]) -> Result<KeyOptions, Error> {
    let text = String::from_utf8_lossy(settings);
    let mut own = KeyOptions::default();
    for setting in text.split(' ') {
        let read = match setting.split_once('=') {
            Some(("zone", zone)) if own.zone.is_none() => Zone::parse(zone).map(|zone| own.zone = Some(zone)),
            Some(("from", from)) if own.from.is_none() => parse_start(from).map(|from| own.from = Some(from)),
            Some(("group", group)) if own.group.is_none() && !group.is_empty() => {
                own.group = Some(group.into());
                Ok(())
            }
            _ => Err(Error::invalid_argument(format!(
                "it has {}: allowed are zone=NAME, from=START and group=NAME once, with a space between them",
                excerpt(setting)
            ))),
        };
        read.map_err(|error| {
            Error::invalid_argument(format!(
                "what follows the plan is {}: {}",
                excerpt(&text),
                error.message()
            ))
        })?;
    }
    Ok(own)
}

/// The plan of a request, followed by the calendar of a key.
pub fn plan_with(plan: Option<&[u8]>, own: &KeyOptions) -> String {
    let (name, settings) = plan.map_or((&b""[..], None), split_plan);
    let own = match settings.map(parse) {
        Some(Ok(settings)) => own.or(&settings),
        _ => own.clone(),
    };
    let mut text = String::from_utf8_lossy(name).into_owned();
    let settings = [
        ("zone", own.zone.map(|zone| zone.to_string())),
        ("from", own.from.map(|from| from.to_string())),
        ("group", own.group.map(|group| group.to_string())),
    ];
    for (name, value) in settings {
        let Some(value) = value else { continue };
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(name);
        text.push('=');
        text.push_str(&value);
    }
    text
}

impl CalendarAttributes {
    pub(crate) fn is_empty(&self) -> bool {
        self.zone.is_none() && self.from.is_none() && self.group.is_none()
    }

    /// One calendar of each kind that requests may hold.
    fn samples(&self) -> Vec<KeyOptions> {
        let zone = self.zone.as_ref().map(|_| Zone::UTC);
        let starts = self.from.iter().flat_map(|_| ANY_START).map(Some).chain([None]);
        starts.map(|from| KeyOptions { zone: zone.clone(), from, group: None }).collect()
    }

    /// The same attributes as a compiled configuration refers to them.
    pub(crate) fn compile(&self, table: &mut AttributeTable) -> CalendarAttributes<Reference> {
        let mut refer =
            |attribute: &Option<Attribute>| attribute.as_ref().map(|attribute| table.refer(attribute));
        CalendarAttributes { zone: refer(&self.zone), from: refer(&self.from), group: refer(&self.group) }
    }
}

impl CalendarAttributes<Reference> {
    /// The calendar that a request's attributes hold. An absent attribute leaves the quotas as they are.
    ///
    /// # Errors
    /// Invalid argument: an attribute is no time zone, or no start.
    pub(crate) fn of(&self, policy: &Policy, request: &Attributes<'_>) -> Result<KeyOptions, Error> {
        let value = |reference: &Option<Reference>| {
            let value = request.value(reference.as_ref()?)?;
            // What is not UTF-8 is no name of a zone and no start either.
            Some(String::from_utf8_lossy(value).into_owned())
        };
        let of_policy = |error: Error| {
            Error::invalid_argument(format!(
                "policy {} takes the calendar of a key from the request, whose {}",
                policy.name(),
                error.message()
            ))
        };
        Ok(KeyOptions {
            zone: value(&self.zone).map(|zone| Zone::parse(&zone)).transpose().map_err(of_policy)?,
            from: value(&self.from).map(|from| parse_start(&from)).transpose().map_err(of_policy)?,
            // The name of a group is one word, so others name none.
            group: value(&self.group).filter(|group| !group.contains(' ')).map(Arc::from),
        })
    }
}
