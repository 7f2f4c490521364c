package controller

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WS-016, WS-020: the scale of a listed kind, as a real client reads it: the fake one is content with more.
func TestScaleOfAListedKind(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/game.example.com/v1/namespaces/default/games/web/scale" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"web","namespace":"default"},"spec":{"replicas":7},"status":{"replicas":6,"selector":"app=web"}}`)
	}))
	defer server.Close()
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{gameKind.GroupVersion()})
	mapper.Add(gameKind, meta.RESTScopeNamespace)
	c, err := client.New(&rest.Config{Host: server.URL}, client.Options{Scheme: scheme.Scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	game := &unstructured.Unstructured{}
	game.SetGroupVersionKind(gameKind)
	game.SetNamespace("default")
	game.SetName("web")
	k := &Kinds{scales: c.SubResource("scale")}
	if n, err := k.scaleReplicas(t.Context(), game); err != nil {
		t.Errorf("unexpected error: %v; %d replicas, %v", err, n, err)
	} else if n != 7 {
		t.Errorf("replicas of the scale: got %d, want 7; %d replicas, %v", n, n, err)
	}
	selector, err := k.scaleSelector(t.Context(), game)
	if err != nil {
		t.Errorf("unexpected error: %v\n%v", err, selector)
	} else if selector == nil {
		t.Errorf("selector: got nil, want a value\n%v", err)
	} else if !selector.Matches(labels.Set{"app": "web"}) {
		t.Errorf("the selector matches app web: got false, want true\n%v\n%v", selector, err)
	}
}
