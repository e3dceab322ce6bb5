//! The reports for operators: which keys the store has, why a request is denied, and which keys are denied most often.

use polylimit::raw::report_json;
use pyo3::prelude::*;

use crate::admin::{PyAdmin, PyAsyncAdmin};
use crate::call::{OwnedCall, report_to_python};
use crate::configuration::PyRequestAttributes;
use crate::convert::{Key, read_integer, read_object};
use crate::error::call_core;
use crate::key_list::{ListArguments, OwnedKeyList};
use crate::request::{OwnedRequest, Plan, PolicyArgument};

/// Writes the methods, which are the same in both classes.
macro_rules! report_methods {
    ($class:ident) => {
        #[pymethods]
        impl $class {
            /// A page of the keys that the store has, with what is used of their quotas; keys of which nothing counts any more are left
            /// out. A key that is there from the first page to the last is listed; docs/listing.md says more.
            ///
            /// In Redis the keys are found by SCAN, for which the user needs the right, and each call is followed by a pause. A list in
            /// memory or in a local store takes a millisecond for some thousand keys, during which an event loop waits.
            ///
            /// Parameters
            /// ----------
            /// policy
            ///     A policy's name, or quotas such as ``"100/minute"``; by default the keys of all policies.
            /// key_prefix
            ///     What the keys begin with, as text or bytes. A long key, of which the store has only a digest, has no prefix.
            /// at_least_used
            ///     Keys of which at least this much is used, in percent; the default is 0.
            /// entries
            ///     The page ends once it has this many keys, or up to a thousand more; the default is 1,000.
            /// examined
            ///     The page ends once the store has examined this many keys; the default is 100,000.
            /// pace_percent
            ///     The share of one server's time that a list in Redis may take, from 1 to 100; the default is 10.
            /// cursor
            ///     The ``cursor`` of the page before.
            ///
            /// Returns
            /// -------
            /// KeyPage
            ///     A dict: see ``polylimit.reports``. With ``cursor``, another page follows, even if this one has no keys.
            ///
            /// Raises
            /// ------
            /// InvalidArgumentError
            ///     When a number is out of bounds, or the cursor is that of another list.
            /// StoreUnavailableError
            ///     When the store does not answer.
            /// StoreFailedError
            ///     When the user may not list keys.
            #[pyo3(signature = (*, policy = None, key_prefix = None, at_least_used = None, entries = None, examined = None, pace_percent = None, cursor = None))]
            #[expect(clippy::too_many_arguments, reason = "each is a keyword of Python")]
            fn list(
                this: &Bound<'_, Self>,
                policy: Option<PolicyArgument>,
                key_prefix: Option<&Bound<'_, PyAny>>,
                at_least_used: Option<&Bound<'_, PyAny>>,
                entries: Option<&Bound<'_, PyAny>>,
                examined: Option<&Bound<'_, PyAny>>,
                pace_percent: Option<&Bound<'_, PyAny>>,
                cursor: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<Py<PyAny>> {
                let arguments =
                    ListArguments { policy, key_prefix, at_least_used, entries, examined, pace_percent, cursor };
                Self::make(this, OwnedCall::List(OwnedKeyList::read(arguments)?.into()))
            }

            /// The keys of which the most is used, first the one of which most is: exact for all keys that are examined. With a
            /// ``cursor`` in the answer, the budget has ended before all were.
            ///
            /// Denials leave no trace in a store: ``top_keys`` returns the keys that are denied most often.
            ///
            /// Parameters
            /// ----------
            /// most
            ///     How many keys.
            /// policy, key_prefix, at_least_used, examined, pace_percent
            ///     As for ``list``.
            ///
            /// Returns
            /// -------
            /// KeyPage
            ///     A dict: see ``polylimit.reports``.
            ///
            /// Raises
            /// ------
            /// PolylimitError
            ///     As for ``list``.
            #[pyo3(signature = (most, *, policy = None, key_prefix = None, at_least_used = None, examined = None, pace_percent = None))]
            fn scan_top(
                this: &Bound<'_, Self>,
                most: &Bound<'_, PyAny>,
                policy: Option<PolicyArgument>,
                key_prefix: Option<&Bound<'_, PyAny>>,
                at_least_used: Option<&Bound<'_, PyAny>>,
                examined: Option<&Bound<'_, PyAny>>,
                pace_percent: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<Py<PyAny>> {
                let arguments = ListArguments {
                    policy,
                    key_prefix,
                    at_least_used,
                    examined,
                    pace_percent,
                    ..ListArguments::default()
                };
                let most = read_integer("most", most)?;
                Self::make(this, OwnedCall::ScanTop(OwnedKeyList::read(arguments)?.into(), most))
            }

            /// Lists a page of keys as ``list`` does, and resets them: the store forgets them, and what they have used. Keys of policies
            /// that this limiter does not know stay. To count the keys first, list them.
            ///
            /// Parameters
            /// ----------
            /// policy, key_prefix, at_least_used, entries, examined, pace_percent, cursor
            ///     As for ``list``.
            ///
            /// Returns
            /// -------
            /// ResetPage
            ///     A dict: see ``polylimit.reports``. With ``cursor``, another page follows.
            ///
            /// Raises
            /// ------
            /// PolylimitError
            ///     As for ``list``. Keys may have been reset before an error, or before an interrupt.
            #[pyo3(signature = (*, policy = None, key_prefix = None, at_least_used = None, entries = None, examined = None, pace_percent = None, cursor = None))]
            #[expect(clippy::too_many_arguments, reason = "each is a keyword of Python")]
            fn reset_listed(
                this: &Bound<'_, Self>,
                policy: Option<PolicyArgument>,
                key_prefix: Option<&Bound<'_, PyAny>>,
                at_least_used: Option<&Bound<'_, PyAny>>,
                entries: Option<&Bound<'_, PyAny>>,
                examined: Option<&Bound<'_, PyAny>>,
                pace_percent: Option<&Bound<'_, PyAny>>,
                cursor: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<Py<PyAny>> {
                let arguments =
                    ListArguments { policy, key_prefix, at_least_used, entries, examined, pace_percent, cursor };
                Self::make(this, OwnedCall::ResetListed(OwnedKeyList::read(arguments)?.into()))
            }

            /// Why a request would be admitted or denied now: what each quota says, in the words of its algorithm; blocks and
            /// reservations; and what the configuration says about the key. It spends nothing.
            ///
            /// Parameters
            /// ----------
            /// key
            ///     The client or resource that is limited: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
            /// policy
            ///     A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
            /// cost
            ///     Units, from 0 to 10**12; the default is 1.
            /// headroom
            ///     The part of each quota that the request leaves for others, in percent from 0 to 99; the default is 0.
            /// plan
            ///     The plan of the key, whose quotas decide where the policy has it; a calendar may follow: ``gold from=15``.
            ///
            /// Returns
            /// -------
            /// KeyExplanation
            ///     A dict: see ``polylimit.reports``.
            ///
            /// Raises
            /// ------
            /// InvalidArgumentError
            ///     When an argument is not valid.
            /// StoreUnavailableError
            ///     When the store does not answer: no outage policy answers in its place.
            #[pyo3(signature = (key, policy = None, *, cost = None, headroom = None, plan = None))]
            fn explain(
                this: &Bound<'_, Self>,
                key: Key,
                policy: Option<PolicyArgument>,
                cost: Option<&Bound<'_, PyAny>>,
                headroom: Option<&Bound<'_, PyAny>>,
                plan: Option<Plan>,
            ) -> PyResult<Py<PyAny>> {
                let request = OwnedRequest::new(key, policy, plan).with_cost(cost)?.with_headroom(headroom)?;
                Self::make(this, OwnedCall::Explain(request))
            }

            /// Why a request, by its attributes, would be admitted or denied by the configuration: the item of a list that decides, or
            /// the rules that match, with what each of their policies says. It spends nothing.
            ///
            /// Returns
            /// -------
            /// RequestExplanation
            ///     A dict: see ``polylimit.reports``.
            ///
            /// Raises
            /// ------
            /// InvalidArgumentError
            ///     When the limiter has no configuration, or the attribute that gives a cost holds none.
            /// StoreUnavailableError
            ///     When the store does not answer: no outage policy answers in its place.
            fn explain_request(
                this: &Bound<'_, Self>,
                attributes: &Bound<'_, PyAny>,
            ) -> PyResult<Py<PyAny>> {
                let attributes = read_object::<PyRequestAttributes>("attributes", attributes)?;
                Self::make(this, OwnedCall::ExplainRequest(attributes.get().shared()))
            }

            /// The keys that this limiter has denied and admitted most often in this process lately. It needs the option
            /// ``observe_keys``; without, there are none. No store is asked, and nothing waits.
            ///
            /// Counts are estimated from a sample, and halved once a minute.
            ///
            /// Parameters
            /// ----------
            /// most
            ///     How many keys of each at most.
            ///
            /// Returns
            /// -------
            /// TopKeys
            ///     A dict: see ``polylimit.reports``.
            fn top_keys(&self, py: Python<'_>, most: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                let most = read_integer("most", most)?;
                let report = call_core(py, || Ok(report_json(&self.core().admin().top_keys(most))))?;
                report_to_python(py, &report)
            }
        }
    };
}

report_methods!(PyAdmin);
report_methods!(PyAsyncAdmin);
