//! Fast methods for the most frequent forms of calls, such as `check("user:42", "api", cost=2)`.
//!
//! pyo3's methods accept all forms of arguments and report all errors. The methods here replace them in both classes, and call the
//! replaced one for every other form of call. Those of `AsyncLimiter` are [`async_method`](crate::async_method)s.
//!
//! CPU time of a call in memory on CPython 3.11, medians of 25 interleaved runs, with `check(key)` / `check(key, policy, cost=2)` /
//! `await check(key)`: 330 / 443 / 523 ns with this module, 476 / 592 / 731 ns without it.

use std::ffi::CString;
use std::mem::transmute;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use polylimit::Request;
use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::admin::PyAsyncAdmin;
use crate::async_method::{self, FastMethod, call_with_array};
use crate::call::{AnswerForm, Operation, try_call, try_check};
use crate::convert::{Utf8Text, borrow_utf8};
use crate::error::{into_ptr, raise_panic};
use crate::limiter_classes::{PyAsyncLimiter, PyLimiter};
use crate::operation::{FastOperation, State};
use crate::operation_type;
use crate::reservation::PyAsyncReservation;

/// The names of the replaced methods, in the order of [`operation`].
const REPLACED: [&str; 5] = ["check", "peek", "take", "charge", "refund"];

/// The other methods of `AsyncLimiter` that return an operation. `reserve` is not among them: what it returns is entered by
/// `async with` more often than it is awaited, and a mock of a coroutine function cannot be entered.
const AWAITED: [&str; 12] = [
    "reset",
    "acquire",
    "commit",
    "cancel",
    "renew",
    "check_many",
    "check_together",
    "peek_together",
    "reserve_together",
    "ready",
    "decide",
    "close",
];

/// The methods of `AsyncAdmin` that return an operation.
const AWAITED_BY_OPERATORS: [&str; 12] = [
    "block",
    "unblock",
    "doctor",
    "set_entry",
    "delete_entry",
    "publish",
    "wait_for_version",
    "list",
    "scan_top",
    "reset_listed",
    "explain",
    "explain_request",
];

/// The replaced methods, in the order of [`REPLACED`].
type OriginalMethods = OnceLock<[Py<PyAny>; REPLACED.len()]>;

static LIMITER_ORIGINALS: OriginalMethods = OnceLock::new();
static ASYNC_LIMITER_ORIGINALS: OriginalMethods = OnceLock::new();

/// Replaces the methods of both classes.
pub(crate) fn install(py: Python<'_>) -> PyResult<()> {
    let fast: [FastMethod; 5] =
        [call_limiter::<0>, call_limiter::<1>, call_limiter::<2>, call_limiter::<3>, call_limiter::<4>];
    replace_all(&py.get_type::<PyLimiter>(), fast, &LIMITER_ORIGINALS)?;
    let fast: [FastMethod; 5] = [
        create_operation::<0>,
        create_operation::<1>,
        create_operation::<2>,
        create_operation::<3>,
        create_operation::<4>,
    ];
    let class = py.get_type::<PyAsyncLimiter>();
    let mut methods = REPLACED.map(|_| py.None());
    for ((name, fast), method) in REPLACED.into_iter().zip(fast).zip(&mut methods) {
        *method = async_method::replace(&class, name, Some(fast))?;
    }
    for name in AWAITED {
        async_method::replace(&class, name, None)?;
    }
    for name in AWAITED_BY_OPERATORS {
        async_method::replace(&py.get_type::<PyAsyncAdmin>(), name, None)?;
    }
    for name in ["commit", "cancel"] {
        async_method::replace(&py.get_type::<PyAsyncReservation>(), name, None)?;
    }
    ASYNC_LIMITER_ORIGINALS.set(methods).map_err(|_| imported_already())
}

fn imported_already() -> PyErr {
    PyImportError::new_err(
        "polylimit is loaded in another interpreter of this process: allowed is one, as with WSGIApplicationGroup %{GLOBAL} of \
         mod_wsgi and single-interpreter of uWSGI",
    )
}

const fn operation(number: usize) -> Operation {
    [Operation::Check, Operation::Peek, Operation::Take, Operation::Charge, Operation::Refund][number]
}

fn replace_all(
    class: &Bound<'_, PyType>,
    fast: [FastMethod; REPLACED.len()],
    originals: &OriginalMethods,
) -> PyResult<()> {
    let py = class.py();
    let mut methods = REPLACED.map(|_| py.None());
    for ((name, fast), method) in REPLACED.into_iter().zip(fast).zip(&mut methods) {
        let original = class.getattr(name)?;
        let signature: String = original.getattr("__text_signature__")?.extract()?;
        let text: String = original.getattr("__doc__")?.extract()?;
        let doc = CString::new(format!("{name}{signature}\n--\n\n{text}"))?;
        // The definition has to live as long as the class, which is never freed.
        let definition = Box::leak(Box::new(ffi::PyMethodDef {
            ml_name: CString::new(name)?.into_raw(),
            ml_meth: ffi::PyMethodDefPointer {
                // SAFETY: `ml_flags` describes the signature of the function.
                PyCFunction: unsafe { transmute::<FastMethod, ffi::PyCFunction>(fast) },
            },
            ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
            ml_doc: doc.into_raw(),
        }));
        // SAFETY: the class is a type, and the definition is complete and never freed.
        let new = unsafe {
            Bound::from_owned_ptr_or_err(py, ffi::PyDescr_NewMethod(class.as_type_ptr(), definition))
        }?;
        class.setattr(name, new)?;
        *method = original.unbind();
    }
    // The module is initialized once in a process.
    originals.set(methods).map_err(|_| imported_already())
}

/// The arguments of a fast call, borrowed from the interpreter.
struct FastArguments<'a, 'py> {
    key: Borrowed<'a, 'py, PyString>,
    policy: Option<Borrowed<'a, 'py, PyString>>,
    cost: u64,
}

impl<'py> FastArguments<'_, 'py> {
    /// Reads a key and an optional policy, both `str` by position, and an optional `cost` by name. `None` for every other form.
    ///
    /// # Safety
    /// `arguments` points to `count` positional arguments followed by one argument for each of `names`, all of which outlive the result.
    unsafe fn read(
        py: Python<'py>,
        arguments: *const *mut ffi::PyObject,
        count: ffi::Py_ssize_t,
        names: *mut ffi::PyObject,
    ) -> Option<Self> {
        // SAFETY: as the caller guarantees. A subclass of `str` takes the other path.
        let text = |at: usize| unsafe {
            let argument = *arguments.add(at);
            (ffi::PyUnicode_CheckExact(argument) != 0)
                .then(|| Borrowed::from_ptr(py, argument).cast_unchecked::<PyString>())
        };
        let key = match count {
            1 | 2 => text(0)?,
            _ => return None,
        };
        // SAFETY: there are at least `count` arguments.
        let policy = match count {
            2 if unsafe { *arguments.add(1) != ffi::Py_None() } => Some(text(1)?),
            _ => None,
        };
        let cost = if names.is_null() {
            1
        } else {
            // SAFETY: `names` is a tuple of `str`, each with an argument after the positional ones.
            unsafe {
                if ffi::PyTuple_Size(names) != 1 {
                    return None;
                }
                let name =
                    Borrowed::from_ptr(py, ffi::PyTuple_GetItem(names, 0)).cast_unchecked::<PyString>();
                if borrow_utf8(&name)? != "cost" {
                    return None;
                }
                read_cost(*arguments.add(if count == 1 { 1 } else { 2 }))?
            }
        };
        Some(Self { key, policy, cost })
    }
}

/// # Safety
/// `value` is a Python object.
unsafe fn read_cost(value: *mut ffi::PyObject) -> Option<u64> {
    // SAFETY: as the caller guarantees. pyo3's method reports a number that does not fit into 64 bits.
    unsafe {
        if ffi::PyLong_CheckExact(value) == 0 {
            return None;
        }
        let cost = ffi::PyLong_AsUnsignedLongLong(value);
        if cost == u64::MAX && !ffi::PyErr_Occurred().is_null() {
            ffi::PyErr_Clear();
            return None;
        }
        Some(cost)
    }
}

/// The UTF-8 forms of key and policy; `None` if one has none.
fn read_texts<'a>(arguments: &'a FastArguments<'_, '_>) -> Option<(&'a str, Option<&'a str>)> {
    let texts = borrow_utf8(&arguments.key).and_then(|key| match &arguments.policy {
        Some(policy) => Some((key, Some(borrow_utf8(policy)?))),
        None => Some((key, None)),
    });
    if texts.is_none() {
        // SAFETY: this thread is attached to the interpreter. pyo3's method raises the error again, with a better text.
        unsafe { ffi::PyErr_Clear() };
    }
    texts
}

/// An operation of `Limiter`.
unsafe extern "C" fn call_limiter<const NUMBER: usize>(
    this: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this function with valid arguments.
    unsafe {
        let py = Python::assume_attached();
        let fast = FastArguments::read(py, arguments, count, names);
        if let Some(fast) = &fast
            && let Some((key, policy)) = read_texts(fast)
        {
            // The interpreter has checked the class of `this`.
            let limiter = Borrowed::from_ptr(py, this).cast_unchecked::<PyLimiter>().get();
            let request = Request::new(key).cost(fast.cost);
            let request = policy.map_or(request, |policy| request.policy(policy));
            let operation = operation(NUMBER);
            if matches!(operation, Operation::Check)
                && let Some(result) = try_check(py, limiter.core(), request)
            {
                return into_ptr(py, result);
            }
            let call = operation.call(request);
            let result = try_call(py, limiter.core(), &call);
            // The texts belong to the arguments, which the interpreter keeps until this returns.
            let wait = |py: Python<'_>| limiter.wait_for(py, &call, &AnswerForm::Object);
            let waited = || {
                Python::attach(|py| raise_panic(py, catch_unwind(AssertUnwindSafe(|| wait(py)))).flatten())
            };
            return into_ptr(py, result.unwrap_or_else(waited));
        }
        call_original(py, &LIMITER_ORIGINALS, NUMBER, this, arguments, count, names)
    }
}

/// An operation of `AsyncLimiter`.
unsafe extern "C" fn create_operation<const NUMBER: usize>(
    this: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this function with valid arguments.
    unsafe {
        let py = Python::assume_attached();
        let fast = FastArguments::read(py, arguments, count, names);
        if let Some(fast) = &fast
            && let Some((key, policy)) = read_texts(fast)
        {
            // The interpreter has checked the class of `this`.
            let limiter = Borrowed::from_ptr(py, this).cast_unchecked::<PyAsyncLimiter>();
            let operation = FastOperation {
                limiter: limiter.to_owned().unbind(),
                operation: operation(NUMBER),
                key: Utf8Text::from_borrowed(&fast.key, key),
                policy: fast
                    .policy
                    .as_deref()
                    .zip(policy)
                    .map(|(text, utf8)| Utf8Text::from_borrowed(text, utf8)),
                cost: fast.cost,
            };
            return into_ptr(py, operation_type::create(py, State::Fast(operation)));
        }
        call_original(py, &ASYNC_LIMITER_ORIGINALS, NUMBER, this, arguments, count, names)
    }
}

/// Calls a replaced method.
///
/// # Safety
/// As for [`FastArguments::read`]; `this` is an object of the method's class.
#[cold]
unsafe fn call_original(
    py: Python<'_>,
    originals: &OriginalMethods,
    number: usize,
    this: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let call = || {
        let methods = originals.get().ok_or_else(|| PyImportError::new_err("polylimit is not imported"))?;
        // SAFETY: as the caller guarantees.
        let bound = unsafe { Borrowed::from_ptr(py, this) };
        methods[number].bind(py).call_method1("__get__", (bound,)).map(Bound::unbind)
    };
    match Python::attach(|_| call()) {
        // SAFETY: as the caller guarantees.
        Ok(method) => unsafe {
            call_with_array(py, &method, arguments, usize::try_from(count).unwrap_or(0), names)
        },
        Err(error) => into_ptr(py, Err(error)),
    }
}
