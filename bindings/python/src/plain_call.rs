//! The calls that nearly everybody makes, such as `check("user:42", "api", cost=2)`, without the interpreter's tuples and
//! dictionaries of arguments: those take longer than a decision.
//!
//! The methods themselves are pyo3's, which know all forms of arguments, all errors, and how to wait. Each is put aside, and
//! called by the one that takes its place for whatever is not plain.

use std::ffi::{CString, c_int};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::OnceLock;

use polylimit::Request;
use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use crate::async_limiter::PyAsyncLimiter;
use crate::call::{Operation, known};
use crate::limiter::PyLimiter;
use crate::operation::{PlainOperation, State};
use crate::operation_type;
use crate::utf8::{self, Utf8};

/// Takes its arguments as an array. In the stable ABI from 3.10 on; 3.9 has the same flag with the same meaning, and will not
/// change any more.
const METH_FASTCALL: c_int = 0x80;

type FastMethod = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *const *mut ffi::PyObject,
    ffi::Py_ssize_t,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// The operations of one key, its policy and a cost, in the order of their numbers.
const REPLACED: [&str; 5] = ["check", "peek", "take", "charge", "refund"];

/// The methods that were put aside, in that order.
type Aside = OnceLock<[Py<PyAny>; REPLACED.len()]>;

static OF_LIMITER: Aside = OnceLock::new();
static OF_ASYNC_LIMITER: Aside = OnceLock::new();

/// Puts the quick methods in the places of pyo3's.
pub(crate) fn install(py: Python<'_>) -> PyResult<()> {
    let quick: [FastMethod; 5] = [decide::<0>, decide::<1>, decide::<2>, decide::<3>, decide::<4>];
    replace_all(&py.get_type::<PyLimiter>(), quick, &OF_LIMITER)?;
    let quick: [FastMethod; 5] = [start::<0>, start::<1>, start::<2>, start::<3>, start::<4>];
    replace_all(&py.get_type::<PyAsyncLimiter>(), quick, &OF_ASYNC_LIMITER)
}

const fn operation(number: usize) -> Operation {
    [Operation::Check, Operation::Peek, Operation::Take, Operation::Charge, Operation::Refund][number]
}

fn replace_all(
    class: &Bound<'_, PyType>,
    quick: [FastMethod; REPLACED.len()],
    aside: &Aside,
) -> PyResult<()> {
    let py = class.py();
    let mut methods = REPLACED.map(|_| py.None());
    for ((name, quick), method) in REPLACED.into_iter().zip(quick).zip(&mut methods) {
        let old = class.getattr(name)?;
        let signature: String = old.getattr("__text_signature__")?.extract()?;
        let about: String = old.getattr("__doc__")?.extract()?;
        let doc = CString::new(format!("{name}{signature}\n--\n\n{about}"))?;
        // They last as long as the class, and that is never freed.
        let definition = Box::leak(Box::new(ffi::PyMethodDef {
            ml_name: CString::new(name)?.into_raw(),
            ml_meth: ffi::PyMethodDefPointer {
                // SAFETY: the flags say what the function takes.
                PyCFunction: unsafe { transmute::<FastMethod, ffi::PyCFunction>(quick) },
            },
            ml_flags: METH_FASTCALL | ffi::METH_KEYWORDS,
            ml_doc: doc.into_raw(),
        }));
        // SAFETY: the class is a type, and the definition is complete and stays.
        let new = unsafe {
            Bound::from_owned_ptr_or_err(py, ffi::PyDescr_NewMethod(class.as_type_ptr(), definition))
        }?;
        class.setattr(name, new)?;
        *method = old.unbind();
    }
    // A module is made once in a process.
    aside.set(methods).map_err(|_| PyImportError::new_err("polylimit is imported already"))
}

/// What a plain call is asked, for as long as its arguments are borrowed.
struct Plain<'a, 'py> {
    key: Borrowed<'a, 'py, PyString>,
    policy: Option<Borrowed<'a, 'py, PyString>>,
    cost: u64,
}

impl<'py> Plain<'_, 'py> {
    /// Reads a call of a text, perhaps a policy as text, and perhaps a cost by name. `None` for every other.
    ///
    /// # Safety
    /// `arguments` are `count` ones by position and then those of `names`, all borrowed for as long as the plain call is used.
    unsafe fn read(
        py: Python<'py>,
        arguments: *const *mut ffi::PyObject,
        count: ffi::Py_ssize_t,
        names: *mut ffi::PyObject,
    ) -> Option<Self> {
        // SAFETY: as promised by the caller; a subclass of `str` is no plain text.
        let text = |at: usize| unsafe {
            let argument = *arguments.add(at);
            (ffi::PyUnicode_CheckExact(argument) != 0)
                .then(|| Borrowed::from_ptr(py, argument).cast_unchecked::<PyString>())
        };
        let key = match count {
            1 | 2 => text(0)?,
            _ => return None,
        };
        // SAFETY: there are so many arguments, or one more.
        let policy = match count {
            2 if unsafe { *arguments.add(1) != ffi::Py_None() } => Some(text(1)?),
            _ => None,
        };
        let cost = if names.is_null() {
            1
        } else {
            // SAFETY: the names are a tuple of texts, each with an argument after those by position.
            unsafe {
                if ffi::PyTuple_Size(names) != 1 {
                    return None;
                }
                let name =
                    Borrowed::from_ptr(py, ffi::PyTuple_GetItem(names, 0)).cast_unchecked::<PyString>();
                if utf8::borrowed(&name)? != "cost" {
                    return None;
                }
                cost(*arguments.add(if count == 1 { 1 } else { 2 }))?
            }
        };
        Some(Self { key, policy, cost })
    }
}

/// # Safety
/// `value` is an object.
unsafe fn cost(value: *mut ffi::PyObject) -> Option<u64> {
    // SAFETY: as promised by the caller; what is no number of 64 bits has to be said by pyo3's method.
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

/// The texts of a plain call; `None` where one is no text.
fn texts<'a>(plain: &'a Plain<'_, '_>) -> Option<(&'a str, Option<&'a str>)> {
    let read = utf8::borrowed(&plain.key).and_then(|key| match &plain.policy {
        Some(policy) => Some((key, Some(utf8::borrowed(policy)?))),
        None => Some((key, None)),
    });
    if read.is_none() {
        // SAFETY: this thread is attached to the interpreter. pyo3's method says what is wrong.
        unsafe { ffi::PyErr_Clear() };
    }
    read
}

/// A method of `Limiter`.
unsafe extern "C" fn decide<const NUMBER: usize>(
    this: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls it, with so many arguments.
    unsafe {
        let py = Python::assume_attached();
        let plain = Plain::read(py, arguments, count, names);
        if let Some(plain) = &plain
            && let Some((key, policy)) = texts(plain)
        {
            // The interpreter has looked at the class of `this`.
            let limiter = Borrowed::from_ptr(py, this).cast_unchecked::<PyLimiter>();
            let request = Request::new(key).cost(plain.cost);
            let request = policy.map_or(request, |policy| request.policy(policy));
            let call = operation(NUMBER).call(request);
            if let Some(known) = known(py, limiter.get().face(), &call) {
                return given(py, known);
            }
        }
        put_aside(py, &OF_LIMITER, NUMBER, this, arguments, count, names)
    }
}

/// A method of `AsyncLimiter`.
unsafe extern "C" fn start<const NUMBER: usize>(
    this: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls it, with so many arguments.
    unsafe {
        let py = Python::assume_attached();
        let plain = Plain::read(py, arguments, count, names);
        if let Some(plain) = &plain
            && let Some((key, policy)) = texts(plain)
        {
            // The interpreter has looked at the class of `this`.
            let limiter = Borrowed::from_ptr(py, this).cast_unchecked::<PyAsyncLimiter>();
            let started = PlainOperation {
                limiter: limiter.to_owned().unbind(),
                operation: operation(NUMBER),
                key: Utf8::holding(&plain.key, key),
                policy: plain.policy.as_deref().zip(policy).map(|(text, read)| Utf8::holding(text, read)),
                cost: plain.cost,
            };
            return given(py, operation_type::create(py, State::Plain(started)));
        }
        put_aside(py, &OF_ASYNC_LIMITER, NUMBER, this, arguments, count, names)
    }
}

/// A result as the interpreter takes it.
pub(crate) fn given(py: Python<'_>, result: PyResult<Py<PyAny>>) -> *mut ffi::PyObject {
    match result {
        Ok(object) => object.into_ptr(),
        Err(error) => {
            error.restore(py);
            null_mut()
        }
    }
}

/// Calls a method that was put aside.
///
/// # Safety
/// As for [`Plain::read`]; `this` is an object of the method's class.
#[cold]
unsafe fn put_aside(
    py: Python<'_>,
    methods: &Aside,
    number: usize,
    this: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let by_position = usize::try_from(count).unwrap_or(0);
    // SAFETY: as promised by the caller.
    let (this, at_place, keywords) = unsafe {
        (
            Borrowed::from_ptr(py, this),
            |place: usize| Borrowed::from_ptr(py, *arguments.add(place)).to_owned(),
            Borrowed::from_ptr_or_opt(py, names).map(|names| names.cast_unchecked::<PyTuple>()),
        )
    };
    let called = || {
        let all = std::iter::once(this.to_owned()).chain((0..by_position).map(at_place));
        let all = PyTuple::new(py, all.collect::<Vec<_>>())?;
        let by_name = PyDict::new(py);
        for (at, name) in keywords.iter().flat_map(|keywords| keywords.iter()).enumerate() {
            by_name.set_item(name, at_place(by_position + at))?;
        }
        let method = methods.get().ok_or_else(|| PyImportError::new_err("polylimit is not imported"))?;
        method[number].bind(py).call(all, Some(&by_name)).map(Bound::unbind)
    };
    Python::attach(|py| given(py, called()))
}
