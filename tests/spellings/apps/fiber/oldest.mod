module polylimit.dev/spellings/fiber

go 1.25.0

require (
	github.com/gofiber/fiber/v2 v2.52.0
	polylimit.dev/polylimit v0.1.0
	polylimit.dev/polylimit/polylimitfasthttp v0.0.0
	polylimit.dev/spellings/nethttp v0.0.0
)

require (
	github.com/andybalholm/brotli v1.0.5 // indirect
	github.com/google/uuid v1.5.0 // indirect
	github.com/klauspost/compress v1.17.0 // indirect
	github.com/mattn/go-colorable v0.1.13 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/mattn/go-runewidth v0.0.15 // indirect
	github.com/rivo/uniseg v0.2.0 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	github.com/valyala/fasthttp v1.51.0 // indirect
	github.com/valyala/tcplisten v1.0.0 // indirect
	golang.org/x/sys v0.15.0 // indirect
)

replace polylimit.dev/polylimit => ../../../../bindings/go

replace polylimit.dev/polylimit/polylimitfasthttp => ../../../../bindings/go/polylimitfasthttp

replace polylimit.dev/spellings/nethttp => ../nethttp
