package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/afloat-project/afloat/internal/platform/watches"
)

// OPS-032 (part), OPS-101 (part): a replica that is asked to end while it reads pods ends, also if the API server never answers.
func TestAReplicaThatReadsPodsEndsWhenItIsAsked(t *testing.T) {
	asked, answer := make(chan struct{}, 100), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-answer:
		case <-r.Context().Done():
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") != "" { // the list does not come by a watch
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422}`))
			return
		}
		_, _ = w.Write([]byte(`{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}`))
	}))
	defer server.Close()
	defer server.CloseClientConnections()
	s, err := scheme()
	if err != nil {
		t.Fatal(err)
	}
	kinds := meta.NewDefaultRESTMapper(nil)
	kinds.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	options := ctrl.Options{Scheme: s, Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard(),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return kinds, nil },
		NewCache:       watches.New(s, clock.RealClock{}).Cache}
	endWithin(50*time.Millisecond, &options)
	mgr, err := ctrl.NewManager(&rest.Config{Host: server.URL}, options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read, err := readPods(ctx, mgr)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- start(ctx, mgr, read) }()
	<-asked
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("ended: %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the manager goes on")
	}
	close(answer) // controller-runtime ends now
	if mgr.GetCache().WaitForCacheSync(t.Context()); t.Context().Err() != nil {
		t.Error("it goes on in this test")
	}
}
