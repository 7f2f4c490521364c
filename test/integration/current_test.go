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
	// Informers watch for minutes.
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

// OPS-028 (part): a replica that begins to lead waits until its caches show what was stored then, although a watch shows nothing
// for a while, and not for caches that lack nothing: neither of few objects, nor of many, nor of none.
func TestANewLeaderWaitsForItsCaches(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "current-"}}
	if err := kube.Create(ctx, namespace); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: fmt.Sprint("old-", i)}}
		if err := kube.Create(ctx, secret); err != nil {
			t.Fatal(err)
		}
	}
	replica := func(hold *holding) (*watches.Watches, cache.Cache) {
		config := rest.CopyConfig(apiServer)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			hold.RoundTripper = next
			return hold
		})
		followed := watches.New(clientgoscheme.Scheme, clock.RealClock{})
		informers, err := followed.Cache(config, cache.Options{Scheme: clientgoscheme.Scheme,
			DefaultNamespaces: map[string]cache.Config{namespace.Name: {}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}, &corev1.Service{}} {
			if _, err := informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
				t.Fatal(err)
			}
		}
		go func() { _ = informers.Start(ctx) }()
		if !informers.WaitForCacheSync(ctx) {
			t.Fatal("the caches are not synced")
		}
		return followed, informers
	}
	told, once := make(chan struct{}), sync.Once{}
	log := funcr.New(func(_, line string) {
		t.Log(line)
		if strings.Contains(line, "do not show yet") && strings.Contains(line, "Secret") {
			once.Do(func() { close(told) })
		}
	}, funcr.Options{})

	quiet, _ := replica(&holding{})
	// The version of the API server moves on, and that of the caches does not.
	elsewhere := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "current-"}}
	if err := kube.Create(ctx, elsewhere); err != nil {
		t.Fatal(err)
	}
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
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "new"}}
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
