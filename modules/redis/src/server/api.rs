//! The functions of the server that the module calls, in the version of Redis 7.0, which Valkey and all later versions have under the same
//! names.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_longlong, c_void};
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;

use crate::keyspace::{Change, Expiry, Found};

pub(super) const OK: c_int = 0;
pub(super) const ERROR: c_int = 1;

/// The version of the module and that of the interface.
const MODULE_VERSION: c_int = 1;
const INTERFACE_VERSION: c_int = 1;
const READ: c_int = 1;
const WRITE: c_int = 1 << 1;
const TYPE_EMPTY: c_int = 0;
const TYPE_STRING: c_int = 1;
const NO_EXPIRY: c_longlong = -1;
/// Keys that were opened to be written, and were not, do not count as changed.
const NO_IMPLICIT_SIGNAL_MODIFIED: c_int = 1 << 1;
const EVENTS_GENERIC: c_int = 1 << 2;
const EVENTS_STRING: c_int = 1 << 3;

/// A command's context.
#[repr(C)]
pub(super) struct Context {
    get_api: *const c_void,
    rest: [u8; 0],
}

/// A string of the server.
#[repr(C)]
pub(super) struct Text([u8; 0]);

/// An open key.
#[repr(C)]
struct Key([u8; 0]);

/// The reply to a command that the module has called.
#[repr(C)]
struct Reply([u8; 0]);

pub(super) type CommandFunction = extern "C" fn(*mut Context, *mut *mut Text, c_int) -> c_int;

/// Declares the functions, and how they are found by their names.
macro_rules! functions {
    ($($name:ident = $symbol:literal: $type:ty;)*) => {
        struct Functions { $($name: $type,)* }

        impl Functions {
            /// `None` where the server lacks one of them.
            ///
            /// # Safety
            /// `get` is the server's function, and the types are those of its header `redismodule.h`.
            unsafe fn load(get: GetApi) -> Option<Self> {
                Some(Self { $($name: {
                    let mut found: *mut c_void = ptr::null_mut();
                    // SAFETY: the server writes a pointer to the place that it is given.
                    let status = unsafe { get($symbol.as_ptr(), (&raw mut found).cast()) };
                    if status != OK || found.is_null() {
                        return None;
                    }
                    // SAFETY: the server's function of this name has this type.
                    unsafe { std::mem::transmute::<*mut c_void, $type>(found) }
                },)* })
            }
        }
    };
}

type GetApi = unsafe extern "C" fn(*const c_char, *mut c_void) -> c_int;

functions! {
    set_attributes = c"RedisModule_SetModuleAttribs":
        unsafe extern "C" fn(*mut Context, *const c_char, c_int, c_int);
    is_name_busy = c"RedisModule_IsModuleNameBusy": unsafe extern "C" fn(*const c_char) -> c_int;
    set_options = c"RedisModule_SetModuleOptions": unsafe extern "C" fn(*mut Context, c_int);
    create_command = c"RedisModule_CreateCommand":
        unsafe extern "C" fn(*mut Context, *const c_char, CommandFunction, *const c_char, c_int, c_int, c_int) -> c_int;
    log = c"RedisModule_Log": unsafe extern "C" fn(*mut Context, *const c_char, *const c_char, ...);
    string_bytes = c"RedisModule_StringPtrLen": unsafe extern "C" fn(*const Text, *mut usize) -> *const c_char;
    reply_error = c"RedisModule_ReplyWithError": unsafe extern "C" fn(*mut Context, *const c_char) -> c_int;
    reply_bytes = c"RedisModule_ReplyWithStringBuffer":
        unsafe extern "C" fn(*mut Context, *const c_char, usize) -> c_int;
    reply_array = c"RedisModule_ReplyWithArray": unsafe extern "C" fn(*mut Context, c_long) -> c_int;
    reply_number = c"RedisModule_ReplyWithLongLong": unsafe extern "C" fn(*mut Context, c_longlong) -> c_int;
    open_key = c"RedisModule_OpenKey": unsafe extern "C" fn(*mut Context, *mut Text, c_int) -> *mut Key;
    close_key = c"RedisModule_CloseKey": unsafe extern "C" fn(*mut Key);
    key_type = c"RedisModule_KeyType": unsafe extern "C" fn(*mut Key) -> c_int;
    delete_key = c"RedisModule_DeleteKey": unsafe extern "C" fn(*mut Key) -> c_int;
    access = c"RedisModule_StringDMA": unsafe extern "C" fn(*mut Key, *mut usize, c_int) -> *mut c_char;
    resize = c"RedisModule_StringTruncate": unsafe extern "C" fn(*mut Key, usize) -> c_int;
    set_expiry = c"RedisModule_SetAbsExpire": unsafe extern "C" fn(*mut Key, c_longlong) -> c_int;
    signal = c"RedisModule_SignalModifiedKey": unsafe extern "C" fn(*mut Context, *mut Text) -> c_int;
    notify = c"RedisModule_NotifyKeyspaceEvent":
        unsafe extern "C" fn(*mut Context, c_int, *const c_char, *mut Text) -> c_int;
    replicate = c"RedisModule_Replicate":
        unsafe extern "C" fn(*mut Context, *const c_char, *const c_char, ...) -> c_int;
    call = c"RedisModule_Call":
        unsafe extern "C" fn(*mut Context, *const c_char, *const c_char, ...) -> *mut Reply;
    free_reply = c"RedisModule_FreeCallReply": unsafe extern "C" fn(*mut Reply);
}

/// The server's functions. Its methods are safe to call within a command of the module, on its thread, with the command's context and
/// arguments, which is all that `server` does.
pub(super) struct Api(Functions);

static API: OnceLock<Api> = OnceLock::new();

impl Api {
    /// Finds the functions; `None` where the server is too old.
    ///
    /// # Safety
    /// The context comes from the server that loads the module.
    pub(super) unsafe fn load(context: *mut Context) -> Option<&'static Self> {
        // SAFETY: a context begins with the pointer to the function that finds the others.
        let get = unsafe { std::mem::transmute::<*const c_void, Option<GetApi>>((*context).get_api) }?;
        // SAFETY: it is the server's.
        let functions = unsafe { Functions::load(get) }?;
        Some(API.get_or_init(|| Self(functions)))
    }

    pub(super) fn get() -> Option<&'static Self> {
        API.get()
    }

    /// Names the module. Returns whether the name is free.
    pub(super) fn register(&self, context: *mut Context, name: &CStr) -> bool {
        // SAFETY: as for `Api`.
        unsafe {
            if (self.0.is_name_busy)(name.as_ptr()) != 0 {
                return false;
            }
            (self.0.set_attributes)(context, name.as_ptr(), MODULE_VERSION, INTERFACE_VERSION);
            (self.0.set_options)(context, NO_IMPLICIT_SIGNAL_MODIFIED);
        }
        true
    }

    /// Returns whether the command is now there.
    pub(super) fn create_command(
        &self,
        context: *mut Context,
        name: &CStr,
        function: CommandFunction,
        flags: &CStr,
        [first, last, step]: [c_int; 3],
    ) -> bool {
        // SAFETY: as for `Api`.
        let status = unsafe {
            (self.0.create_command)(context, name.as_ptr(), function, flags.as_ptr(), first, last, step)
        };
        status == OK
    }

    pub(super) fn log(&self, context: *mut Context, level: &CStr, line: &CStr) {
        // SAFETY: as for `Api`; the format has the one argument that follows.
        unsafe { (self.0.log)(context, level.as_ptr(), c"%s".as_ptr(), line.as_ptr()) }
    }

    /// The bytes of an argument, which stay as they are while the command runs.
    pub(super) fn bytes<'a>(&self, text: *mut Text) -> &'a [u8] {
        let mut length = 0;
        // SAFETY: as for `Api`; the bytes are the argument's.
        unsafe {
            let bytes = (self.0.string_bytes)(text, &raw mut length);
            slice(bytes, length)
        }
    }

    /// Replies with an error; its text has no line breaks.
    pub(super) fn reply_error(&self, context: *mut Context, text: &str) -> c_int {
        let text = CString::new(text).unwrap_or_default();
        // SAFETY: as for `Api`; the server copies the text.
        unsafe { (self.0.reply_error)(context, text.as_ptr()) }
    }

    pub(super) fn reply_bytes(&self, context: *mut Context, bytes: &[u8]) {
        // SAFETY: as for `Api`; the server copies the bytes.
        unsafe { (self.0.reply_bytes)(context, bytes.as_ptr().cast(), bytes.len()) };
    }

    pub(super) fn reply_array(&self, context: *mut Context, length: usize) {
        // SAFETY: as for `Api`.
        unsafe { (self.0.reply_array)(context, c_long::try_from(length).unwrap_or(0)) };
    }

    pub(super) fn reply_number(&self, context: *mut Context, number: i64) {
        // SAFETY: as for `Api`.
        unsafe { (self.0.reply_number)(context, number) };
    }

    pub(super) fn open(&self, context: *mut Context, name: *mut Text) -> OpenKey<'_> {
        // SAFETY: as for `Api`.
        let key = unsafe { (self.0.open_key)(context, name, READ | WRITE) };
        OpenKey { api: self, key, of_command: PhantomData }
    }

    /// Makes clients that watch or cache the key, and those that follow its events, know of a change.
    pub(super) fn signal(&self, context: *mut Context, name: *mut Text, change: &Change) {
        let (kind, event) = match change {
            Change::Delete => (EVENTS_GENERIC, c"del"),
            Change::Overwrite(_) | Change::Write(..) => (EVENTS_STRING, c"setrange"),
            Change::Nothing | Change::Set(..) => (EVENTS_STRING, c"set"),
        };
        // SAFETY: as for `Api`.
        unsafe {
            (self.0.signal)(context, name);
            (self.0.notify)(context, kind, event.as_ptr(), name);
        }
    }

    pub(super) fn replicate_delete(&self, context: *mut Context, key: *mut Text) {
        // SAFETY: as for `Api`; the format has the arguments that follow, as in the functions below.
        unsafe { (self.0.replicate)(context, c"DEL".as_ptr(), c"s".as_ptr(), key) };
    }

    pub(super) fn replicate_overwrite(
        &self,
        context: *mut Context,
        key: *mut Text,
        from: usize,
        value: &[u8],
    ) {
        let (command, format, from) =
            (c"SETRANGE".as_ptr(), c"slb".as_ptr(), c_longlong::try_from(from).unwrap_or(0));
        // SAFETY: as above.
        unsafe { (self.0.replicate)(context, command, format, key, from, value.as_ptr(), value.len()) };
    }

    pub(super) fn replicate_expiry(&self, context: *mut Context, key: *mut Text, until_ms: u64) {
        let (command, until_ms) = (c"PEXPIREAT".as_ptr(), milliseconds(until_ms));
        // SAFETY: as above.
        unsafe { (self.0.replicate)(context, command, c"sl".as_ptr(), key, until_ms) };
    }

    pub(super) fn replicate_set(
        &self,
        context: *mut Context,
        key: *mut Text,
        value: &[u8],
        option: Option<&CStr>,
    ) {
        let (command, bytes, length) = (c"SET".as_ptr(), value.as_ptr(), value.len());
        // SAFETY: as above.
        unsafe {
            match option {
                None => (self.0.replicate)(context, command, c"sb".as_ptr(), key, bytes, length),
                Some(option) => {
                    let format = c"sbc".as_ptr();
                    (self.0.replicate)(context, command, format, key, bytes, length, option.as_ptr())
                }
            }
        };
    }

    pub(super) fn replicate_set_until(
        &self,
        context: *mut Context,
        key: *mut Text,
        value: &[u8],
        until_ms: u64,
    ) {
        let (command, format, bytes, length) =
            (c"SET".as_ptr(), c"sbcl".as_ptr(), value.as_ptr(), value.len());
        // SAFETY: as above.
        unsafe {
            (self.0.replicate)(
                context,
                command,
                format,
                key,
                bytes,
                length,
                c"PXAT".as_ptr(),
                milliseconds(until_ms),
            )
        };
    }

    /// Publishes with the rights of the caller, who may lack them: no decision depends on it.
    pub(super) fn publish(&self, context: *mut Context, channel: &[u8], message: &[u8]) {
        let (command, format) = (c"PUBLISH".as_ptr(), c"!Cbb".as_ptr());
        // SAFETY: as for `Api`; the format has the arguments that follow, and the reply is the module's to free.
        unsafe {
            let reply = (self.0.call)(
                context,
                command,
                format,
                channel.as_ptr(),
                channel.len(),
                message.as_ptr(),
                message.len(),
            );
            if !reply.is_null() {
                (self.0.free_reply)(reply);
            }
        }
    }
}

/// A key that is open while its value is decided.
pub(super) struct OpenKey<'a> {
    api: &'a Api,
    key: *mut Key,
    of_command: PhantomData<&'a Context>,
}

impl OpenKey<'_> {
    /// What the key has. The bytes are valid until the key is changed.
    pub(super) fn found(&self) -> Found<'_> {
        // SAFETY: the key is open.
        unsafe {
            match (self.api.0.key_type)(self.key) {
                TYPE_EMPTY => Found::Nothing,
                TYPE_STRING => {
                    let mut length = 0;
                    let bytes = (self.api.0.access)(self.key, &raw mut length, READ);
                    Found::String(slice(bytes, length))
                }
                _ => Found::Foreign,
            }
        }
    }

    /// Changes the key. Returns the part of a value that was overwritten.
    pub(super) fn apply(&self, change: &Change) -> Range<usize> {
        let (bytes, expiry) = match change {
            Change::Nothing => return 0..0,
            Change::Delete => {
                // SAFETY: the key is open.
                unsafe { (self.api.0.delete_key)(self.key) };
                return 0..0;
            }
            Change::Overwrite(bytes) => (bytes, Expiry::Kept),
            Change::Set(bytes, expiry) => (bytes, *expiry),
            Change::Write(at, bytes, expiry) => {
                if self.write(*at, bytes) {
                    self.set_expiry(*expiry);
                }
                return 0..0;
            }
        };
        let mut length = 0;
        // SAFETY: the key is open. The server's string gets the length of the bytes before they are copied, and its pointer is valid until the next
        // call.
        unsafe {
            if !matches!(change, Change::Overwrite(_)) && (self.api.0.resize)(self.key, bytes.len()) != OK {
                return 0..0;
            }
            let place = (self.api.0.access)(self.key, &raw mut length, WRITE);
            if place.is_null() || length != bytes.len() {
                return 0..0;
            }
            let place = std::slice::from_raw_parts_mut(place.cast::<u8>(), length);
            let part = if matches!(change, Change::Overwrite(_)) { changed(place, bytes) } else { 0..length };
            place[part.clone()].copy_from_slice(&bytes[part.clone()]);
            self.set_expiry(expiry);
            part
        }
    }

    /// Writes bytes at a place of the value, which becomes longer where they end after it. Returns whether it did.
    fn write(&self, at: usize, bytes: &[u8]) -> bool {
        let (mut length, end) = (0, at.saturating_add(bytes.len()));
        // SAFETY: the key is open. The server's string gets the length that it needs before the bytes are copied, and its pointer is valid until
        // the next call.
        unsafe {
            if (self.api.0.key_type)(self.key) != TYPE_STRING {
                return false;
            }
            (self.api.0.access)(self.key, &raw mut length, READ);
            if at > length || end > length && (self.api.0.resize)(self.key, end) != OK {
                return false;
            }
            let place = (self.api.0.access)(self.key, &raw mut length, WRITE);
            if place.is_null() || length < end {
                return false;
            }
            std::slice::from_raw_parts_mut(place.cast::<u8>(), length)[at..end].copy_from_slice(bytes);
        }
        true
    }

    fn set_expiry(&self, expiry: Expiry) {
        let until_ms = match expiry {
            Expiry::Kept => return,
            Expiry::Never => NO_EXPIRY,
            Expiry::At(ms) => milliseconds(ms),
        };
        // SAFETY: the key is open.
        unsafe { (self.api.0.set_expiry)(self.key, until_ms) };
    }
}

impl Drop for OpenKey<'_> {
    fn drop(&mut self) {
        // SAFETY: the key is open, and not used again.
        unsafe { (self.api.0.close_key)(self.key) };
    }
}

/// A part of a value outside of which it equals one of the same length; at least one byte.
fn changed(before: &[u8], after: &[u8]) -> Range<usize> {
    // Slices are compared much faster than bytes one by one.
    const STEP: usize = 16;
    let (mut from, mut to) = (0, after.len());
    while to - from > STEP && before[from..from + STEP] == after[from..from + STEP] {
        from += STEP;
    }
    while to - from > STEP && before[to - STEP..to] == after[to - STEP..to] {
        to -= STEP;
    }
    from..to
}

fn milliseconds(ms: u64) -> c_longlong {
    c_longlong::try_from(ms).unwrap_or(c_longlong::MAX)
}

/// # Safety
/// This number of bytes is valid for as long as the slice is used. The pointer may be null where there are none.
unsafe fn slice<'a>(bytes: *const c_char, length: usize) -> &'a [u8] {
    if bytes.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: as for this function.
    unsafe { std::slice::from_raw_parts(bytes.cast(), length) }
}
