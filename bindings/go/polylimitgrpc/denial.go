package polylimitgrpc

import (
	"encoding/base64"
	"net/http"
	"strings"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// httpStatuses is the status in HTTP of each code, as google/rpc/code.proto has it. The first code with a status is that of a denial.
var httpStatuses = [...]struct {
	code   codes.Code
	status int
}{
	{codes.OK, http.StatusOK},
	{codes.ResourceExhausted, http.StatusTooManyRequests},
	{codes.Unavailable, http.StatusServiceUnavailable},
	{codes.InvalidArgument, http.StatusBadRequest},
	{codes.PermissionDenied, http.StatusForbidden},
	{codes.Internal, http.StatusInternalServerError},
	{codes.Canceled, 499},
	{codes.Unauthenticated, http.StatusUnauthorized},
	{codes.NotFound, http.StatusNotFound},
	{codes.AlreadyExists, http.StatusConflict},
	{codes.Aborted, http.StatusConflict},
	{codes.FailedPrecondition, http.StatusBadRequest},
	{codes.OutOfRange, http.StatusBadRequest},
	{codes.Unimplemented, http.StatusNotImplemented},
	{codes.DeadlineExceeded, http.StatusGatewayTimeout},
}

// statusOf is the status of an error as the server sends it.
func statusOf(err error) *status.Status {
	if own, isStatus := status.FromError(err); isStatus {
		return own
	}
	return status.FromContextError(err)
}

// httpStatus is the status in HTTP of a call that has ended with this error.
func httpStatus(err error) int {
	code := statusOf(err).Code()
	for _, one := range httpStatuses {
		if one.code == code {
			return one.status
		}
	}
	return http.StatusInternalServerError
}

func codeOf(httpStatus int) codes.Code {
	for _, one := range httpStatuses {
		if one.status == httpStatus {
			return one.code
		}
	}
	return codes.Internal
}

// Status is the default status of a call that does not proceed: RESOURCE_EXHAUSTED over a limit, UNAVAILABLE in an outage,
// INVALID_ARGUMENT without a key, and PERMISSION_DENIED for one in a deny list. Its details are a google.rpc.RetryInfo, unless no wait
// helps, and a google.rpc.QuotaFailure with the names of the quotas that deny.
func Status(denial Denial) *status.Status {
	written := &spb.Status{Code: int32(codeOf(denial.Problem.Status))}
	for _, field := range denial.Problem.Fields {
		if field.Name == "grpc-status-details-bin" {
			// The core has written it.
			encoded, _ := base64.RawStdEncoding.DecodeString(field.Value)
			_ = proto.Unmarshal(encoded, written)
		}
	}
	return status.FromProto(written)
}

// metadataOf are header fields as metadata.
func metadataOf(header http.Header) metadata.MD {
	sent := make(metadata.MD, len(header))
	for name, values := range header {
		sent[strings.ToLower(name)] = values
	}
	return sent
}
