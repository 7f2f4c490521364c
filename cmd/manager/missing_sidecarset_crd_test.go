package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/afloat-project/afloat/internal/kinds/sidecarset/controller/choose"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/inject"
)

// lateServer plays the part of the API server that the watch of SidecarSets needs. It serves the kind, with
// one object, once serves is set.
type lateServer struct{ serves atomic.Bool }

func (s *lateServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	type object = map[string]any
	resource := func(name, kind string, namespaced bool) object {
		return object{"name": name, "kind": kind, "namespaced": namespaced, "verbs": []string{"get", "list", "watch"}}
	}
	group := func(name, version string) object {
		v := object{"groupVersion": name + "/" + version, "version": version}
		return object{"name": name, "versions": []any{v}, "preferredVersion": v}
	}
	list := func(version, kind string, items ...any) object {
		return object{"apiVersion": version, "kind": kind, "metadata": object{"resourceVersion": "1"}, "items": append([]any{}, items...)}
	}
	answers := map[string]object{
		"/api": {"kind": "APIVersions", "versions": []string{"v1"}},
		"/api/v1": {"kind": "APIResourceList", "groupVersion": "v1",
			"resources": []any{resource("namespaces", "Namespace", false)}},
		"/apis":      {"kind": "APIGroupList", "groups": []any{group("apps", "v1")}},
		"/apis/apps": group("apps", "v1"),
		"/apis/apps/v1": {"kind": "APIResourceList", "groupVersion": "apps/v1",
			"resources": []any{resource("controllerrevisions", "ControllerRevision", true)}},
		"/api/v1/namespaces": list("meta.k8s.io/v1", "PartialObjectMetadataList"),
		"/apis/apps/v1/namespaces/kruise-system/controllerrevisions": list("apps/v1", "ControllerRevisionList"),
	}
	if s.serves.Load() {
		answers["/apis"] = object{"kind": "APIGroupList", "groups": []any{group("apps", "v1"), group("apps.kruise.io", "v1beta1")}}
		answers["/apis/apps.kruise.io"] = group("apps.kruise.io", "v1beta1")
		answers["/apis/apps.kruise.io/v1beta1"] = object{"kind": "APIResourceList", "groupVersion": "apps.kruise.io/v1beta1",
			"resources": []any{resource("sidecarsets", "SidecarSet", false)}}
		answers["/apis/apps.kruise.io/v1beta1/sidecarsets"] = list("apps.kruise.io/v1beta1", "SidecarSetList", object{
			"apiVersion": "apps.kruise.io/v1beta1", "kind": "SidecarSet",
			"metadata": object{"name": "late", "uid": "u", "resourceVersion": "1", "generation": 1},
			"spec": object{"selector": object{"matchLabels": object{"app": "web"}},
				"containers": []any{object{"name": "side", "image": "i", "podInjectPolicy": "BeforeAppContainer"}}}})
	}
	answer, found := answers[strings.TrimSuffix(r.URL.Path, "/")]
	w.Header().Set("Content-Type", "application/json")
	switch {
	case !found:
		w.WriteHeader(http.StatusNotFound)
		answer = object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
	case r.URL.Query().Get("sendInitialEvents") != "": // the list comes by itself
		w.WriteHeader(http.StatusUnprocessableEntity)
		answer = object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422}
	case r.URL.Query().Get("watch") != "":
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // nothing changes
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// SS-280: the CRD of SidecarSets is applied after the manager has started. Before, pods start at once without
// sidecars; afterwards they get them, from the same manager.
func TestSidecarSetsThatComeLaterNeedNoRestart(t *testing.T) {
	api := &lateServer{}
	server := httptest.NewServer(api)
	defer server.Close()
	s, err := scheme()
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(&rest.Config{Host: server.URL, QPS: -1},
		ctrl.Options{Scheme: s, Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	watch, err := choose.NewWatch(mgr, "kruise-system", nil)
	if err != nil {
		t.Fatal(err)
	}
	err = whenServed(t.Context(), mgr, 10*time.Millisecond, watch.Absent, func(ctx context.Context) error { return watch.Follow(ctx, mgr) },
		schema.GroupVersionKind{Group: "apps.kruise.io", Version: "v1beta1", Kind: "SidecarSet"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the end of the manager: %v", err)
		}
	}()
	<-mgr.Elected()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0", Labels: map[string]string{"app": "web"}}}
	choose := func() ([]*inject.Template, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return watch.Choose(ctx, pod, "shop")
	}
	if chosen, err := choose(); err != nil {
		t.Errorf("before: %v", err)
	} else if len(chosen) > 0 {
		t.Errorf("before: got %v, want nothing chosen", chosen)
	}
	if !watch.Synced() {
		t.Error("before: the watch has read nothing yet")
	}
	if asked := watch.Creations(); asked != "false" {
		t.Errorf("before: asked for are %s, want none", asked)
	}
	api.serves.Store(true)
	var chosen []*inject.Template
	err = wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		chosen, err = choose()
		return len(chosen) == 1, err
	})
	if err != nil {
		t.Errorf("after: %v", err)
	} else if chosen[0].Name != "late" {
		t.Errorf("after: got %v, want late chosen", chosen)
	}
	if watch.Creations() == "false" {
		t.Error("after: no pods are asked for")
	}
	select {
	case err := <-ended:
		ended <- err
		t.Errorf("the manager ended: %v", err)
	default:
	}
}
