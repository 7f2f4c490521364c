package framework

import (
	"context"
	"encoding/json"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Announcer makes the API server send the pods of a rule before the rule is stored.
type Announcer interface {
	Announce(ctx context.Context, expression string) error
}

// Announced accepts a rule once the API server sends its pods. If that fails, the rule is still accepted,
// with a warning.
func Announced(
	ctx context.Context, by Announcer, request *admission.Request, expression string,
	response admission.Response,
) admission.Response {
	if by == nil || IsDryRun(request) {
		return response
	}
	if err := by.Announce(ctx, expression); err != nil {
		return response.WithWarnings(fmt.Sprintf(
			"pods that are created in the next seconds may be missed: %v", err,
		))
	}
	return response
}

// IsDryRun reports whether the request is a dry run, by its own flag or by its options.
func IsDryRun(request *admission.Request) bool {
	var options struct {
		DryRun []string `json:"dryRun"`
	}
	return request.DryRun != nil && *request.DryRun ||
		json.Unmarshal(request.Options.Raw, &options) == nil && len(options.DryRun) > 0
}

// verifiedKey is the context key for whether the caller is known.
type verifiedKey struct{}

// WithCaller records in a context whether the caller of a webhook has shown a required certificate.
func WithCaller(ctx context.Context, known bool) context.Context {
	return context.WithValue(ctx, verifiedKey{}, known)
}

// FromAPIServer reports whether the caller of a webhook has shown a required certificate. It is the API server
// then, and the review can be trusted.
func FromAPIServer(ctx context.Context) bool {
	known, _ := ctx.Value(verifiedKey{}).(bool)
	return known
}
