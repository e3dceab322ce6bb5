package polylimitgrpc

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"polylimit.dev/polylimit"
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
	var problem struct {
		Detail   string
		Violated []string `json:"violated-policies"`
	}
	// The core has written it.
	_ = json.Unmarshal([]byte(denial.Problem.Body), &problem)
	plain := status.New(codeOf(denial.Problem.Status), problem.Detail)
	var details []protoadapt.MessageV1
	if wait := retryDelay(denial.Outcomes); wait > 0 {
		details = append(details, retryInfo(wait))
	}
	if len(problem.Violated) > 0 {
		failure := &errdetails.QuotaFailure{}
		for _, name := range problem.Violated {
			failure.Violations = append(failure.Violations, &errdetails.QuotaFailure_Violation{Subject: name, Description: problem.Detail})
		}
		details = append(details, failure)
	}
	if detailed, err := plain.WithDetails(details...); err == nil {
		return detailed
	}
	return plain
}

// retryDelay is what the field retry-after has in seconds: the longest wait of all denials; 0 when one of them is for ever.
func retryDelay(outcomes []polylimit.Outcome) (longest time.Duration) {
	for _, one := range outcomes {
		if one.Decision.Allowed {
			continue
		}
		if one.Decision.RetryAfter == polylimit.Never {
			return 0
		}
		longest = max(longest, one.Decision.RetryAfter, time.Microsecond)
	}
	return longest
}

// metadataOf are header fields as metadata.
func metadataOf(header http.Header) metadata.MD {
	sent := make(metadata.MD, len(header))
	for name, values := range header {
		sent[strings.ToLower(name)] = values
	}
	return sent
}
