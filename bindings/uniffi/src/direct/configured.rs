//! What a limiter with a configuration does, in direct calls.
//!
//! | operation | number | target | arguments | answer |
//! |---|---:|---|---|---|
//! | decide | 20 | limiter | attributes, and the terms of reservations: `direct/reservation.rs` | [`REQUEST`] |
//! | set entry | 21 | limiter | item, value (texts) | [`CONFIGURATION`] |
//! | delete entry | 22 | limiter | item (text) | [`CONFIGURATION`] |
//! | publish | 23 | limiter | document (text), whether a version is expected (`u8`), version (`i64`), by, why (texts) | [`CONFIGURATION`] |
//! | wait for a version | 24 | limiter | version (`i64`); the timeout is that of the header | [`CONFIGURATION`] |
//! | matching | 25 | limiter | attributes | [`MATCHES`] |
//! | configuration | 26 | limiter | | [`CONFIGURATION`], or nothing |
//! | set document | 27 | limiter | document (text) | [`CONFIGURATION`] |
//!
//! **Attributes:** method, path (bytes or none), peer (text or none), the headers (list of names and values, both bytes), and further
//! attributes (list of names (texts) and values (bytes)), and what the router ignores in paths (`u32`, the bits of `RouterPaths`).
//!
//! **Answer:** its kind (`u8`), and
//!
//! | kind | contents |
//! |---|---|
//! | [`REQUEST`] | `u8` whether it is allowed, cause (`u8`, as in a decision), status (`u32`, 0 when allowed), `retry_after` in microseconds (`i64`, -1 is never), and a list: a match, the id of its reservation (bytes or none), its decision |
//! | [`CONFIGURATION`] | source (text), version (`i64`), digest (text), when it was applied and how long its source has been unreachable, in microseconds (`i64`), error (text or none) |
//! | [`MATCHES`] | a list of matches |
//!
//! **Match:** policy (text), key (bytes), cost (`i64`), headroom in percent (`u8`).

use polylimit::admin::{ConfigurationStatus, PublishOptions};
use polylimit::document::{PolicyMatch, RequestAttributes, RequestDecision, RouterPaths};
use polylimit::raw::Call;
use polylimit::reservation::ReservationId;

use crate::direct::layout::{Header, Reader, Writer, cause_number, malformed};
use crate::direct::queue::Then;
use crate::direct::{Outcome, answer, longest_wait, reservation};
use crate::error::Result;
use crate::limiter::Limiter;
use crate::number::unsigned;

const DECIDE: u8 = 20;
const SET_ENTRY: u8 = 21;
const DELETE_ENTRY: u8 = 22;
const PUBLISH: u8 = 23;
const WAIT_FOR_VERSION: u8 = 24;
const MATCHING: u8 = 25;
const STATUS: u8 = 26;

const REQUEST: u8 = 7;
const CONFIGURATION: u8 = 8;
const MATCHES: u8 = 9;

pub(super) fn perform(limiter: &Limiter, header: &Header, reader: &mut Reader<'_>) -> Result<Outcome> {
    let ask = |call: &Call<'_>| {
        let answered = answer(limiter, call, header, || Then::Nothing)?;
        Ok(answered.map_or_else(|waits| waits, Outcome::Answer))
    };
    match header.operation {
        DECIDE => {
            let attributes = attributes(reader)?;
            ask(&Call::Decide(&attributes, reservation::terms(reader)?))
        }
        SET_ENTRY => ask(&Call::SetEntry(text(reader)?, text(reader)?)),
        DELETE_ENTRY => ask(&Call::DeleteEntry(text(reader)?)),
        PUBLISH => {
            let document = text(reader)?;
            let (is_expected, version) = (reader.u8()? != 0, reader.i64()?);
            let mut options = PublishOptions::default().by(text(reader)?).why(text(reader)?);
            if is_expected {
                options = options.expected_version(unsigned("expected_version", version)?);
            }
            ask(&Call::Publish(document, options))
        }
        WAIT_FOR_VERSION => {
            let version = unsigned("version", reader.i64()?)?;
            ask(&Call::WaitForVersion(version, longest_wait(header)?))
        }
        MATCHING => {
            Ok(Outcome::Matches(limiter.core().asynchronous().admin().matching(&attributes(reader)?)?))
        }
        STATUS => Ok(Outcome::Status(limiter.core().asynchronous().admin().configuration())),
        _ => Ok(Outcome::Status(Some(limiter.core().asynchronous().admin().set_document(text(reader)?)?))),
    }
}

/// The attributes of a request, whose names and values stay in the buffer.
pub(super) fn attributes<'a>(reader: &mut Reader<'a>) -> Result<RequestAttributes<'a>> {
    let mut attributes = RequestAttributes::new();
    if let Some(method) = reader.bytes()? {
        attributes = attributes.method(method);
    }
    if let Some(path) = reader.bytes()? {
        attributes = attributes.path(path);
    }
    if let Some(peer) = reader.text()? {
        attributes = attributes.peer(peer);
    }
    for _ in 0..reader.u32()? {
        attributes = attributes.header(bytes(reader)?, bytes(reader)?);
    }
    for _ in 0..reader.u32()? {
        attributes = attributes.attribute(text(reader)?, bytes(reader)?);
    }
    Ok(attributes.router_paths(RouterPaths::from_bits(reader.u32()?)))
}

fn bytes<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8]> {
    reader.bytes()?.ok_or_else(|| malformed("a name or a value is missing"))
}

fn text<'a>(reader: &mut Reader<'a>) -> Result<&'a str> {
    reader.text()?.ok_or_else(|| malformed("a text is missing"))
}

pub(super) fn write_request(writer: &mut Writer<'_>, decided: &RequestDecision) {
    writer.u8(REQUEST);
    writer.u8(decided.allowed.into());
    writer.u8(cause_number(decided.cause));
    writer.u32(decided.status().unwrap_or(0).into());
    writer.wait(decided.retry_after_us);
    writer.count(decided.decisions.len());
    for made in &decided.decisions {
        write_match(writer, &made.policy, &made.key, made.cost, made.headroom);
        writer.optional(made.reservation.as_ref().map(ReservationId::as_bytes));
        writer.decision(&made.decision);
    }
}

pub(super) fn write_status(writer: &mut Writer<'_>, status: &ConfigurationStatus) {
    writer.u8(CONFIGURATION);
    writer.text(&status.source);
    writer.number(status.version);
    writer.number(status.document_version);
    writer.text(&status.digest);
    writer.number(status.applied_at_us);
    writer.number(status.unreachable_for_us);
    writer.optional(status.error.as_deref().map(str::as_bytes));
}

pub(super) fn write_matches(writer: &mut Writer<'_>, matches: &[PolicyMatch]) {
    writer.u8(MATCHES);
    writer.count(matches.len());
    for found in matches {
        write_match(writer, &found.policy, &found.key, found.cost, found.headroom);
    }
}

fn write_match(writer: &mut Writer<'_>, policy: &str, key: &[u8], cost: u64, headroom: u8) {
    writer.text(policy);
    writer.bytes(key);
    writer.number(cost);
    writer.u8(headroom);
}

impl Writer<'_> {
    pub(super) fn write_request(&mut self, decided: &RequestDecision) {
        write_request(self, decided);
    }

    pub(super) fn write_status(&mut self, status: &ConfigurationStatus) {
        write_status(self, status);
    }
}
