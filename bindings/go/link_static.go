//go:build polylimit_static

package polylimit

// #cgo pkg-config: polylimit-static
import "C"
