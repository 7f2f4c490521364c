package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/admission/pod"
	"github.com/afloat-project/afloat/internal/admission/protection"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
	"github.com/afloat-project/afloat/internal/kinds/containerrecreate/containerrecreatetest"
	persistentpodstatecontroller "github.com/afloat-project/afloat/internal/kinds/persistentpodstate/controller"
	podunavailablebudgetcontroller "github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/controller"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/inject"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	workloadspreadcontroller "github.com/afloat-project/afloat/internal/kinds/workloadspread/controller"
	"github.com/afloat-project/afloat/internal/platform/protectionlog"
	"github.com/afloat-project/afloat/internal/racetest"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// besieged is a manager with all its webhooks, as callers reach them, and what they do beside answering.
type besieged struct {
	served   map[string]http.Handler
	subjects map[string]subject

	mu sync.Mutex
	// writes are those to the API server that are no dry runs, booked what is noted of pods, announced rules,
	// and asked the paths of what is read by path.
	writes, booked, announced, asked []string
	panics                           []string
}

func (b *besieged) note(to *[]string, format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*to = append(*to, fmt.Sprintf(format, args...))
}

// What is asked about pods: each is to get a sidecar, is in a subset and has a budget.
func (b *besieged) Choose(context.Context, *corev1.Pod, string) ([]*inject.Template, error) {
	spec := &appsv1beta1.SidecarSetSpec{}
	spec.Containers = []appsv1beta1.SidecarContainer{{}}
	spec.Containers[0].Name, spec.Containers[0].Image = "side", "i"
	template, err := inject.NewTemplate("logs", spec, "", "", "")
	return []*inject.Template{template}, err
}

func (b *besieged) Match(context.Context, *corev1.Pod, string) (*appsv1beta1.WorkloadSpread, error) {
	return &appsv1beta1.WorkloadSpread{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}, nil
}

func (b *besieged) Create(_ context.Context, _ *appsv1beta1.WorkloadSpread, _ workloadspread.Creation, _ func(workloadspread.Decision) error) (workloadspread.Decision,
	error) {
	b.note(&b.booked, "a place")
	return workloadspread.Decision{}, nil
}

func (b *besieged) Delete(_ context.Context, _ *appsv1beta1.WorkloadSpread, _ workloadspread.Deletion) (workloadspread.Decision, error) {
	b.note(&b.booked, "a removal")
	return workloadspread.Decision{}, nil
}

func (b *besieged) Release(context.Context, *appsv1beta1.WorkloadSpread, workloadspread.Creation) error {
	return nil
}

func (b *besieged) Book(context.Context, podunavailablebudgetcontroller.Request) (podunavailablebudgetcontroller.Answer, error) {
	b.note(&b.booked, "a budget")
	return podunavailablebudgetcontroller.Answer{}, nil
}

func (b *besieged) Covering(context.Context, *corev1.Pod) (*policyv1beta1.PodUnavailableBudget, error) {
	return nil, nil
}

func (b *besieged) Announce(_ context.Context, expression string) error {
	b.note(&b.announced, "%s", expression)
	return nil
}

// client is one that notes what is written, and refuses it.
func (b *besieged) client(objects ...client.Object) client.WithWatch {
	write := func(verb string, o client.Object) error {
		b.note(&b.writes, "%s %T %s", verb, o, o.GetName())
		return errors.New("it is written")
	}
	return fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if all := (&client.CreateOptions{}).ApplyOptions(options); slices.Contains(all.DryRun, metav1.DryRunAll) {
				return nil
			}
			return write("create", o)
		},
		Update: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.UpdateOption) error {
			return write("update", o)
		},
		Delete: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.DeleteOption) error {
			return write("delete", o)
		},
		Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, options ...client.PatchOption) error {
			if all := (&client.PatchOptions{}).ApplyOptions(options); slices.Contains(all.DryRun, metav1.DryRunAll) {
				return nil
			}
			return write("patch", o)
		},
		SubResourcePatch: func(_ context.Context, _ client.Client, _ string, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
			return write("patch status of", o)
		},
		SubResourceUpdate: func(_ context.Context, _ client.Client, _ string, o client.Object, _ ...client.SubResourceUpdateOption) error {
			return write("update status of", o)
		},
	}).Build()
}

func besiege(t *testing.T) *besieged {
	t.Helper()
	for _, add := range []func() error{func() error { return appsv1beta1.AddToScheme(scheme.Scheme) }, func() error { return policyv1beta1.AddToScheme(scheme.Scheme) }} {
		if err := add(); err != nil {
			t.Fatal(err)
		}
	}
	b := &besieged{}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.note(&b.asked, "%s", r.URL.Path)
		body, _ := io.ReadAll(r.Body)
		code := http.StatusCreated
		if r.Method == http.MethodGet {
			code, body = http.StatusNotFound, nil
		} else if r.URL.Query().Get("dryRun") != metav1.DryRunAll {
			b.note(&b.writes, "%s %s", r.Method, r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write(body)
	}))
	t.Cleanup(api.Close)
	clientset, err := kubernetes.NewForConfig(&rest.Config{Host: api.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}},
		containerrecreatetest.Recreatable(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "known"}}}
	const on = "ResourceDistributionGate=true,DeletionProtectionForCRDCascadingGate=true,PodUnavailableBudgetUpdateGate=true,PodUnavailableBudgetDeleteGate=true"
	e, options := &framework.Environment{Gates: webhooktest.Gates(t, on)}, ofRegistry(t, on)
	workloadspreadcontroller.Listing.Set(e, &workloadspreadcontroller.Listed{})
	e.Namespace, e.Mapper, e.Announcer = "kruise-system", meta.NewDefaultRESTMapper(nil), b
	persistentpodstatecontroller.Listing.Set(e, &workloadspreadcontroller.Listed{})
	e.Cache, e.APIReader, e.Writer = b.client(objects...), b.client(objects...), b.client()
	e.Namespaces, e.Validator = framework.NewNamespaces(e.Cache, e.APIReader), framework.NewTemplateValidator(clientset.CoreV1().RESTClient())
	lines, err := protectionlog.Open(t.TempDir(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	options.guard = protection.New(e.Gates, clientset.CoreV1().RESTClient(),
		protection.NewTeller(reconcile.NewRecorder(events.NewFakeRecorder(100)), lines, logr.Discard(), time.Now))
	spreads := pod.NewSpreads(pod.SpreadOptions{Matcher: b, Booker: b, Versioned: workloadspread.ParseVersioned("deployment"),
		Known:    func(types.NamespacedName) *appsv1beta1.WorkloadSpread { return nil },
		Recorder: reconcile.NewRecorder(events.NewFakeRecorder(100)), Log: logr.Discard(), Now: time.Now})
	budgets := &pod.Budgets{Guard: b, Cached: e.Cache, Tell: func(*pod.Disruption, string) {}, Passed: func(*pod.Disruption, string) {}}
	chain := newPodChain(true, spreads, budgets, pod.NewSidecars(b, true, time.Now))
	e.Protect = options.protects
	b.subjects = Options{Kinds: Registered}.subjects()
	handlers := options.handlers(e, chain, pod.NewDisruptions(budgets.Check(), spreads.Check()))
	handlers[mutatePodRecentPath] = b.subjects[mutatePodRecentPath].checked(mutateRecentPod(mutatePod(chain, false), &learned{}))
	for path := range b.subjects {
		if handler := handlers[path]; handler != nil {
			handlers[path] = admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
				defer func() {
					if cause := recover(); cause != nil {
						stack := make([]byte, 8<<10)
						b.note(&b.panics, "%s: %v\n%s", path, cause, stack[:runtime.Stack(stack, false)])
						panic(cause)
					}
				}()
				return handler.Handle(ctx, request)
			})
		}
	}
	b.served = served(handlers, &conversionHandler{log: logr.Discard(), kinds: Registered})
	return b
}

// plain is a review that is no different from one of an API server.
func (b *besieged) plain(t *testing.T, path, operation string) framework.Document {
	t.Helper()
	of := b.subjects[path]
	object := framework.Document{"apiVersion": of.group + "/v1beta1", "kind": of.kind, "metadata": framework.Document{"name": "web", "uid": "known", "labels": framework.Document{"app": "web"}}}
	if spec, ok := specs[of.kind]; ok && strings.HasSuffix(of.group, ".kruise.io") {
		object["spec"] = parsed(t, spec)
	} else {
		object["metadata"].(framework.Document)["labels"].(framework.Document)["policy.kruise.io/delete-protection"] = "Cascading"
		object["spec"] = parsed(t, `{"replicas":1,"group":"example.com","names":{"plural":"things"},"versions":[{"name":"v1","served":true,"storage":true}],
			"containers":[{"name":"app","image":"i","env":[{"name":"KRUISE_CONTAINER_PRIORITY","value":"1"}]}]}`)
		object["status"] = parsed(t, `{"conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[{"name":"app"}]}`)
	}
	request := framework.Document{"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": operation, "name": "web", "userInfo": framework.Document{"username": "alice"},
		"kind":     framework.Document{"group": of.group, "version": "v1beta1", "kind": of.kind},
		"resource": framework.Document{"group": of.group, "version": "v1beta1", "resource": of.resource}}
	if !of.cluster {
		request["namespace"], object["metadata"].(framework.Document)["namespace"] = "shop", "shop"
	}
	if operation != "DELETE" {
		request["object"] = object
	}
	if operation != "CREATE" {
		request["oldObject"] = parsed(t, webhooktest.Encoded(t, object))
	}
	return framework.Document{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
}

// sent is what came of a request.
type sent struct {
	code    int
	allowed bool
	patch   []byte
	size    int
	// memory is how much was allocated for it, garbage included; it is not known of all.
	memory uint64
}

// post sends a body, as anybody can.
func (b *besieged) post(t *testing.T, path, body string, measured bool) (s sent) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	var before, after runtime.MemStats
	if measured { // it stops the world
		runtime.ReadMemStats(&before)
	}
	b.served[path].ServeHTTP(recorder, r)
	if measured {
		runtime.ReadMemStats(&after)
	}
	s = sent{code: recorder.Code, size: recorder.Body.Len(), memory: after.TotalAlloc - before.TotalAlloc}
	var answer struct {
		Response *struct {
			Allowed bool   `json:"allowed"`
			Patch   []byte `json:"patch"`
		} `json:"response"`
	}
	switch err := json.Unmarshal(recorder.Body.Bytes(), &answer); {
	case s.code == http.StatusOK && (err != nil || answer.Response == nil && path != convertPath):
		t.Errorf("%s: no answer but %.300s to %.300s", path, recorder.Body, body)
	case err == nil && answer.Response != nil:
		s.allowed, s.patch = answer.Response.Allowed, answer.Response.Patch
	}
	return s
}

// badNames are no names of anything.
var badNames = map[string]string{
	"a path": "../..", "an expression": "a'])) || int(request.operation) == 1 || ((request.namespace in ['a", "300 characters": strings.Repeat("a", 300),
	"a line": "web\nlevel=error msg=forged", "a zero": "a\x00b", "a query": "web?dryRun=All", "an escaped path": "..%2f..", "a terminal": "\x1b[2J",
	"other letters": "wéb", "30 KB": strings.Repeat("../", 10_000),
}

// claims are what is wrong with a review in itself: each is refused, whatever it is about. Names are put
// where names are.
func claims() map[string]func(request framework.Document) {
	all := map[string]func(framework.Document){
		"another kind":       func(r framework.Document) { r["kind"].(framework.Document)["kind"] = "Secret" },
		"another kind group": func(r framework.Document) { r["kind"].(framework.Document)["group"] = "example.com" },
		"another resource":   func(r framework.Document) { r["resource"].(framework.Document)["resource"] = "secrets" },
		"another group":      func(r framework.Document) { r["resource"].(framework.Document)["group"] = "../api" },
		"no resource":        func(r framework.Document) { delete(r, "resource") },
	}
	for what, name := range badNames {
		all["name: "+what] = func(r framework.Document) { r["name"] = name }
		all["namespace: "+what] = func(r framework.Document) { r["namespace"] = name }
		for _, field := range []string{"name", "generateName", "namespace"} {
			all["object's "+field+": "+what] = func(r framework.Document) {
				for _, object := range []string{"object", "oldObject"} {
					if _, there := r[object]; there {
						r[object].(framework.Document)["metadata"].(framework.Document)[field] = name
					}
				}
			}
		}
	}
	return all
}

// shapes are objects and reviews that are none.
var shapes = map[string]func(review framework.Document){
	"no request": func(r framework.Document) { delete(r, "request") },
	"null":       func(r framework.Document) { r["request"] = nil },
	"a list":     func(r framework.Document) { r["request"] = []any{} },
	"a text":     func(r framework.Document) { r["request"] = "x" },
	"empty":      func(r framework.Document) { r["request"] = framework.Document{} },
	"nothing but nulls": func(r framework.Document) {
		for key := range r["request"].(framework.Document) {
			r["request"].(framework.Document)[key] = nil
		}
	},
}

// odd are values that are put in the place of others, beside null.
var odd = []any{"", json.Number("-1e400"), framework.Document{}, []any{nil}, "../..\x00"}

// enormous are values that are large, or become large.
var enormous = map[string]string{"3 MiB of text": `"` + strings.Repeat("x", 3<<20) + `"`, "100 KiB of escapes": `"` + strings.Repeat(`\n`, 50<<10) + `"`,
	"depth": strings.Repeat(`[`, 9000) + strings.Repeat(`]`, 9000), "long keys": `{"` + strings.Repeat("k", 50<<10) + `":{` + strings.Repeat(`"a":{},`, 10_000) + `"b":1}}`,
	"9000 items": "[{}" + strings.Repeat(`,{}`, 9000) + "]", "120,000 items": "[{}" + strings.Repeat(`,{}`, 60_000) + "]"}

// readPath is what the manager may read by path: pods, claims and objects of definitions whose names are
// names.
var readPath = regexp.MustCompile(`^(/api/v1/namespaces/[a-z0-9]([-a-z0-9]*[a-z0-9])?/(podtemplates|pods|persistentvolumeclaims)|/apis/[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[a-z0-9]+/[a-z]([-a-z0-9]*[a-z0-9])?)$`)

// paths are those of all values in a document.
func paths(value any, path []string) (all [][]string) {
	switch value := value.(type) {
	case framework.Document:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			all = append(append(all, longer(path, key)), paths(value[key], longer(path, key))...)
		}
	case []any:
		for i := range value {
			all = append(append(all, longer(path, strconv.Itoa(i))), paths(value[i], longer(path, strconv.Itoa(i)))...)
		}
	}
	return all
}

// put sets a value at a path, which may lead through lists.
func put(into any, path []string, value any) {
	for ; len(path) > 1; path = path[1:] {
		into, _ = elementOf(into, path[0])
	}
	switch into := into.(type) {
	case framework.Document:
		into[path[0]] = value
	case []any:
		i, _ := strconv.Atoi(path[0])
		into[i] = value
	}
}

// OPS-066 (part), OPS-068 (part): whatever is sent to whichever webhook, it answers, and does nothing else:
// it does not panic, writes nothing, reads nothing but what it is for, and takes no more memory, garbage
// included, than 8 MiB beyond twice what it has reserved. The webhooks are those of the registry.
func TestAnyReviewIsAnsweredAndDoesNothingElse(t *testing.T) {
	racetest.SkipAlone(t)
	b := besiege(t)
	most := struct {
		memory uint64
		by     string
	}{}
	for _, path := range slices.Sorted(maps.Keys(b.subjects)) {
		if b.served[path] == nil {
			if b.served[strings.NewReplacer("/mutate-", "/validate-", "/validate-", "/mutate-").Replace(path)] == nil && !strings.HasSuffix(path, "-nodepodprobe") {
				t.Errorf("%s has no handler", path)
			}
			continue // the kind has only the other one
		}
		check := func(what, operation string, review any, refuse, measured bool) {
			t.Helper()
			body := webhooktest.Encoded(t, review)
			b.announced, b.booked = nil, nil
			s := b.post(t, path, body, measured)
			if refuse && (s.allowed || len(s.patch) > 0 || len(b.announced)+len(b.booked) > 0) {
				t.Errorf("%s, %s, %s: allowed %t, patch %.200s, announced %q, booked %q", path, operation, what, s.allowed, s.patch, b.announced, b.booked)
			}
			if bound := 8<<20 + 2*uint64(memoryOf(len(body), items([]byte(body)))); len(body) < 1<<20 && s.memory > bound {
				t.Errorf("%s, %s, %s: %d KiB of memory for %d KiB", path, operation, what, s.memory>>10, len(body)>>10)
			}
			if len(body) < 1<<20 && s.memory > most.memory {
				most.memory, most.by = s.memory, fmt.Sprintf("%s, %s, %s of %d KiB", path, operation, what, len(body)>>10)
			}
			if s.size > 2*len(body)+64<<10 {
				t.Errorf("%s, %s, %s: an answer of %d bytes to %d", path, operation, what, s.size, len(body))
			}
			if object, ok := review.(framework.Document)["request"].(framework.Document); ok && len(s.patch) > 0 {
				if patch, err := jsonpatch.DecodePatch(s.patch); err != nil {
					t.Errorf("%s, %s, %s: reading the patch: %v", path, operation, what, err)
				} else if _, err := patch.Apply([]byte(webhooktest.Encoded(t, object["object"]))); err != nil {
					t.Errorf("%s, %s, %s: the patch %.300s of %.300s: %v", path, operation, what, s.patch, webhooktest.Encoded(t, object["object"]), err)
				}
			}
		}
		// Builtin kinds are asked about when they are deleted; of an update, what was there before is another
		// object.
		operations := map[string]string{"CREATE": "object", "UPDATE": "oldObject"}
		if !strings.HasSuffix(b.subjects[path].group, ".kruise.io") && !strings.HasPrefix(path, "/mutate") {
			operations = map[string]string{"DELETE": "oldObject"}
		}
		for operation, named := range operations {
			plain := func() framework.Document { return b.plain(t, path, operation) }
			for what, spoil := range claims() {
				review := plain()
				before := webhooktest.Encoded(t, review)
				if spoil(review["request"].(framework.Document)); webhooktest.Encoded(t, review) != before {
					check(what, operation, review, true, false)
				}
			}
			for what, spoil := range shapes {
				review := plain()
				spoil(review)
				check(what, operation, review, true, false)
			}
			for i, at := range paths(plain(), nil) {
				if operation == "UPDATE" && (len(at) < 2 || at[1] != named || len(at) > 4) {
					continue
				}
				for _, value := range []any{nil, odd[i%len(odd)]} { // all of them, by turns
					review := plain()
					put(review, at, value)
					check(fmt.Sprintf("%s is %q", strings.Join(at, "."), webhooktest.Encoded(t, value)), operation, review, false, false)
				}
			}
			for what, value := range enormous {
				if operation == "UPDATE" && !strings.HasSuffix(what, " items") {
					continue // they are as large in one place as in the other
				}
				review := plain()
				spec := review["request"].(framework.Document)[named].(framework.Document)["spec"].(framework.Document)
				if spec["template"] = json.RawMessage(value); strings.HasPrefix(value, "[") {
					spec["containers"] = json.RawMessage(value)
				}
				check(what, operation, review, false, true)
			}
		}
	}
	if len(b.panics) > 0 {
		t.Errorf("%d panics, the first: %s", len(b.panics), b.panics[0])
	}
	if len(b.writes) > 0 {
		t.Errorf("%d writes: %.2000q", len(b.writes), slices.Compact(slices.Sorted(slices.Values(b.writes))))
	}
	for _, asked := range slices.Compact(slices.Sorted(slices.Values(b.asked))) {
		if !readPath.MatchString(asked) {
			t.Errorf("%s is read", asked)
		}
	}
	t.Logf("the most memory, %d KiB, was for %s", most.memory>>10, most.by)
}
