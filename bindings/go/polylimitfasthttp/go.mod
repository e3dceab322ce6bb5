module polylimit.dev/polylimit/polylimitfasthttp

go 1.25.0

require (
	github.com/valyala/fasthttp v1.51.0
	polylimit.dev/polylimit v0.1.0
)

require (
	github.com/andybalholm/brotli v1.0.5 // indirect
	github.com/klauspost/compress v1.17.0 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
)

replace polylimit.dev/polylimit => ../
