//! The fields and the response of decisions that a program has made itself, in direct calls.
//!
//! | operation | number | target | arguments | answer |
//! |---|---:|---|---|---|
//! | fields | 48 | | outcomes; `headers` (text or none) | [`FIELDS`] (`u8`), fields |
//! | problem | 49 | | outcomes; whether there is a cost (`u8`), cost (`i64`), `accept` (text or none) | [`PROBLEM`] (`u8`), a list of none or one problem |
//!
//! Outcomes, fields and problems are laid out as in `direct/guard.rs`.

use polylimit::http::headers::{HeaderField, Problem, ProblemResponse};
use polylimit::{Decision, Policy};

use crate::direct::Outcome;
use crate::direct::guard::{write_fields, write_problem};
use crate::direct::layout::{Header, Reader, Writer, malformed};
use crate::error::Result;
use crate::headers::{fields, problem};

const FIELDS: u8 = 18;
const PROBLEM: u8 = 19;

/// What is said about decisions.
pub(super) enum Reply {
    Fields(Vec<HeaderField>),
    Problem(Option<(Problem, ProblemResponse)>),
}

pub(super) fn perform(header: &Header, reader: &mut Reader<'_>) -> Result<Outcome> {
    let outcomes = reader.list(outcome)?;
    let reply = if header.operation == 48 {
        Reply::Fields(fields(&outcomes, reader.text()?)?)
    } else {
        let (has_cost, cost) = (reader.u8()? != 0, reader.i64()?);
        Reply::Problem(problem(&outcomes, has_cost.then_some(cost), reader.text()?)?)
    };
    Ok(Outcome::Headers(reply))
}

fn outcome(reader: &mut Reader<'_>) -> Result<(Policy, Decision)> {
    let (name, quotas) = (text(reader)?, text(reader)?);
    Ok((Policy::parse(name, quotas)?, reader.decision()?))
}

fn text<'a>(reader: &mut Reader<'a>) -> Result<&'a str> {
    reader.text()?.ok_or_else(|| malformed("a text is missing"))
}

impl Reply {
    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Fields(fields) => {
                writer.u8(FIELDS);
                write_fields(fields, writer);
            }
            Self::Problem(found) => {
                writer.u8(PROBLEM);
                writer.count(found.iter().len());
                if let Some((problem, response)) = found {
                    write_problem(problem, response, writer);
                }
            }
        }
    }
}
