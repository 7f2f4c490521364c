package takeover

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
	"github.com/afloat-project/afloat/internal/racetest"
	"github.com/afloat-project/afloat/internal/registry"
)

// OPS-194: a manager that serves and does not act is told before the command says that it is done: which
// kind, and how to go back. What was created to see it is gone again.
func TestAManagerThatServesAndDoesNotAct(t *testing.T) {
	racetest.SkipAlone(t)
	brief := withoutSchemas(t)
	for _, idle := range []bool{true, false} {
		w := newWorld(t, "")
		w.manifests = brief
		w.idle = idle
		var out strings.Builder
		folder := filepath.Join(t.TempDir(), "backup")
		c := w.command(folder, &out)
		if idle {
			c.timeout = 300 * time.Millisecond
		}
		err := c.run(t.Context())
		switch {
		case idle && (err == nil || !strings.Contains(err.Error(), "does not act on CloneSet") ||
			!strings.Contains(err.Error(), "kubectl afloat takeover --back --backup "+folder) || strings.Contains(out.String(), "done")):
			t.Errorf("%v, said %s", err, out.String())
		case !idle && (err != nil || !strings.Contains(out.String(), "the manager acts on each of 1 kind in use")):
			t.Errorf("%v, said %s", err, out.String())
		}
		definition, err := installation.Get(t.Context(), w.bare, installation.Definitions, "", "clonesets.apps.kruise.io")
		if err != nil {
			t.Fatal(err)
		}
		probe, err := installation.Get(t.Context(), w.bare, installation.StoredKind(definition), namespace, probeName)
		if err != nil {
			t.Errorf("reading the probe: %v", err)
		}
		if probe != nil {
			t.Errorf("the probe is still there: %v", probe)
		}
	}
}

// OPS-194: on the way back the other manager is seen to act, too. One that was not seen to act on a kind is
// told of, and the way back ends: what it writes of an object that asks for nothing is its own affair.
func TestTheWayBackTellsWhetherTheOtherManagerActs(t *testing.T) {
	racetest.SkipAlone(t)
	for idle, want := range map[bool]string{true: "OpenKruise's manager was not seen to act on CloneSet", false: "the manager acts on each of 1 kind in use"} {
		w := newWorld(t, "")
		w.manifests = withoutSchemas(t)
		folder := filepath.Join(t.TempDir(), "backup")
		if err := w.command(folder, io.Discard).run(t.Context()); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		w.idle = idle
		c := w.command(folder, &out)
		c.back, c.timeout = true, 300*time.Millisecond
		if err := c.run(t.Context()); err != nil {
			t.Errorf("takeover: unexpected error: %v\n%q\n%s", err, w.violated, out.String())
		} else if !strings.Contains(out.String(), want) {
			t.Errorf("out: got %q, want it to contain %q\n%v\n%q", out.String(), want, err, w.violated)
		} else if len(w.violated) > 0 {
			t.Errorf("violations: got %q, want none\n%v\n%s", w.violated, err, out.String())
		}
	}
}

// OPS-181: what the API server would refuse is found while the other manager runs: manifests that it does not
// take, because it is older than 1.30 or because of few rights, and what the way back needs.
func TestWhatWouldBeRefusedStopsNothing(t *testing.T) {
	racetest.SkipAlone(t)
	brief := withoutSchemas(t)
	kind := schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"}
	for name, test := range map[string]struct {
		refusal error
		ask     asking
		want    string
	}{
		"a kind that is not there": {refusal: &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: []string{"v1"}}, want: "no matches for kind"},
		"few rights": {refusal: apierrors.NewForbidden(schema.GroupResource{Group: kind.Group, Resource: "validatingadmissionpolicies"}, "x", nil),
			want: "forbidden"},
		"Kubernetes 1.28": {ask: asking{version: func() (string, error) { return "v1.28.3+k3s1", nil }},
			want: "the API server is of release v1.28.3+k3s1, and Afloat needs Kubernetes 1.30 or newer"},
		"no right to delete": {ask: asking{version: func() (string, error) { return "v1.33.0-eks-1", nil },
			may: func(_ context.Context, what *authorizationv1.ResourceAttributes) (bool, error) {
				return what.Resource != "deployments" || what.Verb != "delete", nil
			}}, want: "you may not: delete deployments.apps in namespace kruise-system"},
	} {
		w := newWorld(t, "")
		w.manifests = brief
		w.WithWatch = interceptor.NewClient(w.WithWatch, interceptor.Funcs{
			Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
				if test.refusal != nil && o.(interface{ GetKind() string }).GetKind() == kind.Kind {
					return test.refusal
				}
				return c.Apply(ctx, o, options...)
			}})
		before := w.state()
		for _, dryRun := range []string{server, wet} {
			c := w.command(filepath.Join(t.TempDir(), "backup"), io.Discard)
			c.ask, c.dryRun = test.ask, dryRun
			if err := c.run(t.Context()); err == nil {
				t.Errorf("%s: takeover: got nil, want an error; %v, want %s", name, err, test.want)
			} else if !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: takeover: got %q, want it to contain %q", name, err.Error(), test.want)
			}
		}
		if diff := cmp.Diff(before, w.state()); diff != "" {
			t.Errorf("%s: what is there (-before +after):\n%s", name, diff)
		}
		if w.writes > 0 {
			t.Errorf("%s: got %d writes, want none: %v", name, w.writes, w.written)
		}
	}
}

// OPS-185 (part): an object that today's validation refuses does not stop the way back, if it has to be
// stored in another version: it is written as its own status, which is about no change of it.
func TestAnObjectThatValidationRefusesIsStoredAgain(t *testing.T) {
	w := newWorld(t, "")
	var statuses int
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "clonesets"}, "web", errors.New("too long"))
	w.WithWatch = interceptor.NewClient(w.WithWatch, interceptor.Funcs{
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return refused },
		SubResourceUpdate: func(_ context.Context, _ client.Client, subResource string, _ client.Object, _ ...client.SubResourceUpdateOption) error {
			if statuses++; subResource != "status" || statuses > 1 {
				return refused
			}
			return nil
		}})
	c := w.command("x", io.Discard)
	first, second := c.store(t.Context(), w.deployment()), c.store(t.Context(), w.deployment())
	if first != nil {
		t.Errorf("first: unexpected error: %v\n%v", first, second)
	} else if second == nil {
		t.Errorf("second: got nil, want an error\n%v", first)
	}
}

// OPS-183 (part): a lock that its holder did not give back is given back when the holder's pod was seen to
// end and does not renew it any more, and not if its pod may live, or it is renewed.
func TestTheLockOfAManagerThatHasEnded(t *testing.T) {
	for name, test := range map[string]struct {
		ended bool
		still time.Duration
		free  bool
	}{"ended, quiet": {true, 4 * time.Second, true}, "ended, just renewed": {true, time.Second, false}, "its pod may live": {false, 4 * time.Second, false},
		"not renewed for as long as it holds": {false, 16 * time.Second, true}} {
		w := newWorld(t, "")
		if err := w.bare.Patch(t.Context(), w.lease(), client.RawPatch("application/merge-patch+json",
			[]byte(`{"spec":{"holderIdentity":"kruise-controller-manager-a_1234","leaseDurationSeconds":15}}`))); err != nil {
			t.Fatal(err)
		}
		c := w.command("x", io.Discard)
		lock := lockName{namespace, installation.Lock}
		watch := newWatcher(placesOf(w.deployment(), lock, namespace))
		if missing, err := c.see(t.Context(), watch); err != nil {
			t.Fatalf("unexpected error: %v\n%q", err, missing)
		} else if len(missing) == 0 {
			t.Fatalf("missing: got none, want some\n%q\n%v", missing, err)
		}
		watch.ended["kruise-controller-manager-a"], watch.alone = test.ended, true
		for p := range watch.since {
			watch.since[p] = time.Now().Add(-test.still)
		}
		missing, err := c.see(t.Context(), watch)
		if err != nil {
			t.Errorf("%s: unexpected error: %v\n%v", name, err, missing)
		} else if (len(missing) == 0) != test.free {
			t.Errorf("%s: nothing is missing: got %t, want %t\n%v\n%v", name, len(missing) == 0, test.free, missing,
				err)
		}
		// Whoever comes next would look at a lock that has a holder for as long again.
		lease := w.lease()
		if err := w.bare.Get(t.Context(), client.ObjectKeyFromObject(lease), lease); err != nil {
			t.Errorf("%s: unexpected error: %v; held by %q, %v", name, err, readLock(lease).holder, err)
		} else if got := (readLock(lease).holder == ""); got != test.free {
			t.Errorf(`%s: the lock is free: got %t, want %t; held by %q, %v`, name, got, test.free,
				readLock(lease).holder, err)
		}
	}
}

// OPS-183 (part): a lock that ran out and that somebody takes while it is given back is not free: two
// managers would act.
func TestALockThatIsTakenWhileItIsGivenBack(t *testing.T) {
	w := newWorld(t, "")
	takes := func(holder string) {
		if err := w.bare.Patch(t.Context(), w.lease(), client.RawPatch("application/merge-patch+json",
			[]byte(`{"spec":{"holderIdentity":"`+holder+`","leaseDurationSeconds":15}}`))); err != nil {
			t.Fatal(err)
		}
	}
	takes("gone_1")
	w.WithWatch = interceptor.NewClient(w.WithWatch, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			takes("other_2")
			err := c.Patch(ctx, o, p, options...)
			if _, known := err.(apierrors.APIStatus); err != nil && !known { // what a server says of a patch that cannot be carried out
				err = apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
			}
			return err
		}})
	c := w.command("x", io.Discard)
	watch := newWatcher([]place{{installation.Leases, lockName{namespace, installation.Lock}}})
	if _, err := c.see(t.Context(), watch); err != nil {
		t.Fatal(err)
	}
	watch.alone = true
	for p := range watch.since {
		watch.since[p] = time.Now().Add(-16 * time.Second)
	}
	if missing, err := c.see(t.Context(), watch); err == nil && len(missing) == 0 {
		t.Error("the lock counts as free, and other_2 holds it")
	}
}

// OPS-183 (part): where the lock of a manager is: kruise-system if no flag says otherwise, whatever a
// kustomization calls the namespace; the manager's own if the flag is empty; up to 1.4 a ConfigMap.
func TestWhereTheLockIs(t *testing.T) {
	for args, want := range map[string]string{"": "kruise-system foo", "--leader-election-namespace=": "foo", "--leader-election-namespace=bar": "bar foo"} {
		objects, err := installation.Parse([]byte(`{apiVersion: apps/v1, kind: Deployment, spec: {template: {spec: {containers: [{name: manager, args: ["` + args + `"]}]}}}}`))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i, p := range placesOf(objects[0], lockName{"foo", installation.Lock}, "foo") {
			if i%2 == 0 {
				got = append(got, p.namespace)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %v, want %s", args, got, want)
		}
	}
	config := objectOf(t, `{apiVersion: v1, kind: ConfigMap, metadata: {annotations: {control-plane.alpha.kubernetes.io/leader: '{"holderIdentity":"a_1","leaseDurationSeconds":15,"renewTime":"t"}'}}}`)
	if h := readLock(config); h != (held{"a_1", "t", 15}) {
		t.Errorf("lock: got %+v, want %+v", h, held{"a_1", "t", 15})
	}
}

func objectOf(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	objects, err := installation.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return objects[0]
}

// OPS-184 (part): a Deployment with another selector is made anew. A run that ended between its removal and
// the new one was told, when it was made again, that there is nothing to take over, while nobody served.
func TestAManagerThatWasRemovedAndNotMadeAnewYet(t *testing.T) {
	w := newWorld(t, "")
	w.manifests = withoutSchemas(t)
	folder := filepath.Join(t.TempDir(), "backup")
	dies := true
	invalid := apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "Deployment"}, installation.Manager, nil)
	inner := w.WithWatch
	w.WithWatch = interceptor.NewClient(inner, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			if of, ok := o.(interface{ GetKind() string }); !ok || of.GetKind() != "Deployment" {
				return c.Apply(ctx, o, options...)
			}
			switch live, err := installation.Get(ctx, w.bare, installation.Deployments, namespace, installation.Manager); {
			case err != nil:
				return err
			case live != nil && !installation.IsOurs(live):
				return invalid
			case dies:
				return errDied
			}
			return c.Apply(ctx, o, options...)
		}})
	if err := w.command(folder, io.Discard).run(t.Context()); !errors.Is(err, errDied) {
		t.Fatalf("takeover: got %v, want %v", err, errDied)
	}
	dies = false
	holds := func(holder string) {
		if err := w.bare.Patch(t.Context(), w.lease(), client.RawPatch(types.MergePatchType,
			[]byte(`{"spec":{"holderIdentity":"`+holder+`","leaseDurationSeconds":15}}`))); err != nil {
			t.Fatal(err)
		}
	}
	holds("somebody_1")
	w.renews = true
	c := w.command(folder, io.Discard)
	c.timeout = time.Second
	if err := c.run(t.Context()); err == nil {
		t.Error("while somebody holds the lock: takeover: got nil, want an error")
	} else if !strings.Contains(err.Error(), "somebody_1") {
		t.Errorf("while somebody holds the lock: takeover: got %q, want it to contain %q", err.Error(),
			"somebody_1")
	} else if !strings.Contains(err.Error(), "pods can be created meanwhile") {
		t.Errorf("while somebody holds the lock: takeover: got %q, want it to contain %q", err.Error(),
			"pods can be created meanwhile")
	}
	w.renews = false
	holds("")
	err := w.command(folder, io.Discard).run(t.Context())
	violated := slices.DeleteFunc(w.violated, func(s string) bool { return strings.HasSuffix(s, "not found") }) // the stand-ins miss the Deployment
	if err != nil {
		t.Errorf("unexpected error: %v\n%q", err, violated)
	} else if len(violated) > 0 {
		t.Errorf("violated: got %q, want none\n%v", violated, err)
	}
}

// OPS-184 (part), OPS-185 (part): the way back is made where the Deployment is not there any more: it was
// removed to be made anew, or by somebody.
func TestTheWayBackWithoutADeployment(t *testing.T) {
	w := newWorld(t, "")
	w.manifests = withoutSchemas(t)
	folder := filepath.Join(t.TempDir(), "backup")
	if err := w.command(folder, io.Discard).run(t.Context()); err != nil {
		t.Fatal(err)
	}
	var pods corev1.PodList
	if err := errors.Join(w.bare.Delete(t.Context(), w.deployment()), w.bare.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(namespace)),
		w.bare.List(t.Context(), &pods, client.InNamespace(namespace))); err != nil {
		t.Fatalf("unexpected error: %v\n%v", err, pods.Items)
	} else if len(pods.Items) > 0 {
		t.Fatalf("pods: got %v, want none\n%v", pods.Items, err)
	}
	c := w.command(folder, io.Discard)
	c.back = true
	err := c.run(t.Context())
	live, _ := installation.Get(t.Context(), w, installation.Deployments, namespace, installation.Manager)
	if err != nil {
		t.Errorf("unexpected error: %v\n%+v", err, live)
	} else if live == nil {
		t.Errorf("live: got nil, want a value\n%v", err)
	} else if installation.IsOurs(live) {
		t.Errorf("the object is ours: got true, want false\n%v\n%+v", err, live)
	}
}

// There is a probe for each kind, but for those of which each object asks for something.
func TestThereIsAProbeForEachKind(t *testing.T) {
	all, err := installation.Parse(probes)
	if err != nil {
		t.Fatal(err)
	}
	asks := []string{"ContainerRecreateRequest", "NodeImage", "NodePodProbe"}
	for i := range registry.Kinds {
		name := registry.Kinds[i].Name
		if found := installation.Find(all, name, probeName) != nil; found == slices.Contains(asks, name) {
			t.Errorf("%s has a probe: %v, want %v", name, found, !found)
		}
	}
}
