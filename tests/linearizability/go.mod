module polylimit-linearizability

go 1.25

require (
	github.com/anishathalye/porcupine v1.3.1
	polylimit.dev/polylimit v0.0.0
)

replace polylimit.dev/polylimit => ../../bindings/go
