//! What the core answers, as what each operation gives.

use polylimit::Answer;

use crate::decision::{CheckResult, Decision, Finding, Usage};
use crate::error::{PolylimitError, Result};

type Answered = std::result::Result<Answer, polylimit::Error>;

pub(crate) fn decision(answer: Answered) -> Result<Decision> {
    match answer? {
        Answer::Decision(decision) => Ok((&decision).into()),
        other => Err(another(&other)),
    }
}

pub(crate) fn usage(answer: Answered) -> Result<Usage> {
    match answer? {
        Answer::Usage(usage) => Ok((&usage).into()),
        other => Err(another(&other)),
    }
}

pub(crate) fn decisions(answer: Answered) -> Result<Vec<CheckResult>> {
    match answer? {
        Answer::Decisions(decisions) => Ok(decisions.into_iter().map(Into::into).collect()),
        other => Err(another(&other)),
    }
}

pub(crate) fn ready(answer: Answered) -> Result<()> {
    answer?;
    Ok(())
}

pub(crate) fn findings(answer: Answered) -> Result<Vec<Finding>> {
    match answer? {
        Answer::Findings(findings) => Ok(findings.into_iter().map(Into::into).collect()),
        other => Err(another(&other)),
    }
}

fn another(answer: &Answer) -> PolylimitError {
    PolylimitError::Internal(format!("an operation was answered with {answer:?}"))
}
