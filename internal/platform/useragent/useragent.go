// Package useragent tells API servers, and so their audit logs, which controller of the manager asks (OPS-022). All controllers share one
// client, one pool of connections and one set of caches; what tells them apart goes along in the context of their work.
package useragent

import (
	"context"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

type key struct{}

// Of has everything that the reconciler asks of the API server carry the name of its controller.
func Of(controller string, r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		return r.Reconcile(context.WithValue(ctx, key{}, controller), request)
	})
}

// Wrap is a rest.Config's WrapTransport: requests of a controller have the user agent <base>/<controller>; others keep theirs. The field
// manager that API servers derive from a user agent is what stands before the slash, and so the same for all.
func Wrap(base string) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return &transport{base, next} }
}

type transport struct {
	base string
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if controller, ok := request.Context().Value(key{}).(string); ok {
		request = request.Clone(request.Context())
		request.Header.Set("User-Agent", t.base+"/"+controller)
	}
	return t.next.RoundTrip(request)
}

// WrappedRoundTripper lets client-go find the transport below.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }
