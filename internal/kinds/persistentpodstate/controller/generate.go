package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/persistentpodstate"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// +kubebuilder:rbac:groups=apps.kruise.io,resources=persistentpodstates,verbs=create;patch;delete

// Generator creates and updates the PersistentPodStates that annotations of workloads ask for (PPS-070). A
// request is for all workloads of a name, whatever their kind, and for the PersistentPodState of that name.
// Its API remembers no own writes: a plan from a stale cache ends in a conflict.
type Generator struct {
	*Reconciler
	// told holds the last events about each workload.
	mu   sync.Mutex
	told map[types.UID]*reconcile.News
}

// Reconcile implements reconcile.Reconciler.
func (g *Generator) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var after time.Duration
	var failed error
	for _, kind := range g.Workloads.All() {
		of := persistentpodstate.Reference{GroupKind: kind, Name: request.Name}
		again, err := g.generate(ctx, request.Namespace, of)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s %s: %w", kind, request, err))
		} else if again > 0 {
			reconcile.MinRequeue(&after, again)
		}
	}

	return ctrl.Result{RequeueAfter: after}, failed
}

// generate creates, updates or deletes the PersistentPodState of one workload.
func (g *Generator) generate(
	ctx context.Context, namespace string, of persistentpodstate.Reference,
) (again time.Duration, err error) {
	workload, err := g.Workloads.Read(ctx, namespace, of, false)
	if err != nil || workload == nil {
		if apierrors.IsForbidden(err) || errors.Is(err, errUnknown) {
			return 0, nil // the watch reports it, and requests another pass when that changes
		}
		return 0, err
	}

	asked, err := g.read(ctx, namespace, workload)
	if err != nil {
		return 0, err
	}

	plan := persistentpodstate.Generate(asked)
	g.tellOf(namespace, workload, plan)
	if plan.Create == nil && plan.Update == nil && !plan.Empty && !plan.Delete {
		return 0, nil
	}

	// The cache may show an earlier workload of the same name, for which nothing must be generated.
	now, err := g.Workloads.Read(ctx, namespace, of, true)
	if err != nil {
		return 0, err
	}

	if now == nil || now.UID != workload.UID || now.Terminating ||
		!persistentpodstate.SameAsked(now.Annotations, workload.Annotations) {
		return reconcile.RetryAfter, nil
	}

	if plan.Empty {
		if err = g.undecided(ctx, namespace, workload, asked.Object); reconcile.IsStalePlan(err) {
			return reconcile.RetrySoon, nil
		} else if err != nil {
			return 0, err
		}
	}
	err = g.write(ctx, namespace, asked.Object, plan, workload.UID)
	switch {
	case reconcile.IsStalePlan(err) || apierrors.IsAlreadyExists(err):
		return reconcile.RetrySoon, nil
	case reconcile.IsNamespaceTerminating(err):
		return 0, nil
	case reconcile.Refused(err): // for example by a quota
		plan.Conflict = "what the annotations ask for was refused: " + err.Error()
		g.tellOf(namespace, workload, plan)
	}

	return 0, err
}

// read reads the input of the plan.
func (g *Generator) read(
	ctx context.Context, namespace string, workload *persistentpodstate.Workload,
) (*persistentpodstate.Asked, error) {
	asked := &persistentpodstate.Asked{Workload: workload}
	object := &appsv1beta1.PersistentPodState{}
	err := g.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: workload.Name}, object,
		client.UnsafeDisableDeepCopy)
	switch {
	case err == nil:
		asked.Object = object
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading PersistentPodState: %w", err)
	}

	if !persistentpodstate.Asks(workload.Annotations) {
		return asked, nil
	}

	states, err := g.referring(ctx, namespace, workload.Reference)
	if err != nil {
		return nil, err
	}

	for _, state := range states {
		if state.Name != workload.Name && state.DeletionTimestamp == nil {
			asked.Others = append(asked.Others, state)
		}
	}

	if asked.Object == nil {
		return asked, nil
	}

	if of, bereft := persistentpodstate.Bereft(asked.Object); bereft && of != workload.Reference {
		former, err := g.Workloads.Read(ctx, namespace, of, true)
		if err != nil && !errors.Is(err, errUnknown) && !apierrors.IsForbidden(err) {
			return nil, err
		}
		asked.Gone = err == nil && former == nil
	}

	if !metav1.IsControlledBy(asked.Object, &metav1.ObjectMeta{UID: workload.UID}) {
		asked.Kept, err = g.kept(namespace, workload, asked.Object)
	}

	return asked, err
}

// kept reports whether pods of an earlier workload belong to this one, or may be adopted by it.
func (g *Generator) kept(
	namespace string, workload *persistentpodstate.Workload, state *appsv1beta1.PersistentPodState,
) (bool, error) {
	own, err := g.Pods.ControlledBy(namespace, workload.UID)
	if err != nil {
		return false, fmt.Errorf("finding the pods of %s %s: %w", workload.Kind, workload.Name, err)
	}

	orphans, err := g.Pods.Uncontrolled(namespace)
	if err != nil {
		return false, fmt.Errorf("finding pods without a controller: %w", err)
	}

	// Only what the workload has made itself may be younger. Times of API servers are compared only where they must be.
	own = slices.DeleteFunc(slices.Clone(own), func(pod *corev1.Pod) bool { return !pod.CreationTimestamp.Time.Before(workload.Created) })
	return slices.ContainsFunc(slices.Concat(own, orphans), func(pod *corev1.Pod) bool {
		_, entry := state.Status.PodStates[pod.Name]
		return entry && readiness.Active(pod)
	}), nil
}

// undecided makes sure that no pod of an earlier workload may still belong to this one, before its place is forgotten. It returns
// [reconcile.ErrStalePlan] if the API server has one that the caches do not show yet as a pod without a controller, or that the
// garbage collector has neither released nor deleted.
func (g *Generator) undecided(
	ctx context.Context, namespace string, workload *persistentpodstate.Workload, state *appsv1beta1.PersistentPodState,
) error {
	active := client.ListOptions{Raw: &metav1.ListOptions{FieldSelector: "status.phase!=Succeeded,status.phase!=Failed"}}
	err := reconcile.EachMetadata(ctx, g.Live, corev1.SchemeGroupVersion.WithKind("Pod"), func(pod *metav1.PartialObjectMetadata) error {
		controller := metav1.GetControllerOfNoCopy(pod)
		if _, entry := state.Status.PodStates[pod.Name]; entry && pod.DeletionTimestamp == nil && (controller == nil ||
			controller.UID != workload.UID && controller.Kind == workload.Kind && controller.Name == workload.Name) {
			return reconcile.ErrStalePlan
		}
		return nil
	}, &active, client.InNamespace(namespace))
	if err != nil {
		return fmt.Errorf("looking for pods that an earlier %s %s left: %w", workload.Kind, workload.Name, err)
	}
	return nil
}

// write carries out the plan.
func (g *Generator) write(
	ctx context.Context, namespace string, object *appsv1beta1.PersistentPodState,
	plan persistentpodstate.Generation, owner types.UID,
) error {
	w := g.For(owner)
	switch {
	case plan.Create != nil:
		state := plan.Create.DeepCopy()
		state.Namespace = namespace
		if err := w.CreateTyped(ctx, state); err != nil {
			return fmt.Errorf("creating PersistentPodState %s: %w", state.Name, err)
		}
		return nil
	case plan.Delete:
		if err := w.Delete(ctx, object); err != nil {
			return fmt.Errorf("deleting PersistentPodState %s: %w", object.Name, err)
		}
		return nil
	}

	var err error
	if plan.Empty {
		if object, err = reconcile.Merge(ctx, w, object, nil,
			map[string]any{"status": map[string]any{"podStates": nil}}, "status"); err != nil {
			return reconcile.StaleIfNotFound(fmt.Errorf("emptying PersistentPodState: %w", err))
		}
	}

	if plan.Update == nil {
		return nil
	}

	spec := plan.Update.Spec
	_, err = reconcile.Merge(ctx, w, object,
		map[string]any{
			"ownerReferences": plan.Update.OwnerReferences,
			"annotations":     plan.Update.Annotations,
		},
		map[string]any{
			"spec": map[string]any{
				"requiredPersistentTopology":        spec.RequiredPersistentTopology,
				"preferredPersistentTopology":       nilIfEmpty(spec.PreferredPersistentTopology),
				"persistentPodAnnotations":          nilIfEmpty(spec.PersistentPodAnnotations),
				"persistentPodStateRetentionPolicy": policyOrNil(spec.PersistentPodStateRetentionPolicy),
			},
		}, "")
	if err != nil {
		return reconcile.StaleIfNotFound(fmt.Errorf("writing PersistentPodState: %w", err))
	}

	return nil
}

func nilIfEmpty[T any](list []T) any {
	if len(list) == 0 {
		return nil
	}
	return list
}

func policyOrNil(policy appsv1beta1.PersistentPodStateRetentionPolicyType) any {
	if policy == "" {
		return nil
	}
	return policy
}

// tellOf records an event about a workload for which nothing is generated, once until the reason changes.
func (g *Generator) tellOf(
	namespace string, workload *persistentpodstate.Workload, plan persistentpodstate.Generation,
) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if plan.Conflict == "" && plan.Invalid == "" {
		delete(g.told, workload.UID)
		return
	}

	if g.told == nil || len(g.told) > mostTold { // drop workloads that are gone
		g.told = map[types.UID]*reconcile.News{}
	}
	if g.told[workload.UID] == nil {
		g.told[workload.UID] = &reconcile.News{}
	}

	about := &unstructured.Unstructured{}
	about.SetAPIVersion(workload.APIVersion)
	about.SetKind(workload.Kind)
	about.SetNamespace(namespace)
	about.SetName(workload.Name)
	about.SetUID(workload.UID)

	for reason, text := range map[string]string{
		"PersistentPodStateConflict": plan.Conflict,
		"PersistentPodStateInvalid":  plan.Invalid,
	} {
		if g.told[workload.UID].Is(reason, text) {
			g.Events.Event(about, corev1.EventTypeWarning, reason, text)
		}
	}
}

// mostTold is the maximum number of workloads whose last events are remembered.
const mostTold = 10000
