package takeover

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
	"github.com/afloat-project/afloat/internal/racetest"
)

// refusing are the webhook entries because of which no pod can be created in a namespace at this moment.
// Those of this project are asked about the pods that need them alone; strictly counts them, too.
func (w *world) refusing(namespace string, strictly bool) (names []string) {
	ctx := context.Background()
	var pods corev1.PodList
	var space corev1.Namespace
	if err := errors.Join(w.bare.List(ctx, &pods, client.InNamespace("kruise-system"), client.MatchingLabels{"control-plane": "controller-manager"}),
		client.IgnoreNotFound(w.bare.Get(ctx, client.ObjectKey{Name: namespace}, &space))); err != nil {
		return []string{err.Error()}
	}
	if len(pods.Items) > 0 {
		return nil
	}
	set := labels.Set{"kubernetes.io/metadata.name": namespace}
	for key, value := range space.Labels {
		set[key] = value
	}
	blocks := func(name string, policy *admissionv1.FailurePolicyType, selector *metav1.LabelSelector, conditions int, rules []admissionv1.RuleWithOperations) {
		matches, err := metav1.LabelSelectorAsSelector(selector)
		if selector == nil {
			matches = labels.Everything()
		}
		if policy != nil && *policy == admissionv1.Ignore || err != nil || !matches.Matches(set) || conditions > 0 && !strictly {
			return
		}
		for _, rule := range rules {
			if strings.Join(rule.Resources, " ") == "pods" && strings.Contains(strings.Join(append([]string{}, operations(rule)...), " "), "CREATE") {
				names = append(names, name)
			}
		}
	}
	var mutating admissionv1.MutatingWebhookConfiguration
	if w.bare.Get(ctx, client.ObjectKey{Name: installation.Mutating}, &mutating) == nil {
		for _, h := range mutating.Webhooks {
			blocks(h.Name, h.FailurePolicy, h.NamespaceSelector, len(h.MatchConditions), h.Rules)
		}
	}
	return names
}

func operations(rule admissionv1.RuleWithOperations) (all []string) {
	for _, operation := range rule.Operations {
		all = append(all, string(operation))
	}
	return all
}

// asManifests makes the installation what the manifests of the reference make: another label, and webhooks
// that go by its presence.
func (w *world) asManifests(t *testing.T) {
	t.Helper()
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := w.bare.Patch(t.Context(), space, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"control-plane":"controller-manager"}}}`)),
		client.FieldOwner("kubectl-client-side-apply")); err != nil {
		t.Fatal(err)
	}
	var configuration admissionv1.MutatingWebhookConfiguration
	if err := w.bare.Get(t.Context(), client.ObjectKey{Name: installation.Mutating}, &configuration); err != nil {
		t.Fatal(err)
	}
	for i := range configuration.Webhooks {
		if configuration.Webhooks[i].Name == "mpod.kb.io" {
			configuration.Webhooks[i].NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "control-plane", Operator: metav1.LabelSelectorOpDoesNotExist}}}
		}
	}
	if err := w.bare.Update(t.Context(), &configuration, client.FieldOwner("kubectl-client-side-apply")); err != nil {
		t.Fatal(err)
	}
}

// OPS-193: whatever happens there or back, pods can be created: the manager's own, which a webhook of its own
// would refuse without the label of its namespace, and those of everybody. The world looks after each write
// (violated).
func TestPodsCanBeCreatedThereAndBack(t *testing.T) {
	racetest.SkipAlone(t)
	brief := withoutSchemas(t)
	for _, manifests := range []bool{false, true} {
		w := newWorld(t, "")
		w.manifests = brief
		if manifests {
			w.asManifests(t)
		}
		label := func() string {
			var space corev1.Namespace
			if err := w.bare.Get(t.Context(), client.ObjectKey{Name: namespace}, &space); err != nil {
				t.Fatal(err)
			}
			return space.Labels["control-plane"]
		}
		before, was := w.state(), label()
		folder := filepath.Join(t.TempDir(), "backup")
		if err := w.command(folder, io.Discard).run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if now := label(); now != was {
			t.Errorf("there: label control-plane was %q and is %q", was, now)
		}
		for _, entry := range w.entries(t) {
			if name := installation.Text(entry, "name"); name == "mpod.kb.io" && entry["failurePolicy"] != "Fail" {
				t.Errorf("there: %s is %v", name, entry["failurePolicy"])
			}
		}
		c := w.command(folder, io.Discard)
		c.back = true
		if err := c.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if now := label(); now != was {
			t.Errorf("back: label control-plane was %q and is %q", was, now)
		}
		if different := differences(before, w.state()); len(different) > 0 {
			t.Errorf("differences from before: got %q, want none", different)
		}
		if len(w.violated) > 0 {
			t.Errorf("violations: got %q, want none", w.violated)
		}
	}
}

// entries are those of the mutating configuration.
func (w *world) entries(t *testing.T) []map[string]any {
	t.Helper()
	configuration, err := installation.Get(t.Context(), w.bare, installation.MutatingKind, "", installation.Mutating)
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	} else if configuration == nil {
		t.Fatalf("configuration: got nil, want a value\n%v", err)
	}
	return installation.Entries(configuration)
}

// OPS-193: a namespace that an earlier release of the plugin, or somebody else, has taken the label from gets
// it before the manager comes.
func TestALostLabelIsPutBackFirst(t *testing.T) {
	brief := withoutSchemas(t)
	w := newWorld(t, "")
	w.manifests = brief
	w.asManifests(t)
	folder := filepath.Join(t.TempDir(), "backup")
	if err := w.command(folder, io.Discard).run(t.Context()); err != nil {
		t.Fatal(err)
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := w.bare.Patch(t.Context(), space, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"control-plane":null}}}`))); err != nil {
		t.Fatal(err)
	}
	c := w.command(folder, io.Discard)
	c.back = true
	if err := c.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.bare.Get(t.Context(), client.ObjectKey{Name: namespace}, space); err != nil {
		t.Errorf("unexpected error: %v\n%v", err, space.Labels)
	} else if space.Labels["control-plane"] != "controller-manager" {
		t.Errorf("label control-plane of the namespace: got %q, want %q\n%v\n%v", space.Labels["control-plane"],
			"controller-manager",
			space.Labels, err)
	}
	if len(w.violated) > 0 {
		t.Errorf("violations: got %q, want none", w.violated)
	}
}

// OPS-193: a run that ends while no manager serves, because one does not start or because of Ctrl-C, leaves a
// cluster in which every pod can be created, and says so.
func TestARunThatFailsLeavesPodsThatCanBeCreated(t *testing.T) {
	racetest.SkipAlone(t)
	brief := withoutSchemas(t)
	for _, back := range []bool{false, true} {
		for name, interrupted := range map[string]bool{"the manager does not start": false, "Ctrl-C": true} {
			w := newWorld(t, "")
			w.manifests = brief
			w.asManifests(t)
			folder := filepath.Join(t.TempDir(), "backup")
			if back {
				if err := w.command(folder, io.Discard).run(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			w.stuck = true
			c := w.command(folder, io.Discard)
			c.back, c.timeout = back, 300*time.Millisecond
			ctx, cancel := context.WithCancel(t.Context())
			if interrupted {
				c.timeout = time.Minute
				w.whenStuck = cancel
			}
			err := c.run(ctx)
			cancel()
			want := "pods can be created meanwhile"
			if interrupted && err != nil && !strings.Contains(err.Error(), "interrupted while waiting for Deployment") {
				t.Errorf("%s, back %v: %v", name, back, err)
			}
			if err == nil {
				t.Errorf("error: got nil, want an error; %s, back %v: error %v, want %s", name, back, err, want)
			} else if !strings.Contains(err.Error(), want) {
				t.Errorf("error: got %q, want it to contain %q; %s, back %v: error %v, want %s", err.Error(), want, name,
					back, err, want)
			} else if strings.Contains(err.Error(), "waited 1m") {
				t.Errorf("error: got %q, want it not to contain %q; %s, back %v: error %v, want %s", err.Error(),
					"waited 1m", name, back, err, want)
			}
			for _, space := range []string{"shop", "default", namespace} {
				if names := w.refusing(space, true); len(names) > 0 {
					t.Errorf("%s, back %v: in namespace %s pods are refused by %v", name, back, space, names)
				}
			}
			if len(w.violated) > 0 {
				t.Errorf("violations: got %q, want none", w.violated)
			}
		}
	}
}

// OPS-180: whatever is answered to the probe but that a webhook of ours or theirs could not be called means
// that webhooks answer: a policy that refuses it, a webhook of others that knows no dry runs, one of others
// that does not answer. Neither there nor back waits for ever.
func TestOthersThatRefuseTheProbeStopNothing(t *testing.T) {
	racetest.SkipAlone(t)
	brief := withoutSchemas(t)
	for name, answer := range map[string]metav1.Status{
		"a policy":              {Code: 400, Message: `admission webhook "validate.kyverno.svc-fail" denied the request: disallow-default-namespace`},
		"a quota":               {Code: 403, Reason: metav1.StatusReasonForbidden, Message: "exceeded quota"},
		"no dry run":            {Code: 400, Reason: metav1.StatusReasonBadRequest, Message: `admission webhook "audit.example.com" does not support dry run`},
		"validation":            {Code: 422, Reason: metav1.StatusReasonInvalid, Message: "CloneSet is invalid"},
		"no namespace":          {Code: 404, Reason: metav1.StatusReasonNotFound, Message: `namespaces "default" not found`},
		"one of others is down": {Code: 500, Reason: metav1.StatusReasonInternalError, Message: `Internal error occurred: failed calling webhook "x.example.com": failed to call webhook: EOF`},
	} {
		w := newWorld(t, "")
		w.manifests = brief
		w.WithWatch = interceptor.NewClient(w.WithWatch, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
				if (&client.CreateOptions{}).ApplyOptions(options).DryRun != nil {
					status := answer
					status.Status = metav1.StatusFailure
					return &apierrors.StatusError{ErrStatus: status}
				}
				return c.Create(ctx, o, options...)
			}})
		folder := filepath.Join(t.TempDir(), "backup")
		for _, back := range []bool{false, true} {
			c := w.command(folder, io.Discard)
			c.back, c.timeout = back, 300*time.Millisecond
			if err := c.run(t.Context()); err != nil {
				t.Errorf("%s, back %v: %v", name, back, err)
			}
		}
	}
	w := newWorld(t, "")
	for _, answer := range []error{apierrors.NewInternalError(errors.New(`failed calling webhook "mcloneset.kb.io": EOF`)),
		apierrors.NewInternalError(errors.New(`conversion webhook for apps.kruise.io/v1, Kind=CloneSet failed: EOF`)), errors.New("connection refused")} {
		if missing, err := w.command("x", io.Discard).unanswered(t.Context(), answer); missing == "" && err == nil {
			t.Errorf("taken for an answer: %v", answer)
		}
	}
}

// OPS-183: controller-manager is the label that every operator made with kubebuilder gives its manager. Pods
// of another one in the namespace are not waited for; those of the manager are, also if their Deployment, or
// their ReplicaSet, is another one by now or gone.
func TestPodsOfAnotherOperatorInTheNamespace(t *testing.T) {
	w := newWorld(t, `---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: kruise-controller-manager-1, namespace: kruise-system, uid: r1, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: kruise-controller-manager, uid: former, controller: true}]}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: billing-2, namespace: kruise-system, uid: r2, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: billing, uid: b, controller: true}]}
`)
	workload, err := installation.Get(t.Context(), w.bare, installation.Deployments, namespace, installation.Manager)
	if err != nil {
		t.Fatal(err)
	}
	for owner, want := range map[string]bool{"": true, "ReplicaSet kruise-controller-manager-1": true, "ReplicaSet kruise-controller-manager-gone": true,
		"ReplicaSet billing-2": false, "ReplicaSet billing-controller-manager-7d9f": false, "StatefulSet kruise-controller-manager": false} {
		pod := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": namespace}}}
		if kind, name, has := strings.Cut(owner, " "); has {
			controller := true
			pod.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, Controller: &controller}})
		}
		if got, err := w.command("x", io.Discard).isOf(t.Context(), pod, workload); err != nil {
			t.Errorf("unexpected error: %v; pod of %q: %v, %v, want %v", err, owner, got, err, want)
		} else if got != want {
			t.Errorf(`the pod is of the workload: got %t, want %t; pod of %q: %v, %v, want %v`, got, want,
				owner, got, err, want)
		}
	}
}
