package polylimit

// #include "shim.h"
import "C"

import "unsafe"

// Option is a setting of a limiter.
type Option struct {
	name, value string
	clock       *ManualClock
	onDegraded  func(DegradedEvent)
}

// WithPolicy adds a policy: a name, and its quotas as text, such as "10/second; 1000/hour". Without any, requests give
// their quotas themselves.
func WithPolicy(name, quotas string) Option { return Option{name: "policy." + name, value: quotas} }

// WithOutage says what a policy answers while the store cannot be asked: "fallback", "allow" or "deny".
func WithOutage(policy, outage string) Option { return Option{name: "outage." + policy, value: outage} }

// WithLease leases busy keys of a policy: units are taken ahead from a store in Redis and spent in this process. The lease
// is "auto", the most units, or units and a time, such as "100/500ms".
func WithLease(policy, lease string) Option { return Option{name: "lease." + policy, value: lease} }

// WithOption sets an option of the store, such as "deadline" to "20ms".
func WithOption(name, value string) Option { return Option{name: name, value: value} }

// WithClock decides by a clock for tests, wherever the states are.
func WithClock(clock *ManualClock) Option { return Option{clock: clock} }

// plainOptions are names and texts in memory of C; freePlain gives them back.
func plainOptions(options []Option) ([]C.polylimit_option, error) {
	plain := make([]C.polylimit_option, 0, len(options))
	for _, option := range options {
		if option.clock != nil || option.onDegraded != nil {
			continue
		}
		name, err := cText(option.name, "the name of an option")
		if err != nil {
			return plain, err
		}
		plain = append(plain, C.polylimit_option{name: name})
		value, err := cText(option.value, "the value of an option")
		if err != nil {
			return plain, err
		}
		plain[len(plain)-1].value = value
	}
	return plain, nil
}

func freePlain(plain []C.polylimit_option) {
	for _, option := range plain {
		free((*C.char)(unsafe.Pointer(option.name)))
		free((*C.char)(unsafe.Pointer(option.value)))
	}
}

// inC copies options to memory of C: those in memory of Go may not point at anything.
func inC(plain []C.polylimit_option) *C.polylimit_option {
	if len(plain) == 0 {
		return nil
	}
	size := C.size_t(len(plain)) * C.size_t(unsafe.Sizeof(plain[0]))
	array := (*C.polylimit_option)(C.malloc(size))
	copy(unsafe.Slice(array, len(plain)), plain)
	return array
}
