//go:build !polylimit_static

package polylimit

// In a file of its own, as in link_static.go: what is built is cached by its files, not by what pkg-config says of them.

// #cgo pkg-config: polylimit
import "C"
