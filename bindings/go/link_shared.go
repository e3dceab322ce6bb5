//go:build !polylimit_static

package polylimit

// Shared and static linking are in separate files because the build cache depends on files, and not on the output of pkg-config.

// #cgo pkg-config: polylimit
import "C"
