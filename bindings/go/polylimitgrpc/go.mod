module polylimit.dev/polylimit/polylimitgrpc

go 1.25.0

require (
	google.golang.org/genproto/googleapis/rpc v0.0.0-20240903143218-8af14fe29dc1
	google.golang.org/grpc v1.67.3
	google.golang.org/protobuf v1.34.2
	polylimit.dev/polylimit v0.1.0
)

require (
	golang.org/x/net v0.28.0 // indirect
	golang.org/x/sys v0.28.0 // indirect
	golang.org/x/text v0.17.0 // indirect
)

replace polylimit.dev/polylimit => ../
