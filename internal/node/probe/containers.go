package probe

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/node/runtime"
)

// Lifetimes of what is known of a pod, unless there is evidence that it has changed.
const (
	listed = 10 * time.Second
	// asked is the lifetime of a pod's address that was read from the API server, where pods are not watched.
	asked = time.Minute
)

// Runtimes provides access to the container runtimes of the node.
type Runtimes interface {
	// Containers lists the containers of a pod.
	Containers(ctx context.Context, podUID string) ([]runtime.Container, error)
	// Status inspects a container.
	Status(ctx context.Context, id string) (runtime.Status, error)
}

// containers caches the containers of pods, so that an attempt need not query the runtime.
type containers struct {
	runtimes Runtimes
	// pods reads pods from the cache of the node if they are watched, or else from the API server.
	pods    client.Reader
	watched bool
	now     func() time.Time
	// listed is the lifetime of a list of containers.
	listed time.Duration

	mu   sync.Mutex
	pod  map[types.UID]*known
	each map[types.UID]*sync.Mutex // serializes the queries of all probes of a pod
}

// known holds what is known of a pod.
type known struct {
	list []runtime.Container
	at   time.Time
	// seen holds the container IDs of the pod's status for which the runtime was queried again.
	seen map[string]string
	// address is the address of the pod as of read. It is empty if it is not known.
	address string
	read    time.Time
}

func newContainers(runtimes Runtimes, pods client.Reader, watched bool, now func() time.Time) *containers {
	return &containers{
		runtimes: runtimes,
		pods:     pods,
		watched:  watched,
		now:      now,
		listed:   listed,
		pod:      map[types.UID]*known{},
		each:     map[types.UID]*sync.Mutex{},
	}
}

// of returns what is known of a pod, locked, and a function to unlock it.
func (c *containers) of(pod types.UID) (*known, func()) {
	c.mu.Lock()
	k, lock := c.pod[pod], c.each[pod]
	if k == nil {
		k, lock = &known{seen: map[string]string{}}, &sync.Mutex{}
		c.pod[pod], c.each[pod] = k, lock
	}
	c.mu.Unlock()
	lock.Lock()
	return k, lock.Unlock
}

// forget drops what is known of pods that no longer have probes.
func (c *containers) forget(keep func(types.UID) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for pod := range c.pod {
		if !keep(pod) {
			delete(c.pod, pod)
			delete(c.each, pod)
		}
	}
}

// facts are the facts that an attempt depends on.
type facts struct {
	Met
	// reachable reports whether the address in the definition belongs to this pod. Nothing is sent to any
	// other address, whatever a NodePodProbe contains.
	reachable bool
}

// meet returns the current container of a definition. If anew is set, it queries the runtime in any case.
func (c *containers) meet(
	ctx context.Context, d *Definition, knows func(id string) bool, anew bool,
) (facts, error) {
	k, unlock := c.of(d.Pod)
	defer unlock()

	pod, err := c.podOf(ctx, d, k, anew)
	if err != nil {
		return facts{}, err
	}

	var shown *corev1.ContainerStatus
	if pod != nil {
		shown = statusOf(pod, d.Container)
		k.address, k.read = pod.Status.PodIP, c.now()
	}
	hint := shown != nil && shown.ContainerID != "" && k.seen[d.Container] != shown.ContainerID
	if age := c.now().Sub(k.at); anew || hint || age >= c.listed || age < 0 {
		list, err := c.runtimes.Containers(ctx, string(d.Pod))
		if err != nil {
			return facts{}, fmt.Errorf("listing the containers of the pod: %w", err)
		}
		for i := range list {
			list[i].Annotations = nil // users choose how large they are
		}
		k.list, k.at = list, c.now()
		if hint {
			k.seen[d.Container] = shown.ContainerID
		}
	}

	f := facts{reachable: d.IP != "" && k.address == d.IP}
	newest := runtime.Newest(k.list, d.Container)
	if newest == nil || newest.PodNamespace != d.Namespace || newest.PodName != d.PodName {
		return f, nil
	}

	f.Met = Met{ID: newest.ID, Running: newest.Running}
	f.Starting = shown != nil && shown.ContainerID == newest.ID && shown.Started != nil && !*shown.Started
	if !knows(newest.ID) {
		inspected, err := c.runtimes.Status(ctx, newest.ID)
		if err != nil {
			return facts{}, fmt.Errorf("inspecting the container: %w", err)
		}
		if f.Started = inspected.StartedAt; f.Started.IsZero() {
			f.Started = newest.CreatedAt
		}
	}

	return f, nil
}

// podOf reads the pod of a definition. It returns nil if the pod is not needed or does not exist. A liveness
// probe must not fail before its container has started, which only the pod shows.
func (c *containers) podOf(ctx context.Context, d *Definition, k *known, anew bool) (*corev1.Pod, error) {
	age := c.now().Sub(k.read)
	if !c.watched && (!anew || !d.liveness()) && (!d.network() || age >= 0 && age < asked) {
		return nil, nil
	}

	pod := &corev1.Pod{}
	if err := c.pods.Get(ctx, types.NamespacedName{Namespace: d.Namespace, Name: d.PodName},
		pod); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the pod: %w", err)
	}
	if pod.UID != d.Pod {
		k.address, k.read = "", c.now()
		return nil, nil
	}

	return pod, nil
}

func statusOf(pod *corev1.Pod, container string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses,
		pod.Status.InitContainerStatuses} {
		for i := range list {
			if list[i].Name == container {
				return &list[i]
			}
		}
	}
	return nil
}
