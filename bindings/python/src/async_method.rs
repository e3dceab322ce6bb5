//! `AsyncMethod`, the type of the methods that return an operation. To Python they are coroutine functions.
//!
//! Frameworks ask `inspect.iscoroutinefunction` whether they have to await what a function returns: `BackgroundTasks` of Starlette
//! runs any other function in a thread and drops its result, and an operation that is never awaited does nothing. A method of C is
//! no coroutine function, and a function of Python would take longer than a decision. `inspect` takes an object with the
//! attributes of a function for one, so this type has them, with the code of an empty `async def` of the same signature, which is
//! compiled when it is asked for.
//!
//! The interpreter calls such a method without making a bound one first, as it does for methods of C.

use std::ffi::{CString, c_int, c_uint, c_void};
use std::mem::offset_of;
use std::ptr::{self, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::exceptions::PyAttributeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use crate::error::into_ptr;
use crate::once::OnceBox;

/// A method that receives its arguments as an array: the object, the arguments, how many have no name, and the names of the others.
pub(crate) type FastMethod = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *const *mut ffi::PyObject,
    ffi::Py_ssize_t,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

type Vectorcall = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *const *mut ffi::PyObject,
    usize,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// `Py_TPFLAGS_METHOD_DESCRIPTOR` and `Py_TPFLAGS_HAVE_VECTORCALL`, the same in all versions; headers of the stable ABI have them
/// from 3.12 on.
const IS_METHOD: u32 = 1 << 17;
const HAS_VECTORCALL: u32 = 1 << 11;
/// The bit of a vectorcall's number of arguments that says that the place before them may be written.
const ARGUMENTS_OFFSET: usize = 1 << (usize::BITS - 1);

/// The attributes of a function that stand for its signature.
const OF_A_FUNCTION: [&str; 4] = ["__code__", "__defaults__", "__kwdefaults__", "__annotations__"];
/// The attributes that the method of pyo3 has.
const OF_THE_ORIGINAL: [&str; 5] =
    ["__name__", "__qualname__", "__doc__", "__text_signature__", "__objclass__"];

/// The memory layout of a method.
#[repr(C)]
struct Object {
    head: ffi::PyObject,
    vectorcall: Option<Vectorcall>,
    fields: *const Method,
}

struct Method {
    /// The class that has the method, and that is never freed.
    class: *mut ffi::PyTypeObject,
    /// The method as pyo3 defines it.
    original: Py<PyAny>,
    /// Takes the most frequent forms of arguments.
    fast: Option<FastMethod>,
    /// The function of Python with the same signature.
    function: OnceBox<Py<PyAny>>,
}

static TYPE: AtomicPtr<ffi::PyTypeObject> = AtomicPtr::new(null_mut());
/// `types.MethodType`, once a method was bound: the import of polylimit loads no other module.
static BOUND: OnceBox<Py<PyAny>> = OnceBox::new();

/// Creates the type.
pub(crate) fn create_type(py: Python<'_>) -> PyResult<()> {
    let slot = |slot, pfunc: *mut c_void| ffi::PyType_Slot { slot, pfunc };
    let mut members = [
        ffi::PyMemberDef {
            name: c"__vectorcalloffset__".as_ptr(),
            type_code: ffi::Py_T_PYSSIZET,
            offset: offset_of!(Object, vectorcall).cast_signed(),
            flags: ffi::Py_READONLY,
            doc: ptr::null(),
        },
        ffi::PyMemberDef::default(),
    ];
    let mut slots = [
        slot(ffi::Py_tp_doc, c"A method that has to be awaited.".as_ptr().cast_mut().cast()),
        slot(ffi::Py_tp_members, members.as_mut_ptr().cast()),
        slot(ffi::Py_tp_call, call as *mut c_void),
        slot(ffi::Py_tp_descr_get, bind as *mut c_void),
        slot(ffi::Py_tp_getattro, attribute as *mut c_void),
        slot(ffi::Py_tp_repr, repr as *mut c_void),
        slot(0, null_mut()),
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"polylimit.AsyncMethod".as_ptr(),
        basicsize: c_int::try_from(size_of::<Object>())?,
        itemsize: 0,
        flags: c_uint::try_from(ffi::Py_TPFLAGS_DEFAULT)? | IS_METHOD | HAS_VECTORCALL,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: each slot holds the kind of value that its number requires, and what the type keeps of them is never freed.
    let class = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec)) }?;
    TYPE.store(class.into_ptr().cast(), Ordering::Release);
    Ok(())
}

/// Replaces a method of a class, which calls `fast` where there is one. Returns the method as it was.
pub(crate) fn replace(
    class: &Bound<'_, PyType>,
    name: &str,
    fast: Option<FastMethod>,
) -> PyResult<Py<PyAny>> {
    let py = class.py();
    let original = class.getattr(name)?.unbind();
    let fields = Method {
        class: class.as_type_ptr(),
        original: original.clone_ref(py),
        fast,
        function: OnceBox::new(),
    };
    // SAFETY: the type exists before this is called. All fields are written before the object is used; the method lives as long as
    // its class, which is never freed.
    let method = unsafe {
        let object = ffi::PyType_GenericAlloc(TYPE.load(Ordering::Acquire), 0).cast::<Object>();
        if object.is_null() {
            return Err(PyErr::fetch(py));
        }
        (&raw mut (*object).vectorcall).write(Some(vectorcall));
        (&raw mut (*object).fields).write(Box::leak(Box::new(fields)));
        Bound::from_owned_ptr(py, object.cast())
    };
    class.setattr(name, method)?;
    Ok(original)
}

/// # Safety
/// `this` is a method.
unsafe fn fields<'a>(this: *mut ffi::PyObject) -> &'a Method {
    // SAFETY: as the caller guarantees; the fields are never freed.
    unsafe { &*(*this.cast::<Object>()).fields }
}

unsafe extern "C" fn vectorcall(
    this: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this function with valid arguments.
    unsafe {
        let method = fields(this);
        let count = count & !ARGUMENTS_OFFSET;
        if let Some(fast) = method.fast
            && count > 0
            && ffi::Py_TYPE(*arguments) == method.class
        {
            return fast(*arguments, arguments.add(1), count.cast_signed() - 1, names);
        }
        let py = Python::assume_attached();
        call_with_array(py, &method.original, arguments, count, names)
    }
}

/// Calls an object with the arguments of a vectorcall, where the stable ABI has no function for it.
///
/// # Safety
/// `arguments` points to `count` arguments without a name, followed by one for each of `names`.
#[cold]
pub(crate) unsafe fn call_with_array(
    py: Python<'_>,
    called: &Py<PyAny>,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as the caller guarantees.
    let (argument, names) = unsafe {
        (
            |at: usize| Borrowed::from_ptr(py, *arguments.add(at)).to_owned(),
            Borrowed::from_ptr_or_opt(py, names).map(|names| names.cast_unchecked::<PyTuple>()),
        )
    };
    let call = || {
        let all = PyTuple::new(py, (0..count).map(argument))?;
        let Some(names) = names.filter(|names| !names.is_empty()) else {
            return called.bind(py).call1(all).map(Bound::unbind);
        };
        let keywords = PyDict::new(py);
        for (at, name) in names.iter().enumerate() {
            keywords.set_item(name, argument(count + at))?;
        }
        called.bind(py).call(all, Some(&keywords)).map(Bound::unbind)
    };
    Python::attach(|py| into_ptr(py, call()))
}

unsafe extern "C" fn call(
    this: *mut ffi::PyObject,
    arguments: *mut ffi::PyObject,
    named: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this function with a tuple and a dict or null.
    unsafe { ffi::PyObject_Call(fields(this).original.as_ptr(), arguments, named) }
}

/// The method of an object; that of a class is the method itself.
unsafe extern "C" fn bind(
    this: *mut ffi::PyObject,
    object: *mut ffi::PyObject,
    _class: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this function.
    let py = unsafe {
        if object.is_null() || object == ffi::Py_None() {
            ffi::Py_IncRef(this);
            return this;
        }
        Python::assume_attached()
    };
    let known = BOUND.get().map_or_else(
        || {
            Python::attach(|py| {
                let class = || py.import("types")?.getattr("MethodType");
                BOUND.get_or_try_init(|| class().map(|class| Box::new(class.unbind())))
            })
        },
        Ok,
    );
    match known {
        // SAFETY: as above; the arguments end in a null.
        Ok(bound) => unsafe {
            ffi::PyObject_CallFunctionObjArgs(bound.as_ptr(), this, object, null_mut::<ffi::PyObject>())
        },
        Err(error) => into_ptr(py, Err(error)),
    }
}

unsafe extern "C" fn attribute(this: *mut ffi::PyObject, name: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this function with a text.
    let (method, text) = unsafe {
        let py = Python::assume_attached();
        (fields(this), Borrowed::from_ptr(py, name).cast_unchecked::<PyString>())
    };
    let of = |names: &[&str]| names.iter().any(|one| text.to_cow().is_ok_and(|text| text == *one));
    if of(&OF_THE_ORIGINAL) {
        return Python::attach(|py| into_ptr(py, method.original.getattr(py, &*text)));
    }
    if of(&OF_A_FUNCTION) {
        return Python::attach(|py| {
            into_ptr(py, method.function(py).and_then(|function| function.getattr(py, &*text)))
        });
    }
    // SAFETY: as above.
    unsafe { ffi::PyObject_GenericGetAttr(this, name) }
}

unsafe extern "C" fn repr(this: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this function.
    let method = unsafe { fields(this) };
    Python::attach(|py| {
        let text = || {
            let name: String = method.original.getattr(py, "__qualname__")?.extract(py)?;
            Ok(PyString::new(py, &format!("<method {name} of polylimit>")).into_any().unbind())
        };
        into_ptr(py, text())
    })
}

impl Method {
    /// An empty `async def` with the signature of the method.
    fn function(&self, py: Python<'_>) -> PyResult<&Py<PyAny>> {
        self.function.get_or_try_init(|| {
            let text = |name: &str| self.original.getattr(py, name)?.extract::<String>(py);
            let (name, signature) = (text("__name__")?, text("__text_signature__")?);
            let rest = signature.strip_prefix("($self").ok_or_else(|| {
                PyAttributeError::new_err(format!("the signature of {name} is {signature}"))
            })?;
            let source = CString::new(format!("async def {name}(self{rest}: ..."))?;
            let globals = PyDict::new(py);
            py.run(&source, Some(&globals), None)?;
            globals.as_any().get_item(name).map(|function| Box::new(function.unbind()))
        })
    }
}
