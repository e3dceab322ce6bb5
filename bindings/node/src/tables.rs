//! The core's tables of names and options, so that JavaScript does not repeat them.

use napi_derive::napi;
use polylimit::admin::{PolicyMode, QuotasSource};
use polylimit::decision::{Cause, Degradation, Source};
use polylimit::http::ForwardingHeader;
use polylimit::quota::Algorithm;
use polylimit::raw::{OptionKind, OptionPlace, Suggestion};
use polylimit::storage::Outage;
use polylimit::{ErrorKind, LimiterBuilder};

/// A row of the error table.
#[napi(object, object_from_js = false)]
pub struct ErrorRow {
    pub code: &'static str,
    pub number: i32,
}

/// The names of each table, in the order of their numbers.
#[napi(object, object_from_js = false)]
pub struct Tables {
    pub version: &'static str,
    pub errors: Vec<ErrorRow>,
    pub sources: Vec<&'static str>,
    pub causes: Vec<&'static str>,
    pub degradations: Vec<&'static str>,
    pub outages: Vec<&'static str>,
    pub algorithms: Vec<&'static str>,
    pub forwarding_headers: Vec<&'static str>,
    pub quotas_sources: Vec<&'static str>,
    pub policy_modes: Vec<&'static str>,
}

/// All tables.
#[napi]
pub fn tables() -> Tables {
    Tables {
        version: env!("CARGO_PKG_VERSION"),
        errors: ErrorKind::ALL
            .iter()
            .map(|kind| ErrorRow { code: kind.code(), number: kind.number() })
            .collect(),
        sources: Source::ALL.iter().map(|source| source.name()).collect(),
        causes: Cause::ALL.iter().map(|cause| cause.name()).collect(),
        degradations: Degradation::ALL.iter().map(|degradation| degradation.name()).collect(),
        outages: Outage::ALL.iter().map(|outage| outage.name()).collect(),
        algorithms: Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect(),
        forwarding_headers: ForwardingHeader::ALL.iter().map(|header| header.name()).collect(),
        quotas_sources: QuotasSource::ALL.iter().map(|source| source.name()).collect(),
        policy_modes: PolicyMode::ALL.iter().map(|mode| mode.name()).collect(),
    }
}

/// An option of a limiter, as it is described in the core.
#[napi(object, object_from_js = false)]
pub struct OptionRow {
    pub name: &'static str,
    pub about: &'static str,
    pub allowed: &'static str,
    pub default: Option<&'static str>,
    pub kind: &'static str,
}

/// What an error says about an unknown option: which one to use. `position` is what the options belong to,
/// empty where no other limiter has such options; `known` are their names.
#[napi]
pub fn option_advice(name: String, position: String, known: Vec<String>) -> String {
    let place = match &*position {
        "limiter" => OptionPlace::Limiter,
        "request" => OptionPlace::Request,
        "list" => OptionPlace::List,
        "guard" => OptionPlace::Guard,
        _ => {
            return match Suggestion::nearest(&name, known.iter().map(|name| &**name)) {
                Some(nearest) => format!("did you mean {nearest}?"),
                None => format!("allowed are {}", known.join(", ")),
            };
        }
    };
    let known: Vec<&str> = known.iter().map(|name| &**name).collect();
    Suggestion::advice(&name, place, &known)
}

/// All options of a limiter.
#[napi]
pub fn limiter_options() -> Vec<OptionRow> {
    let row = |option: polylimit::raw::StoreOption| OptionRow {
        name: option.name,
        about: option.about,
        allowed: option.allowed,
        default: option.default,
        kind: match option.kind {
            OptionKind::Duration => "duration",
            OptionKind::Number => "number",
            _ => "text",
        },
    };
    LimiterBuilder::options().into_iter().map(row).collect()
}
