package polylimit

// #include "shim.h"
import "C"

import "fmt"

// Kind is the kind of an error. It is an error itself, so that errors.Is finds it.
type Kind int32

// The kinds of error, the same in every language.
const (
	// ErrInvalidArgument: an argument is not allowed; the same call fails again.
	ErrInvalidArgument = Kind(C.POLYLIMIT_INVALID_ARGUMENT)
	// ErrStoreUnavailable: the store could not be reached in time; trying again later may succeed.
	ErrStoreUnavailable = Kind(C.POLYLIMIT_STORE_UNAVAILABLE)
	// ErrStoreFailed: the store was reached and could not decide.
	ErrStoreFailed = Kind(C.POLYLIMIT_STORE_FAILED)
	// ErrClosed: the limiter was closed.
	ErrClosed = Kind(C.POLYLIMIT_CLOSED)
	// ErrInternal: a defect in polylimit itself.
	ErrInternal = Kind(C.POLYLIMIT_INTERNAL)
)

// Code is the name of the kind, such as "invalid_argument".
func (k Kind) Code() string {
	name := C.polylimit_status_name(C.polylimit_status(k))
	if name == nil {
		return fmt.Sprintf("status %d", int32(k))
	}
	return C.GoString(name)
}

func (k Kind) Error() string { return "polylimit: " + k.Code() }

// Error is the error when no decision could be made.
type Error struct {
	// Kind is for errors.Is(err, polylimit.ErrClosed).
	Kind Kind
	// Message says what was read and what is allowed. It never holds a password or a raw key.
	Message string
}

func (e *Error) Error() string { return "polylimit: " + e.Message }

// Unwrap is the kind.
func (e *Error) Unwrap() error { return e.Kind }

// message is a buffer for the error message of a call.
type message [512]C.char

// err is the error of a status; nil for success.
func (m *message) err(status C.polylimit_status) error {
	if status == C.POLYLIMIT_OK {
		return nil
	}
	return &Error{Kind: Kind(status), Message: C.GoString(&m[0])}
}

func invalid(text string) error {
	return &Error{Kind: ErrInvalidArgument, Message: text}
}
