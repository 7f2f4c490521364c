package observe

import (
	"context"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

type key struct{}

// WithUserAgent returns the reconciler with the controller's name in the context, so that all its requests carry the
// name.
func WithUserAgent(controller string, r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		return r.Reconcile(context.WithValue(ctx, key{}, controller), request)
	})
}

// UserAgents returns a function for WrapTransport of a rest.Config. Requests of a controller have the user agent
// <base>/<controller>; other requests keep theirs. API servers derive the field manager from the part before
// the slash, so it is the same for all controllers.
func UserAgents(base string) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return &agentTransport{base, next} }
}

type agentTransport struct {
	base string
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *agentTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if controller, ok := request.Context().Value(key{}).(string); ok {
		request = request.Clone(request.Context())
		request.Header.Set("User-Agent", t.base+"/"+controller)
	}
	return t.next.RoundTrip(request)
}

// WrappedRoundTripper gives client-go access to the wrapped agentTransport.
func (t *agentTransport) WrappedRoundTripper() http.RoundTripper { return t.next }
