package polylimit

// #include "shim.h"
import "C"

import (
	"strings"
	"sync"
	"unsafe"
)

// cText copies a text for C; free frees it. A text with a NUL is refused, because C would read only a part.
func cText(text, name string) (*C.char, error) {
	if strings.IndexByte(text, 0) >= 0 {
		return nil, invalid(name + " contains a NUL")
	}
	return C.CString(text), nil
}

// foreignText copies a text that a client has sent; a NUL becomes a question mark.
func foreignText(text string) *C.char {
	return C.CString(strings.ReplaceAll(text, "\x00", "?"))
}

func free(text *C.char) { C.free(unsafe.Pointer(text)) }

// rendered is the text that write puts into a buffer; the buffer grows until the text fits.
func rendered(write func(buffer *C.char, capacity C.size_t, length *C.size_t, failure *message) C.polylimit_status) (string, error) {
	buffer := make([]byte, 512)
	for {
		var length C.size_t
		var failure message
		status := write((*C.char)(unsafe.Pointer(&buffer[0])), C.size_t(len(buffer)), &length, &failure)
		if Kind(status) == ErrInvalidArgument && int(length) >= len(buffer) {
			buffer = make([]byte, int(length)+1)
			continue
		}
		if err := failure.err(status); err != nil {
			return "", err
		}
		return string(buffer[:length]), nil
	}
}

// scratch is memory for one call that renders a text; it is reused.
type scratch struct {
	failure  message
	decision C.polylimit_decision
	buffer   [1024]byte
	length   C.size_t
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// text is the rendered text; isDone is false when a text is too long for the scratch memory.
func (s *scratch) text(status C.polylimit_status) (text string, isDone bool, err error) {
	switch {
	case status == C.POLYLIMIT_PENDING, Kind(status) == ErrInvalidArgument && int(s.length) >= len(s.buffer):
		return "", false, nil
	case status != C.POLYLIMIT_OK:
		return "", true, s.failure.err(status)
	default:
		return string(s.buffer[:s.length]), true, nil
	}
}

func (s *scratch) start() *C.char { return (*C.char)(unsafe.Pointer(&s.buffer[0])) }

func textStart(text string) *C.char { return (*C.char)(unsafe.Pointer(unsafe.StringData(text))) }
