package framework

import (
	"context"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Namespaces looks up which namespaces exist.
type Namespaces struct {
	cached, live client.Reader
	// looks limits the number of live reads, because the sender of a review chooses the names.
	looks *rate.Limiter
}

// NewNamespaces returns Namespaces that read the cache first, and the API server at a limited rate.
func NewNamespaces(cached, live client.Reader) *Namespaces {
	return &Namespaces{cached, live, rate.NewLimiter(looksASecond, looksAtOnce)}
}

// looksASecond and looksAtOnce limit live reads of namespaces, which are for namespaces that are too new for
// the cache.
const looksASecond, looksAtOnce = 10, 50

// Exist reports whether the namespace exists. If n is nil, it returns true.
func (n *Namespaces) Exist(ctx context.Context, name string) bool {
	if n == nil {
		return true
	}
	look := func(from client.Reader) bool {
		found := &metav1.PartialObjectMetadata{}
		found.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		return from.Get(ctx, types.NamespacedName{Name: name}, found) == nil
	}
	return look(n.cached) || n.looks.Allow() && look(n.live)
}
