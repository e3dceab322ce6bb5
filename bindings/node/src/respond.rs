//! The function that writes the fields of responses, one for each guard.

use std::cell::RefCell;
use std::ffi::CStr;
use std::ptr;
use std::rc::Rc;

use napi::sys;
use polylimit::headers::{HeaderField, HeaderSettings, fields};

use crate::answer::Field;
use crate::asked::Question;
use crate::callback::{ARGUMENTS, Callback};
use crate::exchange::Exchange;
use crate::failure::{Result, failure};
use crate::number::microseconds;
use crate::operation::Bound;
use crate::text;

/// `() => string | undefined`. Tells what is not as it was in the response before, since most of it is: the values that
/// changed, each on a line of its own, with a bit for each in the array; or, when there are other names than before, every
/// name and value.
pub(crate) struct Respond {
    pub(crate) exchange: Rc<Exchange>,
    pub(crate) bound: Rc<Bound>,
    /// The policy of a decision in the array.
    pub(crate) policy: Box<str>,
    pub(crate) settings: HeaderSettings,
    /// The fields of the response before.
    pub(crate) before: RefCell<Vec<HeaderField>>,
}

/// In place of the bits: all is told.
const ALL: f64 = -1.0;

impl Callback for Respond {
    const NAME: &'static CStr = c"respond";

    unsafe fn call(&self, env: sys::napi_env, _: [sys::napi_value; ARGUMENTS]) -> Result<sys::napi_value> {
        let array = &self.exchange.fields;
        if array.question(Question::OutcomesAdded) == 0 {
            // The response is about the decision that was just shown.
            let policy = self.bound.limiter()?.policy_for(Some(&self.policy), None).map_err(failure)?;
            let mut outcomes = self.exchange.outcomes.borrow_mut();
            outcomes.clear();
            outcomes.push((policy, array.decision()?));
        }
        let outcomes = self.exchange.outcomes.borrow();
        let outcomes: Vec<_> = outcomes.iter().map(|(policy, decision)| (policy, decision)).collect();
        let now = microseconds("nowMs", array.get(Field::NowMs as usize))?;
        let fields = fields(&outcomes, self.settings, now);
        let (changed, lines) = changes(&self.before.borrow(), &fields);
        self.before.replace(fields);
        array.put(Field::Changed as usize, changed);
        if lines.is_empty() {
            return Ok(ptr::null_mut());
        }
        // SAFETY: as the caller's; fields are printable ASCII.
        unsafe { text::string(env, &lines) }
    }
}

/// The bits of the values that changed, and the lines.
fn changes(before: &[HeaderField], after: &[HeaderField]) -> (f64, String) {
    let mut text = String::new();
    let mut add = |line: &str| {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(line);
    };
    if !before.iter().map(|field| field.name).eq(after.iter().map(|field| field.name)) {
        for HeaderField { name, value } in after {
            add(name);
            add(value);
        }
        return (ALL, text);
    }
    let mut changed = 0_u32;
    for (at, (old, new)) in before.iter().zip(after).enumerate() {
        if old.value != new.value {
            changed |= 1 << at;
            add(&new.value);
        }
    }
    (changed.into(), text)
}
