//! Reports, in direct calls.
//!
//! | operation | number | target | arguments |
//! |---|---:|---|---|
//! | list | 40 | limiter | options, form |
//! | scan top | 41 | limiter | how many keys (`i64`), options, form |
//! | reset listed | 42 | limiter | options, form |
//! | explain | 43 | limiter | a check's request, form |
//! | explain request | 44 | limiter | attributes, form |
//! | top keys | 45 | limiter | how many keys (`i64`) |
//! | metrics | 46 | limiter | |
//!
//! **Options:** policy, prefix of keys, cursor (bytes or none), and `at_least_used`, `entries`, `examined` and `pace_percent`, each
//! whether it is given (`u8`) and the number (`i64`).
//!
//! **Form** (`u8`): [`JSON`], or [`RECORD`] for a language that has the type of the report.
//!
//! **Answer:** the kind [`REPORT`](super::report::REPORT) (`u8`) and the report in its form (bytes). Top keys and metrics have the form [`JSON`].

use polylimit::raw::{Call, report_json};

use crate::direct::configured::attributes;
use crate::direct::layout::{Header, Reader, malformed};
use crate::direct::queue::Then;
use crate::direct::report::{Form, Report};
use crate::direct::{Outcome, answer};
use crate::error::Result;
use crate::limiter::Limiter;
use crate::reports::{ListOptions, most};

const LIST: u8 = 40;
const SCAN_TOP: u8 = 41;
const RESET_LISTED: u8 = 42;
const EXPLAIN: u8 = 43;
const EXPLAIN_REQUEST: u8 = 44;
const TOP_KEYS: u8 = 45;

const JSON: u8 = 0;
const RECORD: u8 = 1;

pub(super) fn perform(limiter: &Limiter, header: &Header, reader: &mut Reader<'_>) -> Result<Outcome> {
    let ask = |call: &Call<'_>, form| {
        let answered = answer(limiter, call, header, || Then::Report(form))?;
        Ok(answered.map_or_else(|waits| waits, |answer| Outcome::Report(Report::new(answer, form))))
    };
    let core = limiter.core().asynchronous();
    match header.operation {
        LIST => {
            let (options, form) = (options(reader)?, form(reader)?);
            ask(&Call::List(options.filter()?, options.budget()?, options.cursor()), form)
        }
        SCAN_TOP => {
            let (number, options, form) = (most(reader.i64()?)?, options(reader)?, form(reader)?);
            ask(&Call::ScanTop(options.filter()?, number, options.budget()?), form)
        }
        RESET_LISTED => {
            let (options, form) = (options(reader)?, form(reader)?);
            ask(&Call::ResetListed(options.filter()?, options.budget()?, options.cursor()), form)
        }
        EXPLAIN => {
            let request = reader.request()??;
            ask(&Call::Explain(request), form(reader)?)
        }
        EXPLAIN_REQUEST => {
            let attributes = attributes(reader)?;
            ask(&Call::ExplainRequest(&attributes), form(reader)?)
        }
        TOP_KEYS => Ok(Outcome::Json(report_json(&core.admin().top_keys(most(reader.i64()?)?)))),
        _ => Ok(Outcome::Json(report_json(&core.metrics()))),
    }
}

fn options(reader: &mut Reader<'_>) -> Result<ListOptions> {
    let policy = reader.text()?.map(ToOwned::to_owned);
    let key_prefix = reader.bytes()?.map(ToOwned::to_owned);
    let cursor = reader.text()?.map(ToOwned::to_owned);
    let mut number = || -> Result<Option<i64>> {
        let (is_given, number) = (reader.u8()? != 0, reader.i64()?);
        Ok(is_given.then_some(number))
    };
    Ok(ListOptions {
        policy,
        key_prefix,
        at_least_used: number()?,
        entries: number()?,
        examined: number()?,
        pace_percent: number()?,
        cursor,
    })
}

fn form(reader: &mut Reader<'_>) -> Result<Form> {
    match reader.u8()? {
        JSON => Ok(Form::Json),
        RECORD => Ok(Form::Record),
        other => Err(malformed(&format!("form {other} is not known"))),
    }
}
