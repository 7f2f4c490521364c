package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/restart"
	"github.com/afloat-project/afloat/internal/kinds/containerrecreate"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Facts reads what is to be filled into requests for a pod from the API server: the pod and the labels of its
// node. Either is nil if it does not exist.
func Facts(
	ctx context.Context, live client.Reader, name types.NamespacedName,
) (*corev1.Pod, *metav1.PartialObjectMetadata, error) {
	pod := &corev1.Pod{}
	if err := live.Get(ctx, name, pod); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil, nil
		}
		return nil, nil, fmt.Errorf("reading Pod %s: %w", name.Name, err)
	}
	if pod.Spec.NodeName == "" {
		return pod, nil, nil
	}
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	if err := live.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return pod, nil, nil
		}
		return nil, nil, fmt.Errorf("reading the Node of Pod %s: %w", name.Name, err)
	}
	return pod, node, nil
}

// filler writes the facts about pods into requests that were admitted without. Every replica of the manager
// has one, as each has the webhook: a request shall not wait for a leader. All of them would write the same,
// and only the first write succeeds.
type filler struct{ *reconcile.API }

// tryAnotherReplica is the pause after the webhook of a manager of an earlier release refused what it does
// not know.
const tryAnotherReplica = time.Second

func (f *filler) setup(mgr ctrl.Manager, options reconcile.Options) error {
	return options.Complete("containerrecreaterequest-facts", f, ctrl.NewControllerManagedBy(mgr).
		For(&appsv1beta1.ContainerRecreateRequest{},
			builder.WithPredicates(predicate.NewPredicateFuncs(func(object client.Object) bool {
				request, ok := object.(*appsv1beta1.ContainerRecreateRequest)
				return ok && containerrecreate.Unfilled(request)
			}))))
}

// Reconcile implements the reconciler of the library.
func (f *filler) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	request := &appsv1beta1.ContainerRecreateRequest{}
	if err := f.Client.Get(ctx, key.NamespacedName, request); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !containerrecreate.Unfilled(request) {
		return ctrl.Result{}, nil
	}
	switch err := f.fill(ctx, request); {
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: reconcile.RetrySoon}, nil
	case apierrors.IsForbidden(err):
		log.FromContext(ctx).Info("The facts about the pod cannot be written yet", "error", err.Error())
		return ctrl.Result{RequeueAfter: tryAnotherReplica}, nil
	default:
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
}

func (f *filler) fill(ctx context.Context, request *appsv1beta1.ContainerRecreateRequest) error {
	pod, node, err := Facts(ctx, f.Live,
		types.NamespacedName{Namespace: request.Namespace, Name: request.Spec.PodName})
	if err != nil {
		return err
	}
	if pod == nil || pod.UID != restart.PodUID(request) {
		return nil // the leader completes it
	}
	var labels map[string]string
	if node != nil {
		labels = node.Labels
	}
	_, patch, refusal := containerrecreate.Fill(request, pod, labels)
	if refusal != nil { // the pod has changed since the request was admitted
		status := map[string]any{"status": containerrecreate.Completion(request, refusal.Message, f.Now())}
		_, err = reconcile.Merge(ctx, f.For(request.UID), request, nil, status, "status")
		return err
	}
	guards := []jsonpatch.Operation{
		jsonpatch.NewOperation("replace", "/metadata/uid", request.UID),
		jsonpatch.NewOperation("replace", "/metadata/resourceVersion", request.ResourceVersion),
	}
	body, err := json.Marshal(append(guards, patch...))
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	_, err = reconcile.Patch(ctx, f.For(request.UID), request, body, "")
	return err
}
