module polylimit.dev/polylimit

go 1.25
