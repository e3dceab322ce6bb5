//! `Operation`: what an asynchronous call returns, to be awaited. It is a coroutine in all but its type.
//!
//! The type is made by hand: the interpreter's way of ending a coroutine without an exception is not in pyo3, and an exception
//! takes longer than a decision.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::exceptions::{PyStopIteration, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::error::unpanicked;
use crate::operation::{self, State, Step};
use crate::plain_call::given;

/// An object of the type.
#[repr(C)]
struct Object {
    head: ffi::PyObject,
    weak_references: *mut ffi::PyObject,
    state: Cell<State>,
}

/// The type, once it is made; it is never freed.
static TYPE: AtomicPtr<ffi::PyTypeObject> = AtomicPtr::new(null_mut());

const DOC: &str = "An operation under way: await it.\0";

/// The slot and the answers of a coroutine that ends without an exception, from 3.10 on.
const AM_SEND: c_int = 81;
const RETURNED: c_int = 0;
const FAILED: c_int = -1;
const YIELDED: c_int = 1;

/// Makes the type.
pub(crate) fn make(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let slot = |slot, pfunc: *mut c_void| ffi::PyType_Slot { slot, pfunc };
    let mut members = [
        ffi::PyMemberDef {
            name: c"__weaklistoffset__".as_ptr(),
            type_code: ffi::Py_T_PYSSIZET,
            offset: offset_of!(Object, weak_references).cast_signed(),
            flags: ffi::Py_READONLY,
            doc: ptr::null(),
        },
        ffi::PyMemberDef::default(),
    ];
    // They last as long as the type.
    let methods = Box::leak(Box::new([
        method(c"send", send, ffi::METH_O, c"send($self, value, /)\n--\n\nGoes on until the operation waits or is over; for event loops."),
        method(c"throw", throw, ffi::METH_VARARGS, c"throw($self, /, *exception)\n--\n\nEnds the waiting with an exception; for event loops. What was sent to a store is counted all the same."),
        method(c"close", close, ffi::METH_NOARGS, c"close($self, /)\n--\n\nGives up waiting."),
        ffi::PyMethodDef::zeroed(),
    ]));
    let mut slots = vec![
        slot(ffi::Py_tp_doc, DOC.as_ptr().cast_mut().cast()),
        slot(ffi::Py_tp_new, refuse_new as *mut c_void),
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(ffi::Py_tp_traverse, traverse as *mut c_void),
        slot(ffi::Py_tp_clear, clear as *mut c_void),
        slot(ffi::Py_tp_members, members.as_mut_ptr().cast()),
        slot(ffi::Py_tp_methods, methods.as_mut_ptr().cast()),
        slot(ffi::Py_tp_iter, itself as *mut c_void),
        slot(ffi::Py_tp_iternext, next as *mut c_void),
        slot(ffi::Py_am_await, itself as *mut c_void),
        slot(ffi::Py_nb_bool, refuse_bool as *mut c_void),
    ];
    if py.version_info() >= (3, 10) {
        slots.push(slot(AM_SEND, am_send as *mut c_void));
    }
    slots.push(slot(0, null_mut()));
    let mut spec = ffi::PyType_Spec {
        name: c"polylimit.Operation".as_ptr(),
        basicsize: c_int::try_from(size_of::<Object>())?,
        itemsize: 0,
        flags: c_uint::try_from(ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_HAVE_GC)?,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the slots are what their numbers say, and whatever the type keeps of them is never freed.
    let made = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec)) }?;
    TYPE.store(made.clone().into_ptr().cast(), Ordering::Release);
    Ok(made)
}

type Method = unsafe extern "C" fn(*mut ffi::PyObject, *mut ffi::PyObject) -> *mut ffi::PyObject;

const fn method(name: &'static CStr, function: Method, flags: c_int, doc: &'static CStr) -> ffi::PyMethodDef {
    ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: function },
        ml_flags: flags,
        ml_doc: doc.as_ptr(),
    }
}

/// A new operation.
pub(crate) fn create(py: Python<'_>, state: State) -> PyResult<Py<PyAny>> {
    // SAFETY: the type is made before anything that can have operations. Its fields are written before anybody sees it.
    unsafe {
        let made = ffi::PyObject_GC_New::<Object>(TYPE.load(Ordering::Acquire));
        if made.is_null() {
            return Err(PyErr::fetch(py));
        }
        (&raw mut (*made).weak_references).write(null_mut());
        (&raw mut (*made).state).write(Cell::new(state));
        Ok(Bound::from_owned_ptr(py, made.cast()).unbind())
    }
}

/// # Safety
/// `this` is an operation.
unsafe fn state<'a>(this: *mut ffi::PyObject) -> &'a Cell<State> {
    // SAFETY: as promised by the caller; it is referred to for as long as the interpreter's call lasts.
    unsafe { &(*this.cast::<Object>()).state }
}

/// # Safety
/// `this` is an operation, and the interpreter calls.
unsafe fn step(py: Python<'_>, this: *mut ffi::PyObject) -> PyResult<Step> {
    // SAFETY: as promised by the caller.
    let state = unsafe { state(this) };
    let stepped = catch_unwind(AssertUnwindSafe(|| operation::step(state, py)));
    let stepped = unpanicked(py, stepped)??;
    if matches!(stepped, Step::Yields(_)) {
        // SAFETY: only an operation that waits can be part of a cycle, and it says so once.
        unsafe {
            if ffi::PyObject_GC_IsTracked(this) == 0 {
                ffi::PyObject_GC_Track(this.cast());
            }
        }
    }
    Ok(stepped)
}

unsafe extern "C" fn am_send(
    this: *mut ffi::PyObject,
    _value: *mut ffi::PyObject,
    result: *mut *mut ffi::PyObject,
) -> c_int {
    // SAFETY: the interpreter calls it.
    unsafe {
        let py = Python::assume_attached();
        let (object, said) = match step(py, this) {
            Ok(Step::Ends(object)) => (object.into_ptr(), RETURNED),
            Ok(Step::Yields(object)) => (object.into_ptr(), YIELDED),
            Err(error) => {
                error.restore(py);
                (null_mut(), FAILED)
            }
        };
        *result = object;
        said
    }
}

unsafe extern "C" fn next(this: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls it.
    unsafe {
        let py = Python::assume_attached();
        match step(py, this) {
            Ok(Step::Yields(object)) => object.into_ptr(),
            Ok(Step::Ends(object)) => {
                stop(py, object);
                null_mut()
            }
            Err(error) => given(py, Err(error)),
        }
    }
}

/// Ends an iteration with a value.
fn stop(py: Python<'_>, value: Py<PyAny>) {
    let is_plain = value.bind(py).cast::<crate::decision::PyDecision>().is_ok();
    // SAFETY: the interpreter takes both references. It takes any value but a tuple and an exception as it is.
    unsafe {
        if is_plain {
            ffi::Py_IncRef(ffi::PyExc_StopIteration);
            ffi::PyErr_Restore(ffi::PyExc_StopIteration, value.into_ptr(), null_mut());
            return;
        }
    }
    Python::attach(|py| PyStopIteration::new_err((value,)).restore(py));
}

unsafe extern "C" fn itself(this: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls it.
    unsafe {
        ffi::Py_IncRef(this);
    }
    this
}

unsafe extern "C" fn send(this: *mut ffi::PyObject, _value: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls it.
    unsafe { next(this) }
}

unsafe extern "C" fn throw(this: *mut ffi::PyObject, exception: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls it, with a tuple.
    let (state, exception) = unsafe {
        let py = Python::assume_attached();
        (state(this), Borrowed::from_ptr(py, exception).cast_unchecked::<PyTuple>())
    };
    Python::attach(|py| {
        let thrown = catch_unwind(AssertUnwindSafe(|| operation::throw(state, py, &exception)));
        given(py, unpanicked(py, thrown).and_then(|thrown| thrown))
    })
}

unsafe extern "C" fn close(this: *mut ffi::PyObject, _nothing: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls it.
    let state = unsafe { state(this) };
    Python::attach(|py| {
        let closed = catch_unwind(AssertUnwindSafe(|| operation::close(state, py)));
        given(py, unpanicked(py, closed).map(|()| py.None()))
    })
}

/// An operation is no answer: this is what `if limiter.check(...)` without `await` runs into.
unsafe extern "C" fn refuse_bool(_this: *mut ffi::PyObject) -> c_int {
    Python::attach(|py| {
        let said = "an operation of an AsyncLimiter has to be awaited: its answer is not here yet";
        PyTypeError::new_err(said).restore(py);
    });
    -1
}

unsafe extern "C" fn refuse_new(
    _class: *mut ffi::PyTypeObject,
    _arguments: *mut ffi::PyObject,
    _named: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    Python::attach(|py| PyTypeError::new_err("an operation is made by an AsyncLimiter").restore(py));
    null_mut()
}

unsafe extern "C" fn traverse(
    this: *mut ffi::PyObject,
    visit: ffi::visitproc,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the collector calls it, and nothing else runs meanwhile.
    unsafe {
        let visited = visit(ffi::Py_TYPE(this).cast(), argument);
        if visited != 0 {
            return visited;
        }
        match &*state(this).as_ptr() {
            State::Waiting(held) => visit(held.as_ptr(), argument),
            State::Done(held) => visit(held.as_ptr(), argument),
            State::Plain(_) | State::New(..) | State::Over => 0,
        }
    }
}

unsafe extern "C" fn clear(this: *mut ffi::PyObject) -> c_int {
    // SAFETY: the collector calls it.
    let held = unsafe { state(this) }.replace(State::Over);
    Python::attach(|_| drop(held));
    0
}

unsafe extern "C" fn dealloc(this: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls it for what nobody refers to any more. Nothing of it is used after it is freed.
    unsafe {
        let class = ffi::Py_TYPE(this);
        ffi::PyObject_GC_UnTrack(this.cast());
        if !(*this.cast::<Object>()).weak_references.is_null() {
            ffi::PyObject_ClearWeakRefs(this);
        }
        let held = state(this).replace(State::Over);
        if !matches!(held, State::Over) {
            // The interpreter may be ending.
            Python::try_attach(|py| operation::forget(held, py));
        }
        ffi::PyObject_GC_Del(this.cast());
        ffi::Py_DecRef(class.cast());
    }
}
