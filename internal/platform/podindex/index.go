// Package podindex finds cached pods by their controller, by the SidecarSets they were injected with, by the
// EphemeralJobs that treated them, by node and by namespace. The library's lists copy every pod that they
// find, which was a sixth of all memory that the rollout of a large set allocated. This package returns the
// caches' own objects, which must not be changed.
package podindex

import (
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/afloat-project/afloat/api/pub"
)

const (
	byController = "controller"
	bySidecarSet = "sidecarset"
	byJob        = "ephemeraljob"
	byNode       = "node"
)

// controlled returns the value of the index for pods of a namespace with that controller, "" for none. The
// namespace is part of it, because users can give their pods the UID of a controller in another namespace.
func controlled(namespace string, by types.UID) string { return namespace + "/" + string(by) }

// Source holds pods with the indexes of [Indexers]: the store of an informer, or that of a test.
type Source interface {
	ByIndex(index, value string) ([]any, error)
	List() []any
}

// Index finds pods in its sources, which are those of the informers that it made. The zero value is ready to
// use.
type Index struct {
	mu      sync.RWMutex
	sources []Source
}

// Add adds a source.
func (x *Index) Add(source Source) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sources = append(x.sources, source)
}

// Indexers returns the indexes that a source needs.
func Indexers() toolscache.Indexers {
	return toolscache.Indexers{
		byController:              controllerOf,
		bySidecarSet:              sidecarSetsOf,
		byJob:                     jobsOf,
		byNode:                    nodeOf,
		toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc,
	}
}

// NewInformer makes an informer, with the indexes if it is one of pods. It is passed as NewInformer to the
// manager's cache.
func (x *Index) NewInformer(
	source toolscache.ListerWatcher, example runtime.Object, resync time.Duration,
	indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	if _, pods := example.(*corev1.Pod); !pods {
		return toolscache.NewSharedIndexInformer(source, example, resync, indexers)
	}
	indexed := Indexers()
	for name, index := range indexers {
		indexed[name] = index
	}
	informer := toolscache.NewSharedIndexInformer(source, example, resync, indexed)
	x.Add(informer.GetIndexer())
	return informer
}

func controllerOf(object any) ([]string, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil, nil
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return []string{controlled(pod.Namespace, owner.UID)}, nil
	}
	return []string{controlled(pod.Namespace, "")}, nil
}

// sidecarSetsOf returns the names in the list that the pod webhook writes (SS-182).
func sidecarSetsOf(object any) ([]string, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok || pod.Annotations[pub.SidecarSetInjectedList] == "" {
		return nil, nil
	}
	return pub.InjectedSidecarSets(pod.Annotations[pub.SidecarSetInjectedList]), nil
}

// jobsOf returns the EphemeralJobs that added containers, with the namespace as for controllers (EJ-037).
func jobsOf(object any) (values []string, err error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil, nil
	}

	for i := range pod.Spec.EphemeralContainers {
		env := pod.Spec.EphemeralContainers[i].Env
		for j := range env {
			if env[j].Name == pub.EphemeralJobEnv && env[j].Value != "" {
				values = append(values, controlled(pod.Namespace, types.UID(env[j].Value)))
			}
		}
	}

	slices.Sort(values)
	return slices.Compact(values), nil
}

func nodeOf(object any) ([]string, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return nil, nil
	}
	return []string{pod.Spec.NodeName}, nil
}

// OnNode returns the pods on a node (PPM-051).
func (x *Index) OnNode(node string) ([]*corev1.Pod, error) { return x.find(byNode, node) }

// InNamespace returns the pods of a namespace.
func (x *Index) InNamespace(namespace string) ([]*corev1.Pod, error) {
	return x.find(toolscache.NamespaceIndex, namespace)
}

// TreatedBy returns the pods of a namespace that have ephemeral containers of the EphemeralJob with that UID.
func (x *Index) TreatedBy(namespace string, job types.UID) ([]*corev1.Pod, error) {
	return x.find(byJob, controlled(namespace, job))
}

// ControlledBy returns the pods of a namespace whose controller has that UID.
func (x *Index) ControlledBy(namespace string, uid types.UID) ([]*corev1.Pod, error) {
	return x.find(byController, controlled(namespace, uid))
}

// InjectedBy returns the pods of all namespaces that list the SidecarSet as injected (SS-200).
func (x *Index) InjectedBy(sidecarSet string) ([]*corev1.Pod, error) {
	return x.find(bySidecarSet, sidecarSet)
}

// All calls do for every pod that is cached, until it returns false.
func (x *Index) All(do func(*corev1.Pod) bool) {
	x.mu.RLock()
	sources := slices.Clone(x.sources)
	x.mu.RUnlock()
	for _, source := range sources {
		for _, object := range source.List() {
			if pod, ok := object.(*corev1.Pod); ok && !do(pod) {
				return
			}
		}
	}
}

// Uncontrolled returns the pods of a namespace that have no controller.
func (x *Index) Uncontrolled(namespace string) ([]*corev1.Pod, error) {
	return x.find(byController, controlled(namespace, ""))
}

func (x *Index) find(index, value string) ([]*corev1.Pod, error) {
	x.mu.RLock()
	defer x.mu.RUnlock()

	var pods []*corev1.Pod
	for _, source := range x.sources {
		found, err := source.ByIndex(index, value)
		if err != nil {
			return nil, fmt.Errorf("finding pods by %s: %w", index, err)
		}
		for _, object := range found {
			if pod, ok := object.(*corev1.Pod); ok {
				pods = append(pods, pod)
			}
		}
	}

	return pods, nil
}
