module polylimit.dev/spellings/chi

go 1.25

require (
	github.com/go-chi/chi/v5 v5.5.0
	polylimit.dev/polylimit v0.0.0
	polylimit.dev/spellings/nethttp v0.0.0
)

replace polylimit.dev/polylimit => ../../../../bindings/go

replace polylimit.dev/spellings/nethttp => ../nethttp
