package polylimit

/*
#cgo noescape polylimit_go_address_key
#cgo nocallback polylimit_go_address_key
#include "shim.h"
*/
import "C"

import (
	"runtime"
	"strconv"
	"unsafe"
)

// AddressRules say which proxies are trusted to report a client's address, and how much of an address identifies one client.
// The zero value trusts no proxy: the peer is the client, identified by its IPv4 address or by the /64 of its IPv6 address.
type AddressRules struct {
	// Trust are the networks of the proxies: addresses, prefixes, "loopback", "link-local", "private".
	Trust []string
	// Header is the one header that those proxies write: "x-forwarded-for" or "forwarded", or one of a single address,
	// "cf-connecting-ip", "true-client-ip", "x-real-ip" or "fly-client-ip", where nothing reaches the service around the proxy.
	Header string
	// IPv4Prefix and IPv6Prefix are the number of leading bits that identify a client; nil is the default, 32 and 64.
	IPv4Prefix, IPv6Prefix *uint8
}

// AddressKeys finds the keys of clients by checked rules. Any goroutine may use it at any time.
type AddressKeys struct {
	rules  *C.polylimit_address_rules
	header string
}

// Keys checks the rules.
func (r AddressRules) Keys() (*AddressKeys, error) {
	var options []Option
	for _, network := range r.Trust {
		options = append(options, Option{name: "trust", value: network})
	}
	if r.Header != "" {
		options = append(options, Option{name: "header", value: r.Header})
	}
	for name, bits := range map[string]*uint8{"ipv4_prefix": r.IPv4Prefix, "ipv6_prefix": r.IPv6Prefix} {
		if bits != nil {
			options = append(options, Option{name: name, value: strconv.Itoa(int(*bits))})
		}
	}
	plain, err := cOptions(options)
	defer freeOptions(plain)
	if err != nil {
		return nil, err
	}
	array := optionArray(plain)
	defer C.free(unsafe.Pointer(array))
	keys := &AddressKeys{}
	var failure message
	status := C.polylimit_address_rules_new(array, C.size_t(len(plain)), &keys.rules, &failure[0], C.size_t(len(failure)))
	if err := failure.err(status); err != nil {
		return nil, err
	}
	if header := C.polylimit_address_rules_header(keys.rules); header != nil {
		keys.header = C.GoString(header)
	}
	runtime.AddCleanup(keys, func(rules *C.polylimit_address_rules) { C.polylimit_address_rules_free(rules) }, keys.rules)
	return keys, nil
}

// Header is the name of the header field whose lines Key needs; empty when it needs none.
func (k *AddressKeys) Header() string { return k.header }

// Key is the key of a client: the same text for all addresses of one client, such as "203.0.113.7" or "2001:db8:1:2::/64". The
// peer is the address at the other end of the connection; a port, brackets and a zone are ignored. All peers that are not
// addresses are one client, "unknown". The lines are those of Header, in the order in which they arrived.
func (k *AddressKeys) Key(peer string, lines []string) (string, error) {
	defer runtime.KeepAlive(k)
	if len(lines) < 2 && !hasNUL(peer) {
		line := ""
		if len(lines) == 1 {
			line = lines[0]
		}
		own := scratches.Get().(*scratch)
		defer scratches.Put(own)
		status := C.polylimit_go_address_key(k.rules, textStart(peer), C.size_t(len(peer)), textStart(line),
			C.size_t(len(line)), C.size_t(len(lines)), own.start(), C.size_t(len(own.buffer)), &own.length,
			&own.failure[0], C.size_t(len(own.failure)))
		if text, isDone, err := own.text(status); isDone {
			return text, err
		}
	}
	cPeer := foreignText(peer)
	defer free(cPeer)
	var pinner runtime.Pinner
	defer pinner.Unpin()
	plain := make([]C.polylimit_line, len(lines))
	for at, line := range lines {
		plain[at] = cLine(&pinner, line)
	}
	return rendered(func(buffer *C.char, capacity C.size_t, length *C.size_t, failure *message) C.polylimit_status {
		return C.polylimit_address_rules_key(k.rules, cPeer, unsafe.SliceData(plain), C.size_t(len(plain)),
			buffer, capacity, length, &failure[0], C.size_t(len(failure)))
	})
}
