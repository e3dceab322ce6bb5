//! The tables of the core, so that JavaScript repeats none of them.

use napi_derive::napi;
use polylimit::headers::{HeaderStyle, ResetForm};
use polylimit::{Algorithm, Degradation, ErrorKind, ForwardingHeader, Outage, Source};

/// One row of the table of errors.
#[napi(object, object_from_js = false)]
pub struct ErrorRow {
    pub code: &'static str,
    pub number: i32,
}

/// The names that the core knows.
#[napi(object, object_from_js = false)]
pub struct Tables {
    pub version: &'static str,
    pub errors: Vec<ErrorRow>,
    pub sources: Vec<&'static str>,
    pub degradations: Vec<&'static str>,
    pub outages: Vec<&'static str>,
    pub algorithms: Vec<&'static str>,
    pub header_styles: Vec<&'static str>,
    pub reset_forms: Vec<&'static str>,
    pub forwarding_headers: Vec<&'static str>,
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
        degradations: Degradation::ALL.iter().map(|degradation| degradation.name()).collect(),
        outages: Outage::ALL.iter().map(|outage| outage.name()).collect(),
        algorithms: Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect(),
        header_styles: HeaderStyle::ALL.iter().map(|style| style.name()).collect(),
        reset_forms: ResetForm::ALL.iter().map(|form| form.name()).collect(),
        forwarding_headers: vec![ForwardingHeader::XForwardedFor.name(), ForwardingHeader::Forwarded.name()],
    }
}
