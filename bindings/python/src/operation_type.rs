//! `Operation`, the awaitable object that a method of `AsyncLimiter` returns. It behaves as a coroutine.
//!
//! The type is built with the C API because pyo3 does not offer `am_send`, with which a coroutine returns its result without
//! raising `StopIteration`: raising an exception takes longer than a decision in memory.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::exceptions::{PyStopIteration, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::error::{into_ptr, raise_panic};
use crate::once::intern;
use crate::operation::{self, State, Step};

/// The memory layout of an `Operation`.
#[repr(C)]
struct Object {
    head: ffi::PyObject,
    weak_references: *mut ffi::PyObject,
    state: Cell<State>,
    /// The method that made the operation.
    method: &'static CStr,
}

/// The type, which is created with the module and never freed.
static TYPE: AtomicPtr<ffi::PyTypeObject> = AtomicPtr::new(null_mut());

const DOC: &str = "An operation that has to be awaited.\0";

/// The results of `am_send`.
const RETURNED: c_int = 0;
const FAILED: c_int = -1;
const YIELDED: c_int = 1;

/// Creates the type.
pub(crate) fn create_type(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
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
    // The methods have to live as long as the type.
    let methods = Box::leak(Box::new([
        method(c"send", send, ffi::METH_O, c"send($self, value, /)\n--\n\nRuns the operation until it waits or is finished; for event loops."),
        method(c"throw", throw, ffi::METH_VARARGS, c"throw($self, /, *exception)\n--\n\nEnds the operation with an exception; for event loops. A request that was already sent to the store is counted there."),
        method(c"close", close, ffi::METH_NOARGS, c"close($self, /)\n--\n\nEnds the operation without a result."),
        ffi::PyMethodDef::zeroed(),
    ]));
    // As the methods.
    let attributes = Box::leak(Box::new([
        attribute(c"__name__", name),
        attribute(c"__qualname__", qualified_name),
        ffi::PyGetSetDef::default(),
    ]));
    let mut slots = [
        slot(ffi::Py_tp_doc, DOC.as_ptr().cast_mut().cast()),
        slot(ffi::Py_tp_new, refuse_new as *mut c_void),
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(ffi::Py_tp_traverse, traverse as *mut c_void),
        slot(ffi::Py_tp_clear, clear as *mut c_void),
        slot(ffi::Py_tp_members, members.as_mut_ptr().cast()),
        slot(ffi::Py_tp_methods, methods.as_mut_ptr().cast()),
        slot(ffi::Py_tp_iter, return_self as *mut c_void),
        slot(ffi::Py_tp_iternext, next as *mut c_void),
        slot(ffi::Py_am_await, return_self as *mut c_void),
        slot(ffi::Py_nb_bool, truth as *mut c_void),
        slot(ffi::Py_tp_getset, attributes.as_mut_ptr().cast()),
        slot(ffi::Py_tp_repr, repr as *mut c_void),
        slot(ffi::Py_am_send, am_send as *mut c_void),
        slot(0, null_mut()),
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"polylimit.Operation".as_ptr(),
        basicsize: c_int::try_from(size_of::<Object>())?,
        itemsize: 0,
        flags: c_uint::try_from(ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_HAVE_GC)?,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: each slot holds the kind of value that its number requires, and what the type keeps of them is never freed.
    let class = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec)) }?;
    TYPE.store(class.clone().into_ptr().cast(), Ordering::Release);
    Ok(class)
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

const fn attribute(name: &'static CStr, get: ffi::getter) -> ffi::PyGetSetDef {
    ffi::PyGetSetDef { name: name.as_ptr(), get: Some(get), set: None, doc: ptr::null(), closure: null_mut() }
}

/// A new operation.
pub(crate) fn create(py: Python<'_>, state: State) -> PyResult<Py<PyAny>> {
    // SAFETY: the type exists before any limiter does. All fields are written before the object is returned.
    unsafe {
        let object = ffi::PyObject_GC_New::<Object>(TYPE.load(Ordering::Acquire));
        if object.is_null() {
            return Err(PyErr::fetch(py));
        }
        (&raw mut (*object).weak_references).write(null_mut());
        (&raw mut (*object).method).write(state.method());
        (&raw mut (*object).state).write(Cell::new(state));
        Ok(Bound::from_owned_ptr(py, object.cast()).unbind())
    }
}

/// # Safety
/// `this` is an operation.
unsafe fn state<'a>(this: *mut ffi::PyObject) -> &'a Cell<State> {
    // SAFETY: as the caller guarantees; the interpreter holds a reference during its call.
    unsafe { &(*this.cast::<Object>()).state }
}

/// # Safety
/// `this` is an operation, `value` an object, and the interpreter makes the call.
unsafe fn step(py: Python<'_>, this: *mut ffi::PyObject, value: *mut ffi::PyObject) -> PyResult<Step> {
    // SAFETY: as the caller guarantees.
    let (state, value) = unsafe { (state(this), Borrowed::from_ptr(py, value)) };
    let result = catch_unwind(AssertUnwindSafe(|| operation::step(state, py, value)));
    let result = raise_panic(py, result)??;
    if matches!(result, Step::Yield(_)) {
        // SAFETY: only a waiting operation can be part of a reference cycle; it is tracked once.
        unsafe {
            if ffi::PyObject_GC_IsTracked(this) == 0 {
                ffi::PyObject_GC_Track(this.cast());
            }
        }
    }
    Ok(result)
}

unsafe extern "C" fn am_send(
    this: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    result: *mut *mut ffi::PyObject,
) -> c_int {
    // SAFETY: the interpreter calls this function.
    unsafe {
        let py = Python::assume_attached();
        let (object, status) = match step(py, this, value) {
            Ok(Step::Return(object)) => (object.into_ptr(), RETURNED),
            Ok(Step::Yield(object)) => (object.into_ptr(), YIELDED),
            Err(error) => {
                error.restore(py);
                (null_mut(), FAILED)
            }
        };
        *result = object;
        status
    }
}

unsafe extern "C" fn next(this: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this function.
    unsafe { send(this, ffi::Py_None()) }
}

unsafe extern "C" fn send(this: *mut ffi::PyObject, value: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this function.
    unsafe {
        let py = Python::assume_attached();
        match step(py, this, value) {
            Ok(Step::Yield(object)) => object.into_ptr(),
            Ok(Step::Return(object)) => {
                raise_stop_iteration(py, object);
                null_mut()
            }
            Err(error) => into_ptr(py, Err(error)),
        }
    }
}

/// Raises `StopIteration` with a result.
fn raise_stop_iteration(py: Python<'_>, value: Py<PyAny>) {
    let is_decision = value.bind(py).cast::<crate::decision::PyDecision>().is_ok();
    // SAFETY: the interpreter takes both references. It wraps any value but a tuple or an exception without calling the class.
    unsafe {
        if is_decision {
            ffi::Py_IncRef(ffi::PyExc_StopIteration);
            ffi::PyErr_Restore(ffi::PyExc_StopIteration, value.into_ptr(), null_mut());
            return;
        }
    }
    Python::attach(|py| PyStopIteration::new_err((value,)).restore(py));
}

unsafe extern "C" fn return_self(this: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this function.
    unsafe {
        ffi::Py_IncRef(this);
    }
    this
}

unsafe extern "C" fn throw(this: *mut ffi::PyObject, exception: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this function with a tuple.
    let (state, exception) = unsafe {
        let py = Python::assume_attached();
        (state(this), Borrowed::from_ptr(py, exception).cast_unchecked::<PyTuple>())
    };
    Python::attach(|py| {
        let result = catch_unwind(AssertUnwindSafe(|| operation::throw(state, py, &exception)));
        into_ptr(py, raise_panic(py, result).and_then(|result| result))
    })
}

unsafe extern "C" fn close(this: *mut ffi::PyObject, _unused: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this function.
    let state = unsafe { state(this) };
    Python::attach(|py| {
        let closed = catch_unwind(AssertUnwindSafe(|| operation::close(state, py)));
        into_ptr(py, raise_panic(py, closed).and_then(|closed| closed).map(|()| py.None()))
    })
}

/// Refuses the truth value of an operation, so that `if limiter.check(...)` without `await` fails. asyncio asks for it where it shows
/// a task, which must not fail.
unsafe extern "C" fn truth(_this: *mut ffi::PyObject) -> c_int {
    Python::attach(|py| match refuse_truth(py) {
        Ok(()) => 1,
        Err(error) => {
            error.restore(py);
            -1
        }
    })
}

pub(crate) fn refuse_truth(py: Python<'_>) -> PyResult<()> {
    if asyncio_asks(py) {
        return Ok(());
    }
    Err(PyTypeError::new_err("an operation of an AsyncLimiter has to be awaited: its answer is not here yet"))
}

/// Whether the function that runs is one of asyncio.
fn asyncio_asks(py: Python<'_>) -> bool {
    // SAFETY: the frame is borrowed from the interpreter; it is null where no function runs.
    let frame = unsafe { Borrowed::from_ptr_or_opt(py, ffi::PyEval_GetFrame().cast()) };
    let module = frame.and_then(|frame| {
        let globals = frame.getattr(intern!(py, "f_globals")).ok()?;
        globals.get_item(intern!(py, "__name__")).ok()?.extract::<String>().ok()
    });
    module.is_some_and(|module| module.split('.').next() == Some("asyncio"))
}

/// The name of the method that made the operation, as a coroutine has that of its function.
unsafe extern "C" fn name(this: *mut ffi::PyObject, _closure: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this function.
    let method = unsafe { (*this.cast::<Object>()).method }.to_bytes();
    let start = method.iter().rposition(|byte| *byte == b'.').map_or(0, |dot| dot + 1);
    text(&method[start..])
}

unsafe extern "C" fn qualified_name(this: *mut ffi::PyObject, _closure: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this function.
    text(unsafe { (*this.cast::<Object>()).method }.to_bytes())
}

unsafe extern "C" fn repr(this: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this function.
    let method = unsafe { (*this.cast::<Object>()).method }.to_string_lossy();
    text(format!("<operation of {method} at {this:p}>").as_bytes())
}

/// A text, which is one of this file.
fn text(bytes: &[u8]) -> *mut ffi::PyObject {
    Python::attach(|py| {
        into_ptr(py, Ok(PyString::new(py, &String::from_utf8_lossy(bytes)).into_any().unbind()))
    })
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
    // SAFETY: the garbage collector calls this function, and no other code runs meanwhile.
    unsafe {
        let visited = visit(ffi::Py_TYPE(this).cast(), argument);
        if visited != 0 {
            return visited;
        }
        match &*state(this).as_ptr() {
            State::Waiting(future) => visit(future.as_ptr(), argument),
            State::Ready(object) | State::Delegated(object) => visit(object.as_ptr(), argument),
            State::Fast(_) | State::NotStarted(..) | State::Tried(..) | State::Finished => 0,
        }
    }
}

unsafe extern "C" fn clear(this: *mut ffi::PyObject) -> c_int {
    // SAFETY: the garbage collector calls this function.
    let state = unsafe { state(this) }.replace(State::Finished);
    Python::attach(|_| drop(state));
    0
}

unsafe extern "C" fn dealloc(this: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this function when no reference is left. The object is not used after it is freed.
    unsafe {
        let class = ffi::Py_TYPE(this);
        ffi::PyObject_GC_UnTrack(this.cast());
        if !(*this.cast::<Object>()).weak_references.is_null() {
            ffi::PyObject_ClearWeakRefs(this);
        }
        let state = state(this).replace(State::Finished);
        if !matches!(state, State::Finished) {
            // Attaching fails while the interpreter shuts down.
            Python::try_attach(|py| operation::warn_if_not_awaited(state, py));
        }
        ffi::PyObject_GC_Del(this.cast());
        ffi::Py_DecRef(class.cast());
    }
}
