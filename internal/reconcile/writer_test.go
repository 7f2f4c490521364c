package reconcile

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// server answers every write with an error, or with a pod.
type server struct {
	client.Client
	err    error
	answer *corev1.Pod
	sent   []string
}

func (s *server) say(what string, into client.Object) error {
	s.sent = append(s.sent, what)
	if pod, ok := into.(*corev1.Pod); ok && s.err == nil {
		s.answer.DeepCopyInto(pod)
	}
	return s.err
}

func (s *server) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	if document, ok := object.(*unstructured.Unstructured); ok && s.err == nil {
		document.SetUID(s.answer.UID)
		document.SetResourceVersion(s.answer.ResourceVersion)
	}
	return s.say("create "+object.GetName(), object)
}

func (s *server) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	body, err := patch.Data(object)
	return errors.Join(err, s.say("patch "+object.GetName()+" "+string(patch.Type())+" "+string(body), object))
}

func (s *server) Delete(_ context.Context, object client.Object, options ...client.DeleteOption) error {
	exactly := (&client.DeleteOptions{}).ApplyOptions(options).Preconditions
	return s.say("delete "+object.GetName()+" "+string(*exactly.UID)+*exactly.ResourceVersion, nil)
}

func (s *server) SubResource(name string) client.SubResourceClient {
	return subresource{s: s, name: name}
}

type subresource struct {
	client.SubResourceClient
	s    *server
	name string
}

func (r subresource) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	return r.s.say("patch "+object.GetName()+"/"+r.name, object)
}

func withoutManagers(object any) (any, error) {
	object.(client.Object).SetManagedFields(nil)
	return object, nil
}

// What a write leaves for the next plan: its answer as the caches would keep it; nothing after a clear
// refusal; a doubt after anything else (CS-074).
func TestWriter(t *testing.T) {
	answer := podOf("u", "10")
	answer.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}}
	before := podOf("u", "9")
	writes := map[string]func(*Writer) error{
		"create": func(w *Writer) error {
			return w.Create(t.Context(), map[string]any{"apiVersion": "v1", "kind": "Pod",
				"metadata": map[string]any{"namespace": "ns", "name": "a"}}, &corev1.Pod{})
		},
		"create typed": func(w *Writer) error { return w.CreateTyped(t.Context(), podOf("", "")) },
		"delete":       func(w *Writer) error { return w.Delete(t.Context(), before) },
		"patch":        func(w *Writer) error { _, err := Patch(t.Context(), w, before, []byte(`{}`), ""); return err },
		"patch status": func(w *Writer) error { _, err := Patch(t.Context(), w, before, []byte(`{}`), "status"); return err },
	}
	sent := map[string]string{"create": "create a", "create typed": "create a", "delete": "delete a u9",
		"patch":        "patch a application/strategic-merge-patch+json {}",
		"patch status": "patch a/status"}
	for name, write := range writes {
		for what, tt := range map[string]struct {
			err  error
			want string
		}{
			"an answer":        {nil, "u10"},
			"forbidden":        {apierrors.NewForbidden(corev1.Resource("pods"), "a", errors.New("quota")), "u9"},
			"a conflict":       {apierrors.NewConflict(corev1.Resource("pods"), "a", errors.New("another version")), "u9"},
			"too many":         {apierrors.NewTooManyRequests("later", 1), "u9"},
			"a timeout":        {apierrors.NewTimeoutError("lost", 1), "u11"},
			"a server's error": {apierrors.NewInternalError(errors.New("etcd")), "u11"},
			"no connection":    {errors.New("connection reset"), "u11"},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				s := &server{err: tt.err, answer: answer}
				api := NewAPI(s, &shows{pod: podOf("u", "11")}, withoutManagers, func() time.Time { return noon })
				api.Own.Cache = &shows{pod: before}
				if err := write(api.For("owner")); !errors.Is(err, tt.err) {
					t.Fatalf("the write: got error %v, want %v", err, tt.err)
				}
				if diff := cmp.Diff([]string{sent[name]}, s.sent); diff != "" {
					t.Errorf("what was sent (-want +got):\n%s", diff)
				}
				for _, w := range api.Own.pending("owner") {
					if len(w.object.GetManagedFields()) > 0 {
						t.Error("the answer is kept whole")
					}
				}
				if err := api.Own.Settle(t.Context(), "owner", noon); err != nil {
					t.Fatal(err)
				}
				want := tt.want
				if name == "delete" && tt.err == nil {
					want = "u9 going"
				}
				if diff := cmp.Diff(want, seen(api.Own, before)); diff != "" {
					t.Errorf("what the next plan sees (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// What is gone already is deleted as wanted; what is read live is known to the next plan, whether the cache
// has it or not.
func TestDeletedAlreadyAndReadLive(t *testing.T) {
	live := &shows{}
	api := NewAPI(&server{err: apierrors.NewNotFound(corev1.Resource("pods"), "a")}, live, withoutManagers,
		func() time.Time { return noon })
	api.Own.Cache = &shows{pod: podOf("u", "9")}
	if err := api.For("owner").Delete(t.Context(), podOf("u", "9")); err != nil {
		t.Errorf("deletion of a pod that is gone: %v", err)
	}
	live.pod = podOf("u", "11")
	for cached, want := range map[*corev1.Pod]string{nil: "u11", podOf("u", "9"): "u11", podOf("u", "12"): "u12"} {
		api.Own.Cache = &shows{pod: cached}
		api.Own.Forget("owner")
		pod := &corev1.Pod{}
		err := api.For("owner").Read(t.Context(), types.NamespacedName{Namespace: "ns", Name: "a"}, pod)
		if err != nil {
			t.Errorf("the live read: %v", err)
		}
		if pod.ResourceVersion != "11" {
			t.Errorf("the version that was read live: got %q, want \"11\"", pod.ResourceVersion)
		}
		if diff := cmp.Diff(want, seen(api.Own, cached)); diff != "" {
			t.Errorf("what the next plan sees after a live read (-want +got):\n%s", diff)
		}
	}
}

// Webhooks may answer that something is not found, or that there is a conflict. The pod is there, as the request expected it, so that neither
// the plan is stale nor the pod gone.
func TestAnAnswerOfAWebhookSaysNothingOfThePod(t *testing.T) {
	pods := corev1.Resource("pods")
	for name, tt := range map[string]struct {
		err    error
		live   *corev1.Pod
		denied bool
	}{
		"not found, and there":       {apierrors.NewNotFound(pods, "x"), podOf("u", "9"), true},
		"not found, and changed":     {apierrors.NewNotFound(pods, "x"), podOf("u", "10"), true},
		"not found, and gone":        {apierrors.NewNotFound(pods, "x"), nil, false},
		"not found, and another one": {apierrors.NewNotFound(pods, "x"), podOf("v", "10"), false},
		"conflict, and unchanged":    {apierrors.NewConflict(pods, "x", nil), podOf("u", "9"), true},
		"conflict, and changed":      {apierrors.NewConflict(pods, "x", nil), podOf("u", "10"), false},
		"conflict, and gone":         {apierrors.NewConflict(pods, "x", nil), nil, false},
	} {
		api := NewAPI(&server{err: tt.err}, &shows{pod: tt.live}, withoutManagers, func() time.Time { return noon })
		api.Own.Cache = &shows{pod: podOf("u", "9")}
		err := api.For("owner").Delete(t.Context(), podOf("u", "9"))
		if apierrors.IsConflict(tt.err) {
			if !IsStalePlan(err) {
				t.Errorf("%s, once: %v", name, err)
			}
			err = api.For("owner").Delete(t.Context(), podOf("u", "9"))
		}
		if denied := err != nil && !IsStalePlan(err) && !apierrors.IsNotFound(err); denied != tt.denied {
			t.Errorf("%s: denied %t, want %t: %v", name, denied, tt.denied, err)
		}
		if tt.denied && len(api.Own.pending("owner")) > 0 {
			t.Errorf("%s: a deletion is remembered that did not happen", name)
		}
	}
}

// What an error says: that the world changed, that this object was refused, or neither.
func TestAnErrorSaysWhetherTheObjectWasRefused(t *testing.T) {
	pods := corev1.Resource("pods")
	tests := map[string]struct {
		err                       error
		changed, refused, clearly bool
	}{
		"changed":   {err: ErrStalePlan, changed: true},
		"conflict":  {err: apierrors.NewConflict(pods, "a", nil), changed: true, clearly: true},
		"gone":      {err: StaleIfNotFound(apierrors.NewNotFound(pods, "a")), changed: true},
		"not found": {err: apierrors.NewNotFound(pods, "a"), clearly: true},
		"forbidden": {err: apierrors.NewForbidden(pods, "a", nil), refused: true, clearly: true},
		"invalid": {err: apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "a", nil), refused: true,
			clearly: true},
		"too many":          {err: apierrors.NewTooManyRequestsError("later"), clearly: true},
		"server":            {err: apierrors.NewInternalError(errors.New("x"))},
		"gateway":           {err: apierrors.NewGenericServerResponse(http.StatusBadGateway, "patch", pods, "a", "", 0, false)},
		"anything else":     {err: StaleIfNotFound(errors.New("x"))},
		"changed twice":     {err: errors.Join(ErrStalePlan, apierrors.NewConflict(pods, "a", nil)), changed: true, clearly: true},
		"changed, and more": {err: errors.Join(ErrStalePlan, errors.New("x"))},
		"changed, wrapped":  {err: fmt.Errorf("patching: %w", ErrStalePlan), changed: true},
		"changed twice, wrapped": {err: fmt.Errorf("pods: %w", errors.Join(ErrStalePlan, fmt.Errorf("b: %w", ErrStalePlan))),
			changed: true},
		"changed, and more, wrapped": {err: fmt.Errorf("pods: %w", errors.Join(ErrStalePlan, errors.New("x")))},
		"more, and changed, nested":  {err: errors.Join(ErrStalePlan, fmt.Errorf("pods: %w", errors.Join(errors.New("x"), ErrStalePlan)))},
		"nothing":                    {},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := []bool{IsStalePlan(tt.err), Refused(tt.err), IsRejected(tt.err)}
			if diff := cmp.Diff([]bool{tt.changed, tt.refused, tt.clearly}, got); diff != "" {
				t.Errorf("the world changed, the object was refused, clearly (-want +got):\n%s", diff)
			}
		})
	}
}

// A pass that ended with a stale plan is repeated soon, whatever else failed; other errors are returned, so that
// they are reported and grow the back-off.
func TestRetryOfAPassThatFailed(t *testing.T) {
	pods := corev1.Resource("pods")
	conflict, forbidden := apierrors.NewConflict(pods, "a", nil), apierrors.NewForbidden(pods, "b", nil)
	for name, tt := range map[string]struct {
		err    error
		after  time.Duration
		failed bool
	}{
		"done":                       {nil, time.Hour, false},
		"stale":                      {conflict, RetrySoon, false},
		"refused":                    {forbidden, time.Hour, true},
		"stale, and one was refused": {errors.Join(conflict, forbidden), RetrySoon, true},
		"one was refused, and stale": {errors.Join(forbidden, ErrStalePlan), RetrySoon, true},
		"the same, wrapped":          {fmt.Errorf("pods: %w", errors.Join(forbidden, conflict)), RetrySoon, true},
		"nested":                     {errors.Join(forbidden, fmt.Errorf("pods: %w", errors.Join(forbidden, conflict))), RetrySoon, true},
	} {
		got, err := Outcome{After: time.Hour}.Retry(tt.err)
		if got.After != tt.after {
			t.Errorf("%s: repeated after %s, want %s", name, got.After, tt.after)
		}
		if (err != nil) != tt.failed {
			t.Errorf("%s: error %v, want one: %t", name, err, tt.failed)
		}
	}
}

// A merge patch carries the guards beside what it changes.
func TestMergePatch(t *testing.T) {
	body, err := MergePatch(podOf("u", "9"), map[string]any{"labels": map[string]any{"a": nil}},
		map[string]any{"spec": map[string]any{"x": 1}})
	want := `{"metadata":{"labels":{"a":null},"resourceVersion":"9","uid":"u"},"spec":{"x":1}}`
	if err != nil {
		t.Errorf("the merge patch: %v", err)
	}
	if diff := cmp.Diff(want, string(body)); diff != "" {
		t.Errorf("the merge patch (-want +got):\n%s", diff)
	}
}

// The guards are those of the object, whatever a user's patch says of them.
func TestAPatchDoesNotReplaceTheGuards(t *testing.T) {
	metadata := map[string]any{"uid": "another", "resourceVersion": nil}
	body, err := MergePatch(podOf("u", "9"), metadata, map[string]any{"metadata": map[string]any{"uid": "third"}})
	if want := `{"metadata":{"resourceVersion":"9","uid":"u"}}`; err != nil || string(body) != want {
		t.Errorf("got %s and error %v, want %s", body, err, want)
	}
	if metadata["uid"] != "another" {
		t.Errorf("the metadata of the caller: got %v, want that it stays", metadata)
	}
}

// follows is a cache that shows the pod's next version when it is read for the third time.
type follows struct{ shows }

func (f *follows) Get(ctx context.Context, name client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if f.reads == 2 {
		f.pod = podOf("u", "10")
	}
	return f.shows.Get(ctx, name, into, options...)
}

// A second write of a pod waits until the cache shows the first one, since API servers are slow where it
// overtakes; but not for ever, and no other write waits.
func TestAPatchDoesNotOvertake(t *testing.T) {
	for name, tt := range map[string]struct {
		cache   *follows
		flow    *WriteLimiter
		version string
		reads   int
	}{
		"the cache follows":     {&follows{shows{pod: podOf("u", "9")}}, NewWriteLimiter(0), "10", 3},
		"it fails":              {&follows{shows{err: errors.New("no informer")}}, NewWriteLimiter(0), "10", 1},
		"it never follows":      {&follows{shows{pod: podOf("u", "9"), reads: 3}}, NewWriteLimiter(0), "10", 12},
		"what others wrote":     {&follows{shows{pod: podOf("u", "9")}}, NewWriteLimiter(0), "12", 0},
		"one task at a time":    {&follows{shows{pod: podOf("u", "9")}}, nil, "10", 0},
		"a pod not yet shown":   {&follows{}, NewWriteLimiter(0), "10", 3},
		"the cache knows newer": {&follows{shows{pod: podOf("u", "11")}}, NewWriteLimiter(0), "10", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{answer: podOf("u", "10")}
			api := NewAPI(s, nil, withoutManagers, func() time.Time { return noon })
			api.Limit, api.Own.Cache = tt.flow, tt.cache
			w := api.For("owner")
			if _, err := Patch(t.Context(), w, podOf("u", "9"), []byte(`{}`), ""); err != nil {
				t.Fatal(err)
			}
			if _, err := Patch(t.Context(), w, podOf("u", tt.version), []byte(`{}`), ""); err != nil {
				t.Fatal(err)
			}
			if reads := tt.cache.reads; reads != tt.reads {
				t.Errorf("looks at the cache: got %d, want %d", reads, tt.reads)
			}
			if len(s.sent) != 2 {
				t.Errorf("writes that were sent: got %v, want 2", s.sent)
			}
		})
	}
}

// A creation to which a webhook answers 409 is not one of a stale plan: it will probably be answered so again. One that an
// API server could not count against a quota at once is tried again soon.
func TestConflictsOfCreations(t *testing.T) {
	for resource, stale := range map[string]bool{"pods": false, "resourcequotas": true} {
		err := apierrors.NewConflict(corev1.Resource(resource), "one", errors.New("the object has been modified"))
		if got := IsStalePlan(fmt.Errorf("creating: %w", Denied(err))); got != stale {
			t.Errorf("a conflict of %s: stale %t, want %t", resource, got, stale)
		}
	}
}
