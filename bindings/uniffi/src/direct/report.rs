//! A report in the form in which a language wants it.

use polylimit::Error;
use polylimit::raw::{Answer, report_json};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uniffi::Lower;

use crate::decision::unexpected;
use crate::direct::layout::Writer;
use crate::error::Result;
use crate::reports::{KeyExplanation, KeyPage, RequestExplanation, ResetPage, record};

/// The kind of an answer with a report.
pub(super) const REPORT: u8 = 10;

/// The form of a report.
#[derive(Clone, Copy)]
pub(super) enum Form {
    Json,
    /// The bytes that `UniFFI` writes for the record of the report.
    Record,
}

/// The answer to a call that returns a report.
pub(super) struct Report {
    answer: std::result::Result<Answer, Error>,
    form: Form,
}

impl Form {
    /// A report whose record is `R`.
    fn bytes<R: DeserializeOwned + Lower<crate::UniFfiTag>>(
        self,
        report: &impl Serialize,
    ) -> Result<Vec<u8>> {
        match self {
            Self::Json => Ok(report_json(report).into_bytes()),
            Self::Record => {
                let mut bytes = Vec::new();
                R::write(record(report)?, &mut bytes);
                Ok(bytes)
            }
        }
    }
}

impl Report {
    pub(super) fn new(answer: std::result::Result<Answer, Error>, form: Form) -> Self {
        Self { answer, form }
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        match self.bytes() {
            Ok(bytes) => write(writer, &bytes),
            Err(error) => writer.error(&error),
        }
    }

    fn bytes(&self) -> Result<Vec<u8>> {
        match self.answer.as_ref().map_err(Clone::clone)? {
            Answer::Keys(page) => self.form.bytes::<KeyPage>(page),
            Answer::KeysReset(page) => self.form.bytes::<ResetPage>(page),
            Answer::Explanation(explained) => self.form.bytes::<KeyExplanation>(explained),
            Answer::RequestExplanation(explained) => self.form.bytes::<RequestExplanation>(explained),
            other => Err(unexpected(other)),
        }
    }
}

/// Writes a report in its form.
pub(super) fn write(writer: &mut Writer<'_>, report: &[u8]) {
    writer.u8(REPORT);
    writer.bytes(report);
}
