module polylimit.dev/spellings/nethttp

go 1.25

require polylimit.dev/polylimit v0.0.0

replace polylimit.dev/polylimit => ../../../../bindings/go
