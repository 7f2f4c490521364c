package uninstall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/restart"
)

// look is the interval at which the pods of the managers are listed.
const look = time.Second

// page is the page size of lists.
const page = 500

// Stop scales down the managers and waits until their pods are gone, so that none of them adds again what
// Unhold removes.
func (g *Guard) Stop(ctx context.Context, manager client.ObjectKey) error {
	deployment := &appsv1.Deployment{}
	deployment.Namespace, deployment.Name = manager.Namespace, manager.Name
	err := g.Client.Patch(ctx, deployment,
		client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`)))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("ending the managers: %w", err)
	}

	tick := time.NewTicker(look)
	defer tick.Stop()

	for {
		var pods corev1.PodList
		if err := g.Client.List(ctx, &pods, client.InNamespace(manager.Namespace),
			client.MatchingLabels{"control-plane": "controller-manager"}); err != nil {
			return fmt.Errorf("waiting for the end of the managers: %w", err)
		}
		// Other workloads use the same label. Pods that have terminated, such as evicted ones, are not
		// removed as long as the Deployment exists.
		running := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
			return !strings.HasPrefix(pod.Name, manager.Name+"-") || pod.Status.Phase == corev1.PodFailed ||
				pod.Status.Phase == corev1.PodSucceeded
		})
		if len(running) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d managers did not end, the first is %s: %w", len(running),
				running[0].Name, ctx.Err())
		case <-tick.C:
		}
	}
}

// Unhold removes the finalizers of the manager, so that objects and their namespaces can be deleted. It also
// lets pods into service again that ContainerRecreateRequests keep out of service (CRR-083).
func (g *Guard) Unhold(ctx context.Context) error {
	return g.unholdSome(ctx, func(schema.GroupKind, string) bool { return true }, false)
}

// UnholdKinds removes the finalizers from objects of these kinds that are being deleted and that no
// controller handles because their feature gates are disabled. A pod that others keep out of service stays
// out of service. Finalizers of objects that AdvancedCronJobs create are left to the AdvancedCronJob
// controller.
func (g *Guard) UnholdKinds(ctx context.Context, kinds []schema.GroupKind) error {
	return g.unholdSome(ctx, func(kind schema.GroupKind, finalizer string) bool {
		return finalizer != pub.UnrecordedRun && slices.Contains(kinds, kind)
	}, true)
}

// mostTold is the maximum number of objects of a kind for which a failed change is reported.
const mostTold = 5

// unholdSome removes finalizers from objects of the kinds that which selects. If leaving is set, managers are
// still running and only objects that are being deleted are changed. A kind that cannot be read, or an object
// that cannot be changed, does not block the others.
func (g *Guard) unholdSome(
	ctx context.Context, which func(schema.GroupKind, string) bool, leaving bool,
) error {
	var errs []error
	for _, kind := range slices.SortedFunc(maps.Keys(g.Held), func(a, b schema.GroupKind) int {
		return strings.Compare(a.String(), b.String())
	}) {
		if finalizer := g.Held[kind]; which(kind, finalizer) {
			errs = append(errs, g.unholdKind(ctx, kind, finalizer, leaving)...)
		}
	}
	return errors.Join(errs...)
}

// unholdKind removes a finalizer from objects of a kind, in the first version that is served: definitions may have been
// replaced by older ones since the mapper asked for versions.
func (g *Guard) unholdKind(
	ctx context.Context, kind schema.GroupKind, finalizer string, leaving bool,
) (errs []error) {
	mappings, err := g.Client.RESTMapper().RESTMappings(kind)
	if meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return []error{fmt.Errorf("asking whether %s is served: %w", kind, err)}
	}
	for _, mapping := range mappings {
		if errs = g.unholdVersion(ctx, mapping.GroupVersionKind, finalizer, leaving); !apierrors.IsNotFound(errors.Join(errs...)) {
			return errs
		}
	}
	return nil
}

// unholdVersion is unholdKind for one version. It returns NotFound if that is not served.
func (g *Guard) unholdVersion(
	ctx context.Context, kind schema.GroupVersionKind, finalizer string, leaving bool,
) (errs []error) {
	unhold := func(ctx context.Context, object *unstructured.Unstructured) error {
		if leaving && object.GetDeletionTimestamp() == nil {
			return nil
		}
		return g.unhold(ctx, object, finalizer, leaving)
	}
	for next, more := "", true; more; more = next != "" {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := g.Client.List(ctx, list, client.Limit(page), client.Continue(next)); err != nil {
			return append(errs, fmt.Errorf("reading objects of kind %s: %w", kind.GroupKind(), err))
		}
		for i := range list.Items {
			if err := g.again(ctx, &list.Items[i], unhold); client.IgnoreNotFound(err) != nil &&
				len(errs) < mostTold {
				errs = append(errs, fmt.Errorf("%s %s/%s: %w", kind.GroupKind(), list.Items[i].GetNamespace(),
					list.Items[i].GetName(), err))
			}
		}
		next = list.GetContinue()
	}

	return errs
}

func (g *Guard) unhold(
	ctx context.Context, object *unstructured.Unstructured, finalizer string, shares bool,
) error {
	finalizers := object.GetFinalizers()
	if !slices.Contains(finalizers, finalizer) {
		return nil
	}

	if finalizer == pub.RecreateUnreadyAcquired {
		if err := g.serve(ctx, object, shares); err != nil {
			return err
		}
	}
	left := slices.DeleteFunc(slices.Clone(finalizers), func(name string) bool { return name == finalizer })
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"finalizers":      left,
		"resourceVersion": object.GetResourceVersion(),
	}})
	if err != nil {
		return fmt.Errorf("encoding finalizers: %w", err)
	}
	if err := g.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, body)); err != nil {
		return fmt.Errorf("taking off finalizer %s: %w", finalizer, err)
	}

	return nil
}

// serve sets the condition that lets the pod of a request into service. shares means that others may keep the
// pod out of service.
func (g *Guard) serve(ctx context.Context, request *unstructured.Unstructured, shares bool) error {
	name, _, _ := unstructured.NestedString(request.Object, "spec", "podName")
	pod := &corev1.Pod{}
	err := g.Client.Get(ctx, client.ObjectKey{Namespace: request.GetNamespace(), Name: name}, pod)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading pod %s: %w", name, err)
	}

	out := func(c corev1.PodCondition) bool {
		return c.Type == pub.KruisePodReady && c.Status == corev1.ConditionFalse
	}
	if !slices.ContainsFunc(pod.Status.Conditions, out) {
		return nil
	}
	if shares {
		patch, named := podpatch.Patch{}, &appsv1beta1.ContainerRecreateRequest{}
		named.Namespace, named.Name = request.GetNamespace(), request.GetName()
		readiness.Share(&patch, pod, nil, []readiness.Holder{restart.Holder(named)}, time.Now())
		if patch.Empty() {
			return nil
		}
		body, err := patch.JSON(pod)
		if err != nil {
			return fmt.Errorf("letting pod %s into service: %w", name, err)
		}
		if err := g.Client.Status().Patch(ctx, pod,
			client.RawPatch(types.StrategicMergePatchType, body)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("letting pod %s into service: %w", name, err)
		}
		return nil
	}

	patch := client.RawPatch(types.StrategicMergePatchType, []byte(
		`{"status":{"conditions":[{"type":"`+pub.KruisePodReady+`","status":"True","message":null}]}}`,
	))
	if err := g.Client.Status().Patch(ctx, pod, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("letting pod %s into service: %w", name, err)
	}

	return nil
}
