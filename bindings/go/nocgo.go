//go:build !cgo

package polylimit

// Without cgo this is the only file that is compiled, so that the name of this function is the only error.
func init() {
	polylimit_calls_a_library_in_C__build_with_CGO_ENABLED_1_and_a_C_compiler()
}
