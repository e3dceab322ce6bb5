module polylimit.dev/spellings/echo

go 1.25.0

require (
	github.com/labstack/echo/v4 v4.9.0
	polylimit.dev/polylimit v0.0.0
	polylimit.dev/spellings/nethttp v0.0.0
)

require (
	github.com/golang-jwt/jwt v3.2.2+incompatible // indirect
	github.com/labstack/gommon v0.3.1 // indirect
	github.com/mattn/go-colorable v0.1.11 // indirect
	github.com/mattn/go-isatty v0.0.17 // indirect
	github.com/stretchr/testify v1.8.1 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	github.com/valyala/fasttemplate v1.2.1 // indirect
	golang.org/x/crypto v0.5.0 // indirect
	golang.org/x/net v0.7.0 // indirect
	golang.org/x/sys v0.5.0 // indirect
	golang.org/x/text v0.7.0 // indirect
	golang.org/x/time v0.0.0-20201208040808-7e3f01d25324 // indirect
)

replace polylimit.dev/polylimit => ../../../../bindings/go

replace polylimit.dev/spellings/nethttp => ../nethttp
