module polylimit.dev/spellings/httprouter

go 1.25.0

require (
	github.com/julienschmidt/httprouter v1.2.0
	polylimit.dev/polylimit v0.0.0
	polylimit.dev/spellings/nethttp v0.0.0
)

replace polylimit.dev/polylimit => ../../../../bindings/go

replace polylimit.dev/spellings/nethttp => ../nethttp
