module polylimit.dev/spellings/gorilla

go 1.25

require (
	github.com/gorilla/mux v1.8.0
	polylimit.dev/polylimit v0.0.0
	polylimit.dev/spellings/nethttp v0.0.0
)

replace polylimit.dev/polylimit => ../../../../bindings/go

replace polylimit.dev/spellings/nethttp => ../nethttp
