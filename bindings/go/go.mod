module polylimit

go 1.25
