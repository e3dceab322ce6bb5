package polylimit

// #include "shim.h"
import "C"

import (
	"strconv"
	"unsafe"
)

// Option is a setting of a limiter.
type Option struct {
	name, value string
	clock       *ManualClock
	onDegraded  func(DegradedEvent)
	credentials *credentialsFunction
}

// String is the name of the setting: its value may be a secret.
func (o Option) String() string {
	switch {
	case o.clock != nil:
		return "clock"
	case o.onDegraded != nil:
		return "on degraded"
	case o.credentials != nil:
		return "credentials"
	default:
		return o.name
	}
}

// WithPolicy adds a policy: a name, and its quotas as text, such as "10/second; 1000/hour". A limiter
// without policies takes requests that name quotas.
func WithPolicy(name, quotas string) Option { return Option{name: "policy." + name, value: quotas} }

// WithOutage sets how a policy decides while the store is unavailable: "fallback", "allow" or "deny". Redis only.
func WithOutage(policy, outage string) Option { return Option{name: "outage." + policy, value: outage} }

// WithLease leases the busy keys of a policy: units are taken from a store in Redis in advance and spent in this process. The
// lease is "auto", the largest number of units, or units and a time, such as "100/500ms".
func WithLease(policy, lease string) Option { return Option{name: "lease." + policy, value: lease} }

// WithDocument takes the limits from a document, in TOML or JSON, which Admin.SetDocument replaces.
func WithDocument(document string) Option { return Option{name: "document", value: document} }

// WithConfiguration takes the limits from a configuration that is followed: "file:PATH" is a document in TOML or JSON, "store" a document
// and entries in Redis, "store+file:PATH" a document in a file with entries in Redis. Each change is active within a second.
func WithConfiguration(source string) Option { return Option{name: "configuration", value: source} }

// WithConfigurationCopy names a file to which the configuration is written after each change, and from which a limiter starts while
// Redis is away. Only with WithConfiguration.
func WithConfigurationCopy(path string) Option { return Option{name: "copy", value: path} }

// WithObserveKeys counts how often keys are denied and admitted in this process, for Admin.TopKeys: this many keys at most, up to 65,536.
// Default 0: none.
func WithObserveKeys(keys int) Option { return Option{name: "observe_keys", value: strconv.Itoa(keys)} }

// WithOption sets an option of the store, such as "deadline" to "20ms".
func WithOption(name, value string) Option { return Option{name: name, value: value} }

// WithClock sets a clock for tests, which replaces the clock of any store.
func WithClock(clock *ManualClock) Option { return Option{clock: clock} }

// cOptions copies names and values to memory of C; freeOptions frees them.
func cOptions(options []Option) ([]C.polylimit_option, error) {
	plain := make([]C.polylimit_option, 0, len(options))
	for _, option := range options {
		if option.clock != nil || option.onDegraded != nil || option.credentials != nil {
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

func freeOptions(plain []C.polylimit_option) {
	for _, option := range plain {
		free((*C.char)(unsafe.Pointer(option.name)))
		free((*C.char)(unsafe.Pointer(option.value)))
	}
}

// optionArray copies the array of options itself to memory of C.
func optionArray(plain []C.polylimit_option) *C.polylimit_option {
	if len(plain) == 0 {
		return nil
	}
	size := C.size_t(len(plain)) * C.size_t(unsafe.Sizeof(plain[0]))
	array := (*C.polylimit_option)(C.malloc(size))
	copy(unsafe.Slice(array, len(plain)), plain)
	return array
}
