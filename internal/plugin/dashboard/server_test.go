package dashboard

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
	"github.com/afloat-project/afloat/internal/plugin/plugintest"
)

const (
	webPod = `
apiVersion: v1
kind: Pod
metadata:
  name: web-a
  namespace: default
  labels: {app: web, controller-revision-hash: web-1, pod-template-hash: '1', apps.kruise.io/cloneset-instance-id: a, lifecycle.apps.kruise.io/state: Normal}
  ownerReferences: [{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: web, uid: uid-cloneset-web, controller: true}]
spec: {nodeName: node-1, containers: [{name: app, image: 'nginx:1'}]}
status: {phase: Running, conditions: [{type: Ready, status: "True"}], containerStatuses: [{name: app, ready: true}]}
`
	otherPod = `{apiVersion: v1, kind: Pod, metadata: {name: stray, namespace: default, labels: {app: web}}, spec: {containers: [{name: app, image: x}]}}`
	node     = `{apiVersion: v1, kind: Node, metadata: {name: node-1}, status: {conditions: [{type: Ready, status: "True"}]}}`
)

// browser is a client of the page.
type browser struct {
	*httptest.Server
	t *testing.T
}

func open(t *testing.T, api *plugintest.Server) *browser {
	t.Helper()
	s, err := newServer(t.Context(), api.Factory(t), installation.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.routes())
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return &browser{server, t}
}

func (b *browser) get(path string) (status int, answer map[string]any) {
	b.t.Helper()
	return b.do(http.MethodGet, path, nil)
}

func (b *browser) do(method, path string, body any) (status int, answer map[string]any) {
	b.t.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		b.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.URL+path, bytes.NewReader(encoded))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		b.t.Fatal(err)
	}
	return response.StatusCode, answer
}

// listen reads the messages of a stream.
func (b *browser) listen(path string) <-chan map[string]any {
	b.t.Helper()
	ctx, stop := context.WithCancel(b.t.Context())
	b.t.Cleanup(stop)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.URL+path, http.NoBody)
	if err != nil {
		b.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r) //nolint:bodyclose // it is closed when the stream ends
	if err != nil {
		b.t.Fatal(err)
	}
	messages := make(chan map[string]any, 1000)
	go func() {
		defer func() { _ = response.Body.Close() }()
		defer close(messages)
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<24)
		for lines.Scan() {
			m := map[string]any{}
			if json.Unmarshal(lines.Bytes(), &m) == nil {
				messages <- m
			}
		}
	}()
	return messages
}

// await returns the first message that fits.
func (b *browser) await(messages <-chan map[string]any, what string, fits func(m map[string]any) bool) map[string]any {
	b.t.Helper()
	limit := time.After(time.Minute)
	var seen []string
	for {
		select {
		case m, ok := <-messages:
			if !ok {
				b.t.Fatalf("the stream ended before %s; it had %s", what, seen)
			}
			if fits(m) {
				return m
			}
			encoded, _ := json.Marshal(m)
			seen = append(seen, string(encoded))
		case <-limit:
			b.t.Fatalf("there is no %s; there was %s", what, strings.Join(seen, "\n"))
		}
	}
}

func ofType(name string) func(map[string]any) bool {
	return func(m map[string]any) bool { return m["type"] == name }
}

const about = "resource=clonesets.apps.kruise.io&namespace=default&name=web"

// The overview shows workloads, says why they wait, and follows them. A kind that may not be listed is named. OPS-221.
func TestOverview(t *testing.T) {
	t.Parallel()
	api := plugintest.New(t, "v1beta1", web, webPod, node)
	api.BeforeRead = func(r plugintest.Request) error {
		if strings.Contains(r.Path, "/broadcastjobs") {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "broadcastjobs"}, "", nil)
		}
		return nil
	}
	b := open(t, api)
	messages := b.listen("/api/overview")
	b.await(messages, "a beginning", ofType("reset"))
	got := b.await(messages, "a row", ofType("workload"))["workload"].(map[string]any)
	if got["name"] != "web" || got["kind"] != "CloneSet" || got["resource"] != "clonesets.apps.kruise.io" {
		t.Errorf("got %v", got)
	}
	notes, synced := false, false
	b.await(messages, "the end of the list, and what may not be listed", func(m map[string]any) bool {
		said, _ := json.Marshal(m["notes"])
		notes = notes || strings.Contains(string(said), "broadcastjobs.apps.kruise.io")
		synced = synced || m["type"] == "synced"
		return notes && synced
	})
	api.Change(t, "clonesets", "web", func(o map[string]any) { o["metadata"].(map[string]any)["labels"] = map[string]any{"a": "b"} })
	b.await(messages, "why it waits", func(m map[string]any) bool {
		r, _ := m["workload"].(map[string]any)
		why, _ := r["waiting"].(string)
		return strings.HasPrefix(why, "Scaling: 1 pod")
	})

	api.Change(t, "clonesets", "web", func(o map[string]any) { o["spec"].(map[string]any)["replicas"] = int64(9) })
	b.await(messages, "the change", func(m map[string]any) bool {
		r, _ := m["workload"].(map[string]any)
		return r["desired"] == float64(9)
	})
	api.Delete(t, "clonesets", "web")
	if got := b.await(messages, "the deletion", ofType("gone"))["id"]; got != "clonesets.apps.kruise.io/default/web" {
		t.Errorf("got %v", got)
	}
}

// The page of a workload shows its own pods and what is decided about them, and follows both. OPS-222.
func TestWorkloadPage(t *testing.T) {
	t.Parallel()
	api := plugintest.New(t, "v1beta1", web, webPod, otherPod, node)
	b := open(t, api)
	messages := b.listen("/api/workload?" + about)

	detail := b.await(messages, "the workload", ofType("workload"))["workload"].(map[string]any)
	if detail["generation"] == nil || detail["may"] == nil || len(detail["containers"].([]any)) != 2 {
		t.Errorf("got %v", detail)
	}
	tiles := b.await(messages, "pods", ofType("pods"))["pods"].([]any)
	if len(tiles) != 1 || tiles[0].(map[string]any)["name"] != "web-a" {
		t.Errorf("got %v, want the pod of the workload alone", tiles)
	}
	e := b.await(messages, "an explanation", ofType("explanation"))["explanation"].(map[string]any)
	if e["name"] != "web" || len(e["pods"].([]any)) != 1 {
		t.Errorf("got %v", e)
	}
	waves := b.await(messages, "waves", ofType("waves"))["preview"].(map[string]any)
	if waves["headline"] == "" || len(waves["waves"].([]any)) == 0 {
		t.Errorf("got %v, want the waves that create the missing pods", waves)
	}

	api.Change(t, "pods", "web-a", func(o map[string]any) {
		o["status"].(map[string]any)["conditions"] = []any{map[string]any{"type": "Ready", "status": "False"}}
	})
	b.await(messages, "the pod that is not ready", func(m map[string]any) bool {
		list, _ := m["pods"].([]any)
		return m["type"] == "pods" && len(list) == 1 && list[0].(map[string]any)["state"] == "notReady"
	})
	api.Delete(t, "pods", "web-a")
	b.await(messages, "the end of the pod", ofType("podsGone"))
	api.Delete(t, "clonesets", "web")
	b.await(messages, "the end of the workload", ofType("gone"))
}

// A plan writes nothing. A change needs the generation of its plan. What is refused is told. OPS-224.
func TestPlanAndApply(t *testing.T) {
	t.Parallel()
	api := plugintest.New(t, "v1beta1", web, webPod, node)
	b := open(t, api)
	q := map[string]any{
		"resource": "clonesets.apps.kruise.io", "namespace": "default", "name": "web",
		"change": map[string]any{"action": "images", "images": map[string]string{"app": "nginx:2"}},
	}

	status, plan := b.do(http.MethodPost, "/api/plan", q)
	if status != http.StatusOK || len(plan["previews"].([]any)) != 1 ||
		!strings.Contains(plan["after"].(string), "nginx:2") || strings.Contains(plan["before"].(string), "nginx:2") {
		t.Fatalf("got %d %v", status, plan)
	}
	if got := images(api.Get(t, "clonesets", "web")); got[0] != "nginx:1" {
		t.Fatalf("the plan wrote %v", got)
	}

	api.Change(t, "clonesets", "web", func(o map[string]any) { o["spec"].(map[string]any)["replicas"] = int64(4) })
	q["generation"] = plan["generation"]
	if status, answer := b.do(http.MethodPost, "/api/apply", q); status != http.StatusConflict {
		t.Errorf("after somebody else changed the spec: got %d %v", status, answer)
	}
	if got := images(api.Get(t, "clonesets", "web")); got[0] != "nginx:1" {
		t.Errorf("a refused change wrote %v", got)
	}
	_, plan = b.do(http.MethodPost, "/api/plan", q)
	q["generation"] = plan["generation"]
	// Others write the status all the time, which does not matter.
	api.Change(t, "clonesets", "web", func(o map[string]any) { o["status"] = map[string]any{"replicas": int64(2)} })
	if status, answer := b.do(http.MethodPost, "/api/apply", q); status != http.StatusOK {
		t.Errorf("got %d %v", status, answer)
	}
	if got := images(api.Get(t, "clonesets", "web")); got[0] != "nginx:2" {
		t.Errorf("got %v", got)
	}

	api.Before = func(plugintest.Request) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "clonesets"}, "web", errors.New("not on Fridays"))
	}
	q["change"] = map[string]any{"action": "scale", "replicas": 9}
	if status, answer := b.do(http.MethodPost, "/api/plan", q); status != http.StatusForbidden ||
		!strings.Contains(answer["error"].(string), "not on Fridays") {
		t.Errorf("got %d %v", status, answer)
	}
}

// What the API server refuses is told with its words and its status.
func TestRefusals(t *testing.T) {
	t.Parallel()
	api := plugintest.New(t, "v1beta1", web)
	api.Before = func(plugintest.Request) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "clonesets"}, "web", nil)
	}
	b := open(t, api)
	change := map[string]any{
		"resource": "clonesets.apps.kruise.io", "namespace": "default", "name": "web",
		"change": map[string]any{"action": "pause"},
	}
	for path, test := range map[string]struct {
		body   any
		status int
		says   string
	}{
		"/api/plan":  {change, http.StatusForbidden, "forbidden"},
		"/api/apply": {map[string]any{"unknown": true}, http.StatusBadRequest, "unknown"},
	} {
		if status, answer := b.do(http.MethodPost, path, test.body); status != test.status ||
			!strings.Contains(answer["error"].(string), test.says) {
			t.Errorf("%s: got %d %v", path, status, answer)
		}
	}
	for query, status := range map[string]int{
		"resource=clonesets.apps.kruise.io&namespace=default&name=none": http.StatusNotFound,
		"resource=secrets&namespace=default&name=web":                   http.StatusBadRequest,
		"resource=nothing&namespace=default&name=web":                   http.StatusBadRequest,
		"resource=clonesets.apps.kruise.io&name=web":                    http.StatusBadRequest,
		"resource=clonesets.apps.kruise.io&namespace=default&name=":     http.StatusBadRequest,
	} {
		for _, path := range []string{"/api/workload?", "/api/document?", "/api/revisions?"} {
			if got, answer := b.get(path + query); got != status || answer["error"] == "" {
				t.Errorf("%s%s: got %d %v, want %d", path, query, got, answer, status)
			}
		}
	}
}

// One page too many is refused. OPS-225.
func TestMostStreams(t *testing.T) {
	t.Parallel()
	b := open(t, plugintest.New(t, "v1beta1", web))
	for range mostStreams {
		b.await(b.listen("/api/overview"), "a beginning", ofType("reset"))
	}
	if status, answer := b.get("/api/overview"); status != http.StatusTooManyRequests {
		t.Errorf("got %d %v", status, answer)
	}
}
