package reconcile

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// Request returns a request to reconcile the object of that name.
func Request(namespace, name string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// OwnedBy returns a function that finds the controlling owner of an object if it is a workload of the given
// kind in our group, in any version (CS-043, ASTS-072, ADS-040). The handler of controller-runtime would look
// up each event's owner in the REST mapper and the cluster; this function does not.
func OwnedBy(kind string) func(context.Context, client.Object) []ctrl.Request {
	return func(_ context.Context, object client.Object) []ctrl.Request {
		owner := metav1.GetControllerOfNoCopy(object)
		if owner == nil || owner.Kind != kind ||
			!strings.HasPrefix(owner.APIVersion, appsv1beta1.GroupVersion.Group+"/") {
			return nil
		}
		return []ctrl.Request{Request(object.GetNamespace(), owner.Name)}
	}
}

// Due returns requests for those objects of a list in the caches for which due returns true.
func Due[T client.Object](
	ctx context.Context, a *API, list client.ObjectList, due func(T) bool, options ...client.ListOption,
) ([]ctrl.Request, error) {
	if err := a.Client.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, err
	}
	var requests []ctrl.Request
	err := meta.EachListItem(list, func(item runtime.Object) error {
		if object, ok := item.(T); ok && due(object) {
			requests = append(requests, Request(object.GetNamespace(), object.GetName()))
		}
		return nil
	})
	return requests, err
}
