package protection

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/admission/pod"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/platform/protectionlog"
)

// apiServer answers lists with the pages of a path.
type apiServer struct {
	mu    sync.Mutex
	pages map[string][]string
	code  int
	asked []string
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	query := r.URL.Query()
	s.asked = append(s.asked, r.URL.Path)
	if s.code != 0 {
		http.Error(w, "no rights", s.code)
		return
	}
	page := 0
	_, _ = fmt.Sscan(query.Get("continue"), &page)
	pages, next := s.pages[r.URL.Path], ""
	if page+1 < len(pages) {
		next = fmt.Sprint(page + 1)
	}
	bare := strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList")
	pods := query.Get("fieldSelector") == "status.phase!=Succeeded,status.phase!=Failed"
	if query.Get("limit") != "100" || bare == strings.HasSuffix(r.URL.Path, "claims") || pods != strings.HasSuffix(r.URL.Path, "/pods") {
		http.Error(w, r.URL.String()+" "+r.Header.Get("Accept"), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if page < len(pages) {
		fmt.Fprintf(w, `{"kind":"List","apiVersion":"v1","metadata":{"continue":%q},"items":[%s],"more":{"a":[1]},"number":7}`, next, pages[page])
	} else {
		fmt.Fprint(w, `{"kind":"List","apiVersion":"v1","metadata":{},"items":null}`) // as API servers do
	}
}

// event is one that was recorded.
type recorder struct {
	about []string
	notes []string
}

func (r *recorder) Event(about client.Object, eventType, reason, message string) {
	kind := about.GetObjectKind().GroupVersionKind()
	r.about = append(r.about, fmt.Sprintf("%s %s %s %s %s/%s %s", eventType, reason, kind.GroupVersion(), kind.Kind, about.GetNamespace(), about.GetName(),
		about.GetUID()))
	r.notes = append(r.notes, message)
}

type world struct {
	*Guard
	server *apiServer
	events *recorder
	lines  *bytes.Buffer
	now    time.Time
}

func newWorld(t *testing.T, list string) *world {
	t.Helper()
	gates, err := features.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{server: &apiServer{pages: map[string][]string{}}, events: &recorder{}, lines: &bytes.Buffer{},
		now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	server := httptest.NewServer(w.server)
	t.Cleanup(server.Close)
	host, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	config := rest.ClientContentConfig{Negotiator: k8sruntime.NewClientNegotiator(scheme.Codecs.WithoutConversion(), metav1.SchemeGroupVersion)}
	c, err := rest.NewRESTClient(host, "/", config, nil, server.Client())
	if err != nil {
		t.Fatal(err)
	}
	lines, _ := protectionlog.Open("/no/such/folder", w.lines)
	w.Guard = New(gates, c, NewTeller(w.events, lines, logr.Discard(), func() time.Time { return w.now }))
	return w
}

const allGates = "ResourcesDeletionProtection=true,DeletionProtectionForCRDCascadingGate=true"

func kindNamed(t *testing.T, name string) Kind {
	t.Helper()
	for _, kind := range Kinds {
		if kind.Name == name {
			return kind
		}
	}
	return Scaled(name)
}

// deletes has a user delete an object with the label, in a namespace unless its kind has none.
func (w *world) deletes(t *testing.T, kind, label, meta, spec string, change ...func(*admission.Request)) admission.Response {
	t.Helper()
	if kind != "Namespace" && kind != "CustomResourceDefinition" {
		meta += `,"namespace":"shop"`
	}
	if label != "" {
		label = `,"labels":{"policy.kruise.io/delete-protection":"` + label + `"}`
	}
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Delete,
		Kind: metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: kind}, Namespace: "shop",
		Resource:  metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: strings.ToLower(kind) + "s"},
		UserInfo:  authenticationv1.UserInfo{Username: "alice"},
		OldObject: k8sruntime.RawExtension{Raw: []byte(`{"metadata":{"name":"web","uid":"u"` + label + meta + `},"spec":{` + spec + `}}`)}}}
	for _, c := range change {
		c(&request)
	}
	return w.Handler(kindNamed(t, kind))(t.Context(), request)
}

const (
	live  = `{"metadata":{"name":"a"}}`
	going = `{"metadata":{"name":"b","deletionTimestamp":"2026-01-02T03:04:05Z"}}`
)

func phase(of string) string { return `{"metadata":{},"status":{"phase":"` + of + `"}}` }

// TestDeletionsAreJudgedByKindAndLabel has the decisions by kind and label (DP-001, DP-011, DP-012, DP-013,
// DP-018, DP-D3). DP-016: replicas that are left out or null in the object as it is stored are none; that the
// API server stores 1 shows TestCascadingKeepsWhatHasChildren. DP-003, DP-014: definitions with Cascading
// need a gate of their own, which is off by default, and without it they are refused.
func TestDeletionsAreJudgedByKindAndLabel(t *testing.T) {
	const (
		definition = `"group":"example.com","names":{"plural":"games"},"versions":[{"name":"v1","served":true},{"name":"v2","served":true,"storage":true}]`
		games      = "/apis/example.com/v2/games"
		pods       = "/api/v1/namespaces/web/pods"
		claims     = "/api/v1/namespaces/web/persistentvolumeclaims"
		label      = " is protected by label policy.kruise.io/delete-protection="
		remove     = "remove the label before deleting it"
	)
	for _, test := range []struct {
		kind, label, spec string
		gates             string
		pages             map[string][]string
		// want is the refusal; empty if the deletion is allowed.
		want string
	}{
		{kind: "Deployment", label: "Always", spec: `"replicas":0`, want: "shop/web" + label + "Always: " + remove},
		{kind: "Deployment", label: "Cascading", spec: `"replicas":3`, want: "shop/web" + label + "Cascading and replicas 3>0: scale to 0 or " + remove},
		{kind: "Deployment", label: "Cascading", spec: `"replicas":0`},
		{kind: "Deployment", label: "Cascading", spec: `"replicas":null`},
		{kind: "Deployment", label: "Cascading"},
		{kind: "Deployment", label: "always", spec: `"replicas":3`},
		{kind: "Deployment", label: "", spec: `"replicas":3`},
		{kind: "ReplicaSet", label: "Always", want: "shop/web" + label + "Always: " + remove},
		{kind: "ReplicaSet", label: "Cascading", spec: `"replicas":1`, want: "shop/web" + label + "Cascading and replicas 1>0: scale to 0 or " + remove},
		{kind: "ReplicaSet", label: "Cascading", spec: `"replicas":0`},
		{kind: "StatefulSet", label: "Always", want: "shop/web" + label + "Always: " + remove},
		{kind: "StatefulSet", label: "Cascading", spec: `"replicas":1`, want: "shop/web" + label + "Cascading and replicas 1>0: scale to 0 or " + remove},
		{kind: "StatefulSet", label: "Cascading", spec: `"replicas":0`},
		{kind: "CloneSet", label: "Always", want: "shop/web" + label + "Always: " + remove},
		{kind: "CloneSet", label: "Cascading", spec: `"replicas":1`, want: "shop/web" + label + "Cascading and replicas 1>0: scale to 0 or " + remove},
		{kind: "CloneSet", label: "Cascading", spec: `"replicas":0`},
		{kind: "Service", label: "Always", want: "shop/web" + label + "Always: " + remove},
		{kind: "Service", label: "Cascading", spec: `"replicas":3`},
		{kind: "Ingress", label: "Always", want: "shop/web" + label + "Always: " + remove},
		{kind: "Ingress", label: "Cascading", spec: `"replicas":3`},
		{kind: "Namespace", label: "Always", want: "web" + label + "Always: " + remove},
		{kind: "Namespace", label: "Cascading"},
		{kind: "Namespace", label: "Cascading", pages: map[string][]string{pods: {going + "," + live + "," + live}},
			want: "web" + label + "Cascading and active pods 2>0: delete them or " + remove},
		{kind: "Namespace", label: "Cascading", pages: map[string][]string{pods: {going, going}, claims: {phase("Pending") + "," + phase("Lost")}}},
		{kind: "Namespace", label: "Cascading", pages: map[string][]string{pods: {going}, claims: {phase("Pending"), phase("Bound")}},
			want: "web" + label + "Cascading and Bound pvc 1>0: delete them or " + remove},
		{kind: "Namespace", label: "Cascading", pages: map[string][]string{claims: {strings.Replace(going, `}}`, `},"status":{"phase":"Bound"}}`, 1)}}},
		{kind: "CustomResourceDefinition", label: "Always", spec: definition, want: "web" + label + "Always: " + remove},
		{kind: "CustomResourceDefinition", label: "Cascading", spec: definition},
		{kind: "CustomResourceDefinition", label: "Cascading", spec: definition, pages: map[string][]string{games: {going, going, live}},
			want: "web" + label + "Cascading and active CRs 1>0: delete them or " + remove},
		{kind: "CustomResourceDefinition", label: "Cascading", spec: definition, pages: map[string][]string{games: {going}}},
		{kind: "CustomResourceDefinition", label: "Cascading", spec: definition, gates: "ResourcesDeletionProtection=true",
			want: "web" + label + "Cascading, for which feature gate DeletionProtectionForCRDCascadingGate is off: switch it on, or " + remove},
		{kind: "CustomResourceDefinition", label: "Cascading", spec: definition,
			gates: "ResourcesDeletionProtection=false,DeletionProtectionForCRDCascadingGate=true", pages: map[string][]string{games: {live}}},
	} {
		gates := test.gates
		if gates == "" {
			gates = allGates
		}
		w := newWorld(t, gates)
		if test.pages != nil {
			w.server.pages = test.pages
		}
		got := w.deletes(t, test.kind, test.label, "", test.spec)
		if test.want != "" {
			test.want = test.kind + " " + test.want + phrase
		}
		if got.Allowed != (test.want == "") || !got.Allowed && (got.Result.Code != http.StatusForbidden || got.Result.Message != test.want) {
			t.Errorf("%s %s {%s} %v: %+v\nwant %q", test.kind, test.label, test.spec, test.pages, got.Result, test.want)
		}
	}
}

// DP-010: only deletions of the object itself, which has not begun, are judged, whatever the request calls
// it.
func TestWhatIsJudged(t *testing.T) {
	for name, test := range map[string]struct {
		meta    string
		change  func(*admission.Request)
		allowed bool
	}{
		"a deletion":                    {"", func(*admission.Request) {}, false},
		"one of a collection":           {"", func(r *admission.Request) { r.Name = "" }, false},
		"an update":                     {"", func(r *admission.Request) { r.Operation = admissionv1.Update }, true},
		"a subresource":                 {"", func(r *admission.Request) { r.SubResource = "scale" }, true},
		"no old object":                 {"", func(r *admission.Request) { r.OldObject.Raw = nil }, true},
		"terminating":                   {`,"deletionTimestamp":"2026-01-02T03:04:05Z"`, func(*admission.Request) {}, true},
		"by the namespace controller":   {"", asUser("system:serviceaccount:kube-system:namespace-controller"), false},
		"by the garbage collector":      {"", asUser("system:serviceaccount:kube-system:generic-garbage-collector"), false},
		"by a cluster administrator":    {"", asUser("system:admin"), false},
		"with an owner and a finalizer": {`,"ownerReferences":[{"kind":"App","name":"a"}],"finalizers":["a/b"]`, func(*admission.Request) {}, false},
	} {
		w := newWorld(t, allGates)
		if got := w.deletes(t, "Deployment", "Always", test.meta, "", test.change); got.Allowed != test.allowed {
			t.Errorf("%s: allowed %t, want %t: %+v", name, got.Allowed, test.allowed, got.Result)
		} else if !got.Allowed && !strings.HasPrefix(got.Result.Message, "Deployment shop/web is") {
			t.Errorf("%s: refused with %q, want it to begin with the Deployment", name, got.Result.Message)
		}
	}
}

func asUser(name string) func(*admission.Request) {
	return func(r *admission.Request) { r.UserInfo.Username = name }
}

// DP-020: what lets a deletion through, and that owners and finalizers do not.
func TestOwnersAndFinalizersLetNoDeletionThrough(t *testing.T) {
	for name, test := range map[string]struct {
		gates, kind, label, meta, spec string
		allowed                        bool
	}{
		"no way":                {allGates, "Deployment", "Cascading", "", `"replicas":2`, false},
		"owners":                {allGates, "Deployment", "Cascading", `,"ownerReferences":[{"kind":"App","name":"a"}]`, `"replicas":2`, false},
		"finalizers":            {allGates, "Deployment", "Cascading", `,"finalizers":["a/b"]`, `"replicas":2`, false},
		"the label changed":     {allGates, "Deployment", "No", "", `"replicas":2`, true},
		"the label removed":     {allGates, "Deployment", "", "", `"replicas":2`, true},
		"scaled to 0":           {allGates, "Deployment", "Cascading", "", `"replicas":0`, true},
		"the namespace empty":   {allGates, "Namespace", "Cascading", "", "", true},
		"the gate switched off": {"ResourcesDeletionProtection=false", "Deployment", "Always", "", `"replicas":2`, true},
	} {
		if got := newWorld(t, test.gates).deletes(t, test.kind, test.label, test.meta, test.spec); got.Allowed != test.allowed {
			t.Errorf("%s: allowed %t, want %t: %+v", name, got.Allowed, test.allowed, got.Result)
		}
	}
}

// DP-D4: a kind is a line: its name, the path of its webhook, and what keeps its objects under Cascading.
func TestANewKindIsOneLine(t *testing.T) {
	w, kinds := newWorld(t, allGates), Kinds
	t.Cleanup(func() { Kinds = kinds })
	Kinds = append(slices.Clone(kinds), Kind{Name: "Job", Path: "/validate-batch-job", Contents: func(context.Context, *Guard, *object) (content, error) {
		return content{"running pods", 4, "wait for them"}, nil
	}})
	if got := w.deletes(t, "Job", "Cascading", "", ""); got.Allowed || got.Result.Message !=
		"Job shop/web is protected by label policy.kruise.io/delete-protection=Cascading and running pods 4>0: wait for them or remove the label before deleting it (forbidden by ResourcesProtectionDeletion)" {
		t.Errorf("deletion of a Job with running pods: got %+v, want the words of its kind", got.Result)
	}
	if got := w.deletes(t, "Job", "Always", "", ""); got.Allowed {
		t.Error("Always")
	}
}

// DP-015: what cannot be listed refuses, with the error and how to proceed.
func TestWhatCannotBeListed(t *testing.T) {
	for kind, spec := range map[string]string{"Namespace": "",
		"CustomResourceDefinition": `"group":"example.com","names":{"plural":"games"},"versions":[{"name":"v1","served":true,"storage":true}]`} {
		w := newWorld(t, allGates)
		w.server.code = http.StatusForbidden
		got := w.deletes(t, kind, "Cascading", "", spec)
		if got.Allowed || got.Result.Code != http.StatusInternalServerError || !strings.Contains(got.Result.Message, "no rights") ||
			!strings.Contains(got.Result.Message, "remove the label") {
			t.Errorf("%s without rights: got %+v, want code 500 and that the label can be removed", kind, got.Result)
		}
	}
	w := newWorld(t, allGates)
	w.server.pages["/api/v1/namespaces/web/persistentvolumeclaims"] = []string{"{"}
	if got := w.deletes(t, "Namespace", "Cascading", "", ""); got.Allowed || got.Result.Code != http.StatusInternalServerError {
		t.Errorf("garbage: got %+v, want code 500", got.Result)
	}
	if got := w.deletes(t, "CustomResourceDefinition", "Cascading", "", `"versions":[{"name":"v1","storage":true}]`); got.Allowed ||
		!strings.Contains(got.Result.Message, "no version is served") {
		t.Errorf("not served: got %+v, want that no version is served", got.Result)
	}
	// A storage version that is not served leaves the others.
	w.server.pages["/apis/example.com/v1/games"] = []string{live}
	if got := w.deletes(t, "CustomResourceDefinition", "Cascading", "",
		`"group":"example.com","names":{"plural":"games"},"versions":[{"name":"v2","storage":true},{"name":"v1","served":true}]`); got.Allowed ||
		!strings.Contains(got.Result.Message, "active CRs 1>0") {
		t.Errorf("another version: got %+v, want one active CR", got.Result)
	}
}

// DP-017: pages of metadata are read only until one has a live object, and one object of a page at a time is
// in memory. The server of the test refuses lists without limit.
func TestListsAreBounded(t *testing.T) {
	w := newWorld(t, allGates)
	w.server.pages["/x"] = []string{going, live + "," + live, live}
	got, err := w.counter.count(t.Context(), list{path: "/x", bare: true})
	if got != 2 || err != nil || len(w.server.asked) != 2 {
		t.Errorf("counted %d (%v), want 2; asked %v, want 2 pages", got, err, w.server.asked)
	}
	large := `{"metadata":{"annotations":{"a":"` + strings.Repeat("x", 1<<20) + `"},"managedFields":[` + strings.Repeat("{},", 1000) + `{}]}}`
	page := `{"items":[` + strings.Repeat(large+",", 99) + large + `]}`
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	number, _, err := (list{}).read(strings.NewReader(page))
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; number != 100 || err != nil || allocated > 16<<20 {
		t.Errorf("counted %d (%v), want 100; took %d MiB, want 16 at most", number, err, allocated>>20)
	}
	for _, cut := range []string{"", "{", `{"items"`, `{"items":[`, `{"items":[{}`, `{"items":[{}]`, `[]`, `{"items":{}}`, `{"metadata":7}`} {
		if number, _, err := (list{}).read(strings.NewReader(cut)); err == nil {
			t.Errorf("%s is %d", cut, number)
		}
	}
}

// Requests to delete the same namespace at once share lists.
func TestListsAreShared(t *testing.T) {
	w := newWorld(t, allGates)
	w.server.mu.Lock() // nothing is answered
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if _, err := w.counter.count(t.Context(), list{path: "/x", bare: true}); err != nil {
				t.Errorf("counting: %v", err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.counter.count(ctx, list{path: "/x", bare: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("counting when the time is over: got %v, want that", err)
	}
	w.server.mu.Unlock()
	all.Wait()
	if len(w.server.asked) > 10 {
		t.Errorf("%d lists", len(w.server.asked))
	}
}

// DP-040, DP-041: refusals are counted by object and user, and written to the protection log. What is allowed
// is not.
func TestRefusalsAreTold(t *testing.T) {
	w := newWorld(t, allGates)
	for range 2 {
		w.deletes(t, "Namespace", "Always", "", "")
	}
	w.deletes(t, "CustomResourceDefinition", "Always", "", "")
	for _, kind := range []string{"Deployment", "ReplicaSet", "StatefulSet", "CloneSet", "Service", "Ingress"} {
		w.deletes(t, kind, "Always", "", "")
		w.deletes(t, kind, "Cascading", "", "")
	}
	if diff := cmp.Diff(map[string]float64{"namespace_deletion_protection name=web username=user": 2,
		"crd_deletion_protection name=web username=user":                                      1,
		"workload_deletion_protection kind_namespace_name=Deployment_shop_web username=user":  1,
		"workload_deletion_protection kind_namespace_name=ReplicaSet_shop_web username=user":  1,
		"workload_deletion_protection kind_namespace_name=StatefulSet_shop_web username=user": 1,
		"workload_deletion_protection kind_namespace_name=CloneSet_shop_web username=user":    1,
		"workload_deletion_protection kind_namespace_name=Service_shop_web username=user":     1,
		"workload_deletion_protection kind_namespace_name=Ingress_shop_web username=user":     1,
	}, counts(t, w.teller)); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
	lines := strings.Split(strings.TrimSpace(w.lines.String()), "\n")
	var last protectionlog.Line
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(protectionlog.Line{Time: w.now, Event: "DeletionProtection", Operation: "DELETE", Kind: "Ingress", Namespace: "shop",
		Name: "web", UserAgent: "alice", Object: "ingresss.apps shop/web"}, last); diff != "" || len(lines) != 9 {
		t.Errorf("%d lines, want 9; the last (-want +got):\n%s", len(lines), diff)
	}
}

// PUB-112: refused disruptions are counted by what controls the pod, or else by the pod, and by who was
// refused.
func TestRefusedDisruptionsAreCounted(t *testing.T) {
	w, yes := newWorld(t, allGates), true
	of := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1-x", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "c"}, {APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-1", Controller: &yes}}}}
	bare := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "alone"}}
	for _, d := range []pod.Disruption{{Pod: of, By: "DELETE", User: "alice"}, {Pod: of, By: "EVICT", User: "alice"}, {Pod: of, By: "UPDATE", User: "bob"},
		{Pod: bare, By: "RESIZE", User: "bob"}} {
		w.teller.Disruption(&d, "no more")
	}
	if diff := cmp.Diff(map[string]float64{
		"pod_unavailable_budget kind_namespace_name=ReplicaSet_shop_web-1 username=user": 3,
		"pod_unavailable_budget kind_namespace_name=unknown_shop_alone username=user":    1,
	}, counts(t, w.teller)); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
}

// counts are the values of the counters.
func counts(t *testing.T, teller *Reporter) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	for _, c := range teller.Metrics() {
		if err := registry.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.Metric {
			name := family.GetName()
			for _, label := range metric.Label {
				name += " " + label.GetName() + "=" + label.GetValue()
			}
			got[name] = metric.Counter.GetValue()
		}
	}
	return got
}

// An object in a namespace gets an event that says who was refused and why; not in a dry run, and not more
// than users may cause.
func TestRefusalsBecomeEvents(t *testing.T) {
	w := newWorld(t, allGates)
	dry := true
	w.deletes(t, "Namespace", "Always", "", "")
	written := w.lines.Len()
	w.deletes(t, "Deployment", "Cascading", "", `"replicas":2`, func(r *admission.Request) { r.DryRun = &dry })
	if w.lines.Len() != written {
		t.Error("a dry run is written down")
	}
	w.deletes(t, "Deployment", "Cascading", "", `"replicas":2`)
	if diff := cmp.Diff([]string{"Warning DeletionRefused apps/v1 Deployment shop/web u"}, w.events.about); diff != "" {
		t.Fatalf("events (-want +got):\n%s", diff)
	}
	if want := "User alice was refused: Deployment shop/web is protected by label policy.kruise.io/delete-protection=Cascading and replicas 2>0: " +
		"scale to 0 or remove the label before deleting it"; w.events.notes[0] != want {
		t.Errorf("event: got %q, want %q", w.events.notes[0], want)
	}
	for range 100 {
		w.deletes(t, "Service", "Always", "", "")
	}
	if got := len(w.events.about); got != eventsAtOnce {
		t.Errorf("%d events at once", got)
	}
	w.now = w.now.Add(3 * time.Second)
	for range 100 {
		w.deletes(t, "Service", "Always", "", "")
	}
	if got := len(w.events.about); got != eventsAtOnce+3 {
		t.Errorf("%d events after three seconds", got)
	}
}

// Users choose names: counters of the oldest are forgotten.
func TestCountersAreBounded(t *testing.T) {
	c := newCounters("x", "", "name")
	for i := range mostSeries + 10 {
		c.add(fmt.Sprint(i), "alice")
	}
	c.add(fmt.Sprint(mostSeries), "alice")
	registry := prometheus.NewRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if got := len(families[0].Metric); got != mostSeries || len(c.order) != mostSeries || len(c.known) != mostSeries {
		t.Errorf("series: got %d, ordered %d, known %d; want %d", got, len(c.order), len(c.known), mostSeries)
	}
	if c.known[[2]string{"9", "user"}] || !c.known[[2]string{"10", "user"}] {
		t.Errorf("not the oldest: known are %v", c.known)
	}
}

// DP-040 (part), PUB-112 (part): whoever reads metrics, which by default is everybody in the cluster, read
// the names of users, often their mail addresses.
func TestMetricsNameNoUsers(t *testing.T) {
	for user, want := range map[string]string{"alice@example.com": "user", "": "user", "system:serviceaccount:shop:deployer": "serviceaccount",
		"system:node:n1": "node", "system:kube-scheduler": "system", "kubernetes-admin": "user", "system:serviceaccountant": "system"} {
		c := newCounters("x", "x.", "name")
		c.add("web", user)
		if !c.known[[2]string{"web", want}] || len(c.known) != 1 {
			t.Errorf("user %q is counted as %v, want %s alone", user, c.known, want)
		}
	}
}
