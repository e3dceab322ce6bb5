module miniredis

go 1.25.0

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	polylimit.dev/polylimit v0.0.0-00010101000000-000000000000
)

require github.com/yuin/gopher-lua v1.1.1 // indirect

replace polylimit.dev/polylimit => ../..
