//go:build !cgo

package polylimit

// Nothing else of this package is compiled then, so that this is the one error.
func init() {
	polylimit_calls_a_library_in_C__build_with_CGO_ENABLED_1_and_a_C_compiler()
}
