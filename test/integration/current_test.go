//go:build integration

package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/platform/watches"
)

// holding holds back what the watches of Secrets of informers show.
type holding struct {
	http.RoundTripper
	mu   sync.Mutex
	held chan struct{}
}

func (h *holding) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := h.RoundTripper.RoundTrip(r)
	query := r.URL.Query()
	// Informers watch for minutes; that of changes lasts seconds.
	if err == nil && query.Has("watch") && len(query.Get("timeoutSeconds")) > 2 && strings.HasSuffix(r.URL.Path, "/secrets") {
		response.Body = heldBody{response.Body, h}
	}
	return response, err
}

type heldBody struct {
	io.ReadCloser
	of *holding
}

func (b heldBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.of.mu.Lock()
	held := b.of.held
	b.of.mu.Unlock()
	if held != nil {
		<-held
	}
	return n, err
}

// replicaOf returns the caches of a replica, which knows objects of a new namespace, 20 Secrets at first.
func replicaOf(t *testing.T, namespace string, transport func(http.RoundTripper) http.RoundTripper) (*watches.Watches, cache.Cache) {
	t.Helper()
	config := rest.CopyConfig(apiServer)
	config.Wrap(transport)
	followed := watches.New(clientgoscheme.Scheme, clock.RealClock{})
	informers, err := followed.Cache(config, cache.Options{Scheme: clientgoscheme.Scheme,
		DefaultNamespaces: map[string]cache.Config{namespace: {}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}, &corev1.Service{}} {
		if _, err := informers.GetInformer(t.Context(), kind, cache.BlockUntilSynced(false)); err != nil {
			t.Fatal(err)
		}
	}
	go func() { _ = informers.Start(t.Context()) }()
	if !informers.WaitForCacheSync(t.Context()) {
		t.Fatal("the caches are not synced")
	}
	return followed, informers
}

func namespaceWithSecrets(t *testing.T) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "current-"}}
	if err := kube.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: fmt.Sprint("old-", i)}}
		if err := kube.Create(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	return namespace.Name
}

// elsewhere lets the version of the API server move on, and that of caches not.
func elsewhere(t *testing.T) {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "current-"}}
	if err := kube.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// firstPages lets no list have more than its first page.
type firstPages struct{ http.RoundTripper }

func (f firstPages) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Has("continue") {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return f.RoundTripper.RoundTrip(r) //nolint:wrapcheck // an error of the transport
}

// OPS-028 (part): which of many objects changed is known from a watch of the API server before all of them are read. API servers
// before 1.34 tell of the version that is stored only if their etcd does so by itself.
func TestANewLeaderOfManyObjectsAsksWhatChanged(t *testing.T) {
	t.Parallel()
	version, err := discovery.NewDiscoveryClientForConfigOrDie(apiServer).ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if version.Minor < "34" {
		t.Skip("Kubernetes ", version.GitVersion)
	}
	namespace := namespaceWithSecrets(t)
	followed, informers := replicaOf(t, namespace, func(next http.RoundTripper) http.RoundTripper { return firstPages{next} })
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "new"}}
	if err := kube.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	elsewhere(t)
	followed.Current(t.Context(), funcr.New(func(_, line string) {
		if t.Log(line); strings.Contains(line, "do not show yet") {
			t.Error("it waited for what no watch has to tell")
		}
	}, funcr.Options{}), patience)
	if err := informers.Get(t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{}); err != nil {
		t.Errorf("the cache after that: %v", err)
	}
}

// OPS-028 (part): a replica that begins to lead waits until its caches show what was stored then, although a watch shows nothing
// for a while, and not for caches that lack nothing: neither of few objects, nor of many, nor of none.
func TestANewLeaderWaitsForItsCaches(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	namespace := namespaceWithSecrets(t)
	replica := func(hold *holding) (*watches.Watches, cache.Cache) {
		return replicaOf(t, namespace, func(next http.RoundTripper) http.RoundTripper {
			hold.RoundTripper = next
			return hold
		})
	}
	told, once := make(chan struct{}), sync.Once{}
	log := funcr.New(func(_, line string) {
		t.Log(line)
		if strings.Contains(line, "do not show yet") && strings.Contains(line, "Secret") {
			once.Do(func() { close(told) })
		}
	}, funcr.Options{})

	quiet, _ := replica(&holding{})
	elsewhere(t)
	quiet.Current(ctx, log, patience)
	select {
	case <-told:
		t.Error("it waited for a cache that lacks nothing")
	default:
	}

	hold := &holding{}
	followed, informers := replica(hold)
	held := make(chan struct{})
	hold.mu.Lock()
	hold.held = held
	hold.mu.Unlock()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "new"}}
	if err := kube.Create(ctx, secret); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		followed.Current(context.WithoutCancel(ctx), log, patience)
	}()
	select {
	case <-told:
	case <-done:
		t.Error("it did not wait for a cache that lacks a Secret")
	}
	hold.mu.Lock()
	hold.held = nil
	hold.mu.Unlock()
	close(held)
	<-done
	if err := informers.Get(ctx, client.ObjectKeyFromObject(secret), &corev1.Secret{}); err != nil {
		t.Errorf("the cache after that: %v", err)
	}
}
