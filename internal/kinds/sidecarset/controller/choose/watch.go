package choose

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/inject"
	"github.com/afloat-project/afloat/internal/platform/matchconditions"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/platform/watches"
)

// +kubebuilder:rbac:groups=apps.kruise.io,resources=sidecarsets,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=get;list;watch

// Watch is an Index that follows the cluster, with its Chooser and its Scope. There is one on every replica.
type Watch struct {
	*Selector
	*matchconditions.Follower[*appsv1beta1.SidecarSet]
	*Scope

	revisions cache.Cache
}

// follow returns the follower that maintains the index.
func follow(index *Index, live client.Reader) *matchconditions.Follower[*appsv1beta1.SidecarSet] {
	return matchconditions.NewFollower(live, matchconditions.Kind[*appsv1beta1.SidecarSet]{
		Object:  &appsv1beta1.SidecarSet{},
		List:    &appsv1beta1.SidecarSetList{},
		Cluster: true,
		Set:     index.Set,
		Delete:  func(set *appsv1beta1.SidecarSet) { index.Delete(set.Name) },
	})
}

// NewWatch returns a Watch for SidecarSets whose ControllerRevisions are in the given namespace. It starts to
// follow them when Follow is called. newInformer creates the informers of its own cache; nil means those of
// the library.
func NewWatch(mgr manager.Manager, namespace string, newInformer watches.NewInformer) (*Watch, error) {
	ofSidecarSets, err := labels.NewRequirement(pub.SidecarSetName, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("selecting revisions: %w", err)
	}

	// The manager's cache cannot be used, because it may hold revisions of all workloads, or none on a
	// replica that is not the leader.
	revisions, err := cache.New(mgr.GetConfig(),
		cache.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
			NewInformer: newInformer,
			ByObject: map[client.Object]cache.ByObject{
				&appsv1.ControllerRevision{}: {Namespaces: map[string]cache.Config{namespace: {}},
					Label: labels.NewSelector().Add(*ofSidecarSets), Transform: slim.Metadata}}})
	if err != nil {
		return nil, fmt.Errorf("making the cache of revisions: %w", err)
	}

	index := &Index{}
	return &Watch{Scope: NewScope(index, time.Now), Follower: follow(index, mgr.GetAPIReader()),
		revisions: revisions,
		Selector: NewChooser(index, &namespaces{mgr.GetCache(), mgr.GetAPIReader()},
			&storedRevisions{namespace, revisions, mgr.GetAPIReader()}, nil)}, nil
}

// Follow starts to follow SidecarSets, the names and labels of namespaces, and the ControllerRevisions of
// SidecarSets, once the manager runs.
func (w *Watch) Follow(ctx context.Context, mgr manager.Manager) error {
	if err := mgr.Add(matchconditions.Everywhere(w.revisions.Start)); err != nil {
		return fmt.Errorf("adding the cache of revisions: %w", err)
	}
	if err := w.Follower.Follow(ctx, mgr); err != nil {
		return err
	}

	// Start the informers now, so that their objects are there when the first pod is admitted.
	for _, object := range []struct {
		from cache.Cache
		kind client.Object
	}{{mgr.GetCache(), namespaceKind()}, {w.revisions, &appsv1.ControllerRevision{}}} {
		if _, err := object.from.GetInformer(ctx, object.kind, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watching %T: %w", object.kind, err)
		}
	}

	return nil
}

// Choose is Chooser.Choose, but waits until all SidecarSets are known. An earlier pod would miss some.
func (w *Watch) Choose(ctx context.Context, pod *corev1.Pod, namespace string) ([]*inject.Template, error) {
	if err := w.Wait(ctx); err != nil {
		return nil, err
	}
	return w.Selector.Choose(ctx, pod, namespace)
}

func namespaceKind() *metav1.PartialObjectMetadata {
	kind := &metav1.PartialObjectMetadata{}
	kind.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return kind
}

// namespaces reads metadata from the cache, or from the API server if the cache does not have it.
type namespaces struct{ cached, live client.Reader }

func (n *namespaces) Labels(ctx context.Context, name string) (map[string]string, error) {
	found := namespaceKind()
	err := n.cached.Get(ctx, types.NamespacedName{Name: name}, found)
	if err != nil {
		err = n.live.Get(ctx, types.NamespacedName{Name: name}, found)
	}
	return found.Labels, err
}

// storedRevisions reads from the cache, or from the API server if the cache has nothing.
type storedRevisions struct {
	namespace    string
	cached, live client.Reader
}

func (s *storedRevisions) Get(ctx context.Context, name string) (*appsv1.ControllerRevision, error) {
	revision, key := &appsv1.ControllerRevision{}, types.NamespacedName{Namespace: s.namespace, Name: name}
	err := s.cached.Get(ctx, key, revision)
	if err != nil {
		err = s.live.Get(ctx, key, revision)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return revision, err
}

func (s *storedRevisions) OfVersion(
	ctx context.Context, sidecarSet, version string,
) ([]*appsv1.ControllerRevision, error) {
	for i, from := range []client.Reader{s.cached, s.live} {
		var list appsv1.ControllerRevisionList
		err := from.List(ctx, &list, client.InNamespace(s.namespace),
			client.MatchingLabels{pub.SidecarSetName: sidecarSet, pub.SidecarSetCustomVersion: version})
		if err != nil && i > 0 {
			return nil, err
		}
		if len(list.Items) > 0 {
			all := make([]*appsv1.ControllerRevision, len(list.Items))
			for i := range list.Items {
				all[i] = &list.Items[i]
			}
			return all, nil
		}
	}

	return nil, nil
}
