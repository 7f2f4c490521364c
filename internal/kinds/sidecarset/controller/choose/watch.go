package choose

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
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

// Watch is an Index that follows the cluster, with the Chooser and the Scope of it, on every replica.
type Watch struct {
	*Chooser
	Scope *Scope

	sets      *matchconditions.Follower[*appsv1beta1.SidecarSet]
	revisions cache.Cache
	live      client.Reader
	together  matchconditions.Together[string, struct{}]
}

// follow returns what keeps the index.
func follow(index *Index) *matchconditions.Follower[*appsv1beta1.SidecarSet] {
	return matchconditions.NewFollower(index.Set,
		func(set *appsv1beta1.SidecarSet) { index.Delete(set.Name) },
		func(old, set *appsv1beta1.SidecarSet) bool { return old.Generation != set.Generation })
}

// NewWatch returns what follows SidecarSets whose ControllerRevisions are in the install namespace. It does
// so from Follow on. newInformer makes the informers of its own cache; nil means the library's.
func NewWatch(mgr manager.Manager, namespace string, newInformer watches.NewInformer) (*Watch, error) {
	ofSidecarSets, err := labels.NewRequirement(pub.SidecarSetName, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("selecting revisions: %w", err)
	}

	// A cache of its own: that of the manager may hold revisions of all workloads, or none on a replica that
	// does not lead.
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
	return &Watch{Scope: NewScope(index, time.Now), sets: follow(index), revisions: revisions,
		live: mgr.GetAPIReader(), together: matchconditions.Together[string, struct{}]{Limit: readingTime},
		Chooser: NewChooser(index, &namespaces{mgr.GetCache(), mgr.GetAPIReader()},
			&storedRevisions{namespace, revisions, mgr.GetAPIReader()}, nil)}, nil
}

// Follow starts to follow SidecarSets, the names and labels of namespaces, and the ControllerRevisions of
// SidecarSets, once the manager runs.
func (w *Watch) Follow(ctx context.Context, mgr manager.Manager) error {
	if err := mgr.Add(matchconditions.Everywhere(w.revisions.Start)); err != nil {
		return fmt.Errorf("adding the cache of revisions: %w", err)
	}
	if err := w.sets.Follow(ctx, mgr, &appsv1beta1.SidecarSet{}); err != nil {
		return err
	}

	for _, object := range []struct {
		from cache.Cache
		kind client.Object
		// so that they are there when the first pod asks
	}{{mgr.GetCache(), namespaceKind()}, {w.revisions, &appsv1.ControllerRevision{}}} {
		if _, err := object.from.GetInformer(ctx, object.kind, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watching %T: %w", object.kind, err)
		}
	}

	return nil
}

// Absent says that the kind is not served: pods need not wait for SidecarSets to be known. Follow is called
// when it is.
func (w *Watch) Absent() { w.sets.Absent() }

// Changed has a value when the scope may have changed.
func (w *Watch) Changed() <-chan struct{} { return w.sets.Changed() }

// readingTime is how long a pod may wait for SidecarSets to be read.
const readingTime = 5 * time.Second

// Learn reads all SidecarSets from the API server: one that was admitted a moment ago may not have reached
// the cache of this replica. Pods that come together share a reading.
func (w *Watch) Learn(ctx context.Context, _ string) error {
	_, err := w.together.Do(ctx, "", func(ctx context.Context) (none struct{}, err error) {
		var list appsv1beta1.SidecarSetList
		if err := w.live.List(ctx, &list); err != nil && !meta.IsNoMatchError(err) &&
			!apierrors.IsNotFound(err) {
			return none, fmt.Errorf("reading SidecarSets: %w", err)
		}
		for i := range list.Items {
			w.sets.Learn(&list.Items[i])
		}
		return none, nil
	})
	return err
}

// Synced tells whether all SidecarSets are known that there were at the start.
func (w *Watch) Synced() bool { return w.sets.Synced() }

// Choose is Chooser.Choose, once all SidecarSets are known: a pod that came before would do without.
func (w *Watch) Choose(ctx context.Context, pod *corev1.Pod, namespace string) ([]*inject.Template, error) {
	if err := w.sets.Wait(ctx); err != nil {
		return nil, fmt.Errorf("SidecarSets: %w", err)
	}
	return w.Chooser.Choose(ctx, pod, namespace)
}

func namespaceKind() *metav1.PartialObjectMetadata {
	kind := &metav1.PartialObjectMetadata{}
	kind.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return kind
}

// namespaces reads metadata from the cache, and live what is not there.
type namespaces struct{ cached, live client.Reader }

func (n *namespaces) Labels(ctx context.Context, name string) (map[string]string, error) {
	found := namespaceKind()
	err := n.cached.Get(ctx, types.NamespacedName{Name: name}, found)
	if err != nil {
		err = n.live.Get(ctx, types.NamespacedName{Name: name}, found)
	}
	return found.Labels, err
}

// storedRevisions reads from the cache, and live what is not there.
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
